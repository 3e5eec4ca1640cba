// Calls in the syntaxes of Mistral, DeepSeek and Qwen Coder.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/json_text.h"
#include "runtime/text/answer/call_reader.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1));
}

// By our own scanner: the library takes a NUL for the end of the text.
bool is_json_value(std::string_view text) {
  JsonScanner scanner;
  for (const char byte : text) {
    const JsonScanner::Step step = scanner.feed(byte);
    if (step == JsonScanner::Step::refused || step == JsonScanner::Step::ended) return false;
  }
  return scanner.is_complete();
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 256 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ':' || c == '/';
         });
}

// A list of objects, or NAME, perhaps [CALL_ID]id, [ARGS] and the arguments.
class MistralReader final : public CallReader {
 public:
  Step feed(char byte, DeltaSink& sink) override {
    raw_ += byte;
    if (list_ != nullptr) return list_->feed(byte, sink);
    if (in_arguments_) {
      if (!writer_.feed(byte, sink)) writer_.finish(sink);
      return writer_.is_done() ? Step::done : Step::more;
    }
    if (byte != '[' && byte != '{') {
      head_ += byte;
      return head_.size() > 1000 ? Step::failed : Step::more;
    }
    if (trimmed(head_).empty()) {
      list_ = json_call_reader("", {});
      return list_->feed(byte, sink);
    }
    if (byte == '[') {
      head_ += byte;
      return Step::more;
    }
    // What stands before the first marker is the name.
    const std::string name = trimmed(std::string_view(head_).substr(0, head_.find('[')));
    if (!is_name(name)) return Step::failed;
    sink.call(name);
    in_arguments_ = true;
    writer_.feed(byte, sink);
    return Step::more;
  }

  bool finish(DeltaSink& sink) override {
    if (list_ != nullptr) return list_->finish(sink);
    if (in_arguments_) writer_.finish(sink);
    return in_arguments_;
  }

 private:
  std::unique_ptr<CallReader> list_;
  std::string head_;
  ArgumentsWriter writer_;
  bool in_arguments_ = false;
};

// begin, "function" or the name, sep, the name and a fence or nothing, the arguments, end; again,
// until the end of all calls.
class DeepSeekReader final : public CallReader {
 public:
  Step feed(char byte, DeltaSink& sink) override {
    raw_ += byte;
    if (in_arguments_) {
      if (!writer_.feed(byte, sink)) writer_.finish(sink);
      if (writer_.is_done()) {
        in_arguments_ = false;
        head_.clear();
      }
      return Step::more;
    }
    head_ += byte;
    if (head_.ends_with(kAllEnd)) return any_call_ ? Step::done : Step::failed;
    if (head_.size() > 4000) return any_call_ ? Step::done : Step::failed;
    const size_t separator = head_.find(kSeparator);
    if (byte != '{' || separator == std::string::npos) return Step::more;
    std::string name = head_.substr(0, separator);
    const size_t begin = name.rfind(kBegin);
    name = trimmed(begin == std::string::npos ? name : name.substr(begin + kBegin.size()));
    if (name == "function") {
      std::string line = head_.substr(separator + kSeparator.size());
      name = trimmed(line.substr(0, line.find('\n')));
    }
    if (!is_name(name)) return any_call_ ? Step::done : Step::failed;
    sink.call(name);
    any_call_ = true;
    in_arguments_ = true;
    writer_ = ArgumentsWriter();
    writer_.feed(byte, sink);
    return Step::more;
  }

  bool finish(DeltaSink& sink) override {
    if (in_arguments_) writer_.finish(sink);
    return any_call_;
  }

 private:
  static constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>";
  static constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
  static constexpr std::string_view kAllEnd = "<｜tool▁calls▁end｜>";

  std::string head_;  // since the last arguments
  ArgumentsWriter writer_;
  bool in_arguments_ = false;
  bool any_call_ = false;
};

// Parameters are passed on one by one, when each is complete.
class XmlReader final : public CallReader {
 public:
  XmlReader(std::string end, std::vector<std::string> parsed)
      : end_(std::move(end)), parsed_(std::move(parsed)) {}

  Step feed(char byte, DeltaSink& sink) override {
    raw_ += byte;
    part_ += byte;
    if (name_.empty()) {
      if (byte != '>') return part_.size() > 400 ? Step::failed : Step::more;
      const size_t begin = part_.find(kFunction);
      if (begin == std::string::npos || !trimmed(part_.substr(0, begin)).empty()) {
        return Step::failed;
      }
      name_ = trimmed(
          part_.substr(begin + kFunction.size(), part_.size() - begin - kFunction.size() - 1));
      if (!is_name(name_)) return Step::failed;
      sink.call(name_);
      sink.arguments("{");
      part_.clear();
      return Step::more;
    }
    if (byte != '>') return Step::more;
    if (part_.ends_with(kParameterEnd)) {
      write_parameter(sink);
      part_.clear();
    } else if (part_.ends_with(end_)) {
      close(sink);
      return Step::done;
    }
    return Step::more;
  }

  bool finish(DeltaSink& sink) override {
    if (name_.empty()) return false;
    close(sink);
    return true;
  }

 private:
  static constexpr std::string_view kFunction = "<function=";
  static constexpr std::string_view kParameter = "<parameter=";
  static constexpr std::string_view kParameterEnd = "</parameter>";

  void write_parameter(DeltaSink& sink) {
    const size_t begin = part_.find(kParameter);
    if (begin == std::string::npos) return;
    const size_t key_end = part_.find('>', begin);
    const std::string key =
        trimmed(part_.substr(begin + kParameter.size(), key_end - begin - kParameter.size()));
    std::string value =
        part_.substr(key_end + 1, part_.size() - key_end - 1 - kParameterEnd.size());
    // The frame puts a line break after the opening and before the closing tag.
    if (value.starts_with('\n')) value.erase(0, 1);
    if (value.ends_with('\n')) value.pop_back();
    const bool parse =
        std::find(parsed_.begin(), parsed_.end(), name_ + "." + key) != parsed_.end();
    const bool is_json = parse && is_json_value(trimmed(value));
    const auto quoted = [](const std::string& text) { return dump_json(Json(text)); };
    sink.arguments((any_ ? ", " : "") + quoted(key) + ": " +
                   (is_json ? trimmed(value) : quoted(value)));
    any_ = true;
  }

  void close(DeltaSink& sink) {
    if (!closed_) sink.arguments("}");
    closed_ = true;
  }

  std::string end_;
  std::vector<std::string> parsed_;
  std::string name_;
  std::string part_;
  bool any_ = false;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<CallReader> mistral_call_reader() { return std::make_unique<MistralReader>(); }

std::unique_ptr<CallReader> deepseek_call_reader() { return std::make_unique<DeepSeekReader>(); }

std::unique_ptr<CallReader> xml_call_reader(std::string end, const AnswerOptions& options) {
  return std::make_unique<XmlReader>(std::move(end), options.parsed_parameters);
}

}  // namespace strata
