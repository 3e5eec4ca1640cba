#include "runtime/text/answer/answer_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/ascii.h"
#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/channel_parser.h"
#include "runtime/text/answer/delta_sink.h"
#include "runtime/text/stop_matcher.h"

namespace strata {
namespace {

StopMatcher matcher_of(const std::vector<std::string>& markers) {
  return StopMatcher::create(markers).value();  // constants: not empty, not long
}

}  // namespace

// Byte by byte, so that no cut of the text matters.
class AnswerParser::State {
 public:
  State(ToolFormat format, AnswerOptions options)
      : format_(std::move(format)), options_(std::move(options)), channels_(options_.parse_calls) {
    if (!options_.parse_calls && !options_.split_reasoning) sink_.keep_leading_space();
    splits_reasoning_ = options_.split_reasoning && !format_.think_begin.empty();
    if (splits_reasoning_ && options_.starts_in_reasoning) {
      enter_reasoning();
    } else {
      enter_content(true);
    }
  }

  void feed(char byte) {
    if (format_.syntax == CallSyntax::channels && options_.split_reasoning) {
      channels_.feed(byte, sink_);
      return;
    }
    switch (place_) {
      case Place::reasoning:
        feed_reasoning(byte);
        break;
      case Place::content:
        feed_content(byte);
        break;
      case Place::call:
        feed_call(byte);
    }
  }

  void finish() {
    if (format_.syntax == CallSyntax::channels && options_.split_reasoning) {
      channels_.finish(sink_);
      return;
    }
    if (place_ == Place::call && !reader_->finish(sink_)) {
      sink_.content(call_marker_ + reader_->raw());
    }
    if (place_ == Place::reasoning) put_reasoning(matcher_->flush());
    if (place_ == Place::content) sink_.content(matcher_->flush());
  }

  DeltaSink& sink() { return sink_; }

 private:
  enum class Place : uint8_t { reasoning, content, call };

  void enter_reasoning() {
    place_ = Place::reasoning;
    matcher_ = matcher_of({format_.think_end});
    spaces_.clear();
    reasoning_begun_ = false;
  }

  // `at_start`: nothing was said yet, so reasoning or a bare call may begin.
  void enter_content(bool at_start) {
    place_ = Place::content;
    at_start_ = at_start;
    markers_.clear();
    if (options_.parse_calls && !format_.begin.empty()) markers_.push_back(format_.begin);
    if (splits_reasoning_) markers_.push_back(format_.think_begin);
    matcher_ = matcher_of(markers_);
  }

  void enter_call(std::string marker) {
    place_ = Place::call;
    call_marker_ = std::move(marker);
    switch (format_.syntax) {
      case CallSyntax::mistral:
        reader_ = mistral_call_reader();
        break;
      case CallSyntax::deepseek:
        reader_ = deepseek_call_reader();
        break;
      case CallSyntax::xml:
        reader_ = xml_call_reader(format_.end, options_);
        break;
      case CallSyntax::json_marked:
        reader_ = json_call_reader(format_.end, {});
        break;
      default:
        reader_ = json_call_reader("", options_.tool_names);
    }
  }

  void feed_reasoning(char byte) {
    put_reasoning(matcher_->push(std::string_view(&byte, 1)));
    if (!matcher_->stopped()) return;
    spaces_.clear();  // before the end marker
    enter_content(true);
  }

  // Without white space at both ends.
  void put_reasoning(std::string_view text) {
    for (const char byte : text) {
      if (is_json_space(byte)) {
        if (reasoning_begun_) spaces_ += byte;
        continue;
      }
      reasoning_begun_ = true;
      sink_.reasoning(std::exchange(spaces_, {}));
      sink_.reasoning(std::string_view(&byte, 1));
    }
  }

  void feed_content(char byte) {
    const bool may_be_bare = options_.parse_calls && format_.syntax == CallSyntax::json_bare;
    if (at_start_ && may_be_bare && (byte == '{' || byte == '[') && matcher_->held_bytes() == 0) {
      enter_call("");
      feed_call(byte);
      return;
    }
    const std::string certain = matcher_->push(std::string_view(&byte, 1));
    sink_.content(certain);
    if (std::any_of(certain.begin(), certain.end(), [](char c) { return !is_json_space(c); })) {
      at_start_ = false;
    }
    if (!matcher_->stopped()) return;
    const std::string marker = markers_[static_cast<size_t>(matcher_->stop_index())];
    if (marker == format_.think_begin && splits_reasoning_) {
      // Reasoning begins an answer; a marker in the middle is something the model talks about.
      if (at_start_) {
        enter_reasoning();
      } else {
        sink_.content(marker);
        enter_content(false);
      }
      return;
    }
    enter_call(marker);
  }

  void feed_call(char byte) {
    const CallReader::Step step = reader_->feed(byte, sink_);
    if (step == CallReader::Step::more) return;
    if (step == CallReader::Step::failed) {
      sink_.content(call_marker_ + reader_->raw());
      enter_content(false);
      return;
    }
    enter_content(false);
    // More calls may follow a bare one, after a semicolon or a line break.
    at_start_ = format_.syntax == CallSyntax::json_bare;
    if (step == CallReader::Step::ended) feed_content(byte);
  }

  ToolFormat format_;
  AnswerOptions options_;
  bool splits_reasoning_ = false;
  Place place_ = Place::content;
  bool at_start_ = true;
  std::vector<std::string> markers_;
  std::optional<StopMatcher> matcher_;
  std::string spaces_;
  bool reasoning_begun_ = false;
  std::string call_marker_;
  std::unique_ptr<CallReader> reader_;
  ChannelParser channels_;
  DeltaSink sink_;
};

AnswerParser::AnswerParser(ToolFormat format, AnswerOptions options)
    : state_(std::make_unique<State>(std::move(format), std::move(options))) {}

AnswerParser::~AnswerParser() = default;

std::vector<AnswerDelta> AnswerParser::push(std::string_view text) {
  for (const char byte : text) state_->feed(byte);
  return state_->sink().take();
}

std::vector<AnswerDelta> AnswerParser::finish() {
  state_->finish();
  return state_->sink().take();
}

int32_t AnswerParser::calls() const { return state_->sink().calls(); }

bool AnswerParser::ends_with_calls() const {
  return state_->sink().calls() > 0 && !state_->sink().call_is_open();
}

}  // namespace strata
