#include "runtime/text/answer/call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/ascii.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

// Until a call has its name and the beginning of its arguments, nothing is passed on: raw_ can
// become content again. An object is read by one scanner; a second one, in the writer, follows its
// arguments.
class JsonCallReader final : public CallReader {
 public:
  JsonCallReader(std::string end, std::vector<std::string> known_names)
      : end_(std::move(end)), known_names_(std::move(known_names)) {}

  Step feed(char byte, DeltaSink& sink) override;
  bool finish(DeltaSink& /*sink*/) override { return any_call_; }

 private:
  enum class Place : uint8_t { start, between, object, behind };

  // The object being read.
  struct Call {
    JsonScanner scanner;
    bool nested = false;    // inside of its "function" object
    bool in_value = false;  // of one of its members
    std::string key;
    std::string value;  // the member's, but for arguments that were passed on
    std::optional<std::string> name;
    std::string early;  // arguments that came before the name
    ArgumentsWriter writer;
    bool is_announced = false;
    bool passes_on = false;  // the member being read is the arguments, under way
    size_t member_depth() const { return nested ? 2 : 1; }
  };

  Step feed_between(char byte);
  Step feed_object(char byte, DeltaSink& sink);
  Step feed_behind(char byte);
  void begin_member(char byte, DeltaSink& sink);
  void end_member();
  void announce(DeltaSink& sink);
  Step end_object(DeltaSink& sink);
  // A call that was passed on cannot be taken back: the rest is dropped then.
  Step fail() const { return any_call_ || call_.is_announced ? Step::done : Step::failed; }
  Step end_calls() {
    place_ = Place::behind;
    return end_.empty() ? Step::done : Step::more;
  }
  bool is_known(const std::string& name) const {
    return known_names_.empty() ||
           std::find(known_names_.begin(), known_names_.end(), name) != known_names_.end();
  }

  std::string end_;
  std::vector<std::string> known_names_;
  Place place_ = Place::start;
  bool in_list_ = false;
  bool any_call_ = false;
  size_t end_matched_ = 0;
  Call call_;
};

CallReader::Step JsonCallReader::feed(char byte, DeltaSink& sink) {
  raw_ += byte;
  switch (place_) {
    case Place::start:
      if (byte == '[') {
        in_list_ = true;
        place_ = Place::between;
        return Step::more;
      }
      [[fallthrough]];
    case Place::between:
      return feed_between(byte);
    case Place::object:
      return feed_object(byte, sink);
    default:
      return feed_behind(byte);
  }
}

// Before an object, of a list or alone.
CallReader::Step JsonCallReader::feed_between(char byte) {
  if (is_json_space(byte) || (byte == ',' && any_call_)) return Step::more;
  if (byte == ']' && in_list_ && any_call_) return end_calls();
  if (byte != '{') return fail();
  call_.scanner.feed(byte);
  place_ = Place::object;
  return Step::more;
}

CallReader::Step JsonCallReader::feed_behind(char byte) {
  if (end_matched_ == 0 && is_json_space(byte)) return Step::more;
  // Where the model forgot the marker, what stands in its place is dropped with it.
  if (byte != end_[end_matched_]) return Step::done;
  return ++end_matched_ == end_.size() ? Step::done : Step::more;
}

CallReader::Step JsonCallReader::feed_object(char byte, DeltaSink& sink) {
  JsonScanner& scanner = call_.scanner;
  const bool at_member = scanner.depth() == call_.member_depth();
  const bool value_is_due = scanner.is_before_value() && at_member;
  const bool was_number = scanner.is_in_number() && at_member;
  const bool was_key = scanner.is_in_key();
  const JsonScanner::Step step = scanner.feed(byte);
  if (step == JsonScanner::Step::refused || step == JsonScanner::Step::ended) {
    return fail();
  }
  if (call_.in_value) {
    const bool number_ended = was_number && !scanner.is_in_number();
    if (!number_ended) {
      if (call_.passes_on) {
        call_.writer.feed(byte, sink);
      } else {
        call_.value += byte;
      }
    }
    if (number_ended || (scanner.is_after_value() && scanner.depth() == call_.member_depth())) {
      end_member();
    }
  } else if (value_is_due && !is_json_space(byte)) {
    begin_member(byte, sink);
  } else if (scanner.is_in_key() && scanner.depth() == call_.member_depth()) {
    was_key ? call_.key.push_back(byte) : call_.key.clear();
  }
  if (call_.nested && scanner.depth() < 2) call_.nested = false;
  if (call_.name && !is_known(*call_.name)) return fail();
  return step == JsonScanner::Step::done ? end_object(sink) : Step::more;
}

void JsonCallReader::begin_member(char byte, DeltaSink& sink) {
  if (call_.key == "function" && byte == '{' && !call_.nested) {
    call_.nested = true;
    return;
  }
  call_.in_value = true;
  call_.value.assign(1, byte);
  const bool is_arguments = call_.key == "arguments" || call_.key == "parameters";
  if (!is_arguments || byte != '{' || !call_.name || call_.is_announced) return;
  announce(sink);
  call_.passes_on = true;
  call_.writer.feed(byte, sink);
}

void JsonCallReader::end_member() {
  const std::string value = std::exchange(call_.value, {});
  const std::string key = std::exchange(call_.key, {});
  call_.in_value = false;
  if (std::exchange(call_.passes_on, false)) return;
  if (key == "name" || key == "function") {
    const Json name = Json::parse(value, nullptr, false);
    if (name.is_string() && !name.get_ref<const std::string&>().empty()) {
      call_.name = name.get<std::string>();
    }
  } else if (key == "arguments" || key == "parameters") {
    call_.early = value;
    // Some models write the arguments as a string with JSON in it.
    const Json text = Json::parse(value, nullptr, false);
    if (text.is_string() && Json::accept(text.get_ref<const std::string&>())) {
      call_.early = text.get<std::string>();
    }
  }
}

void JsonCallReader::announce(DeltaSink& sink) {
  call_.is_announced = true;
  any_call_ = true;
  sink.call(*call_.name);
}

CallReader::Step JsonCallReader::end_object(DeltaSink& sink) {
  if (!call_.name) return fail();
  if (!call_.is_announced) {
    announce(sink);
    for (const char byte : call_.early) {
      if (!call_.writer.feed(byte, sink)) break;
    }
  }
  call_.writer.end_call(sink);
  call_ = Call();
  place_ = Place::between;
  return in_list_ ? Step::more : end_calls();
}

}  // namespace

bool ArgumentsWriter::feed(char byte, DeltaSink& sink) {
  if (done_) return is_json_space(byte);
  const JsonScanner::Step step = scanner_.feed(byte);
  if (step == JsonScanner::Step::refused || step == JsonScanner::Step::ended) {
    // A number at the top is whole where it ends; anything else is spoiled.
    if (step == JsonScanner::Step::ended) sink.end_call();
    done_ = true;
    return false;
  }
  if (!begun_ && is_json_space(byte)) return true;
  begun_ = true;
  sink.arguments(std::string_view(&byte, 1));
  done_ = step == JsonScanner::Step::done;
  if (done_) sink.end_call();
  return true;
}

void ArgumentsWriter::end_call(DeltaSink& sink) {
  if (!begun_) sink.arguments("{}");
  if (!begun_ || scanner_.is_complete()) sink.end_call();
  done_ = true;
}

std::unique_ptr<CallReader> json_call_reader(std::string end,
                                             std::vector<std::string> known_names) {
  return std::make_unique<JsonCallReader>(std::move(end), std::move(known_names));
}

}  // namespace strata
