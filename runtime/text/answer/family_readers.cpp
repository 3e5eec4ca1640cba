// Calls in the syntaxes of Mistral, DeepSeek and Qwen Coder.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
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

// What a text is as JSON. By our own scanner: the library takes a NUL for the end of the text.
enum class JsonPart : uint8_t { none, beginning, whole };

JsonPart json_part(std::string_view text) {
  JsonScanner scanner;
  for (const char byte : text) {
    const JsonScanner::Step step = scanner.feed(byte);
    if (step == JsonScanner::Step::refused || step == JsonScanner::Step::ended) {
      return JsonPart::none;
    }
  }
  return scanner.is_complete() ? JsonPart::whole : JsonPart::beginning;
}

// Without the beginning of `marker` at its end.
std::string_view without_begun_marker(std::string_view text, std::string_view marker) {
  for (size_t length = std::min(text.size(), marker.size()); length > 0; --length) {
    if (text.ends_with(marker.substr(0, length))) return text.substr(0, text.size() - length);
  }
  return text;
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
      writer_.feed(byte, sink);
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
    return list_ != nullptr ? list_->finish(sink) : in_arguments_;
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
      writer_.feed(byte, sink);
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

  bool finish(DeltaSink& /*sink*/) override { return any_call_; }

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
    } else if (part_.ends_with(kFunctionEnd) && !key_and_value()) {
      close(sink);  // within a parameter it is text
    }
    return Step::more;
  }

  bool finish(DeltaSink& sink) override {
    if (name_.empty()) return false;
    if (!closed_) write_begun_parameter(sink);
    return true;
  }

 private:
  static constexpr std::string_view kFunction = "<function=";
  static constexpr std::string_view kFunctionEnd = "</function>";
  static constexpr std::string_view kParameter = "<parameter=";
  static constexpr std::string_view kParameterEnd = "</parameter>";

  static std::string quoted(std::string_view text) { return dump_json(Json(text)); }

  // The key of the parameter in part_, with what follows it; none before its tag is whole.
  std::optional<std::pair<std::string, std::string_view>> key_and_value() const {
    const size_t begin = part_.find(kParameter);
    if (begin == std::string::npos) return std::nullopt;
    const size_t key_begin = begin + kParameter.size();
    const size_t key_end = part_.find('>', key_begin);
    if (key_end == std::string::npos) return std::nullopt;
    std::string_view value = std::string_view(part_).substr(key_end + 1);
    // The frame puts a line break after the opening and before the closing tag.
    if (value.starts_with('\n')) value.remove_prefix(1);
    return std::pair(trimmed(part_.substr(key_begin, key_end - key_begin)), value);
  }

  bool is_parsed(const std::string& key) const {
    return std::find(parsed_.begin(), parsed_.end(), name_ + "." + key) != parsed_.end();
  }

  void write_key(const std::string& key, DeltaSink& sink) {
    sink.arguments((any_ ? ", " : "") + quoted(key) + ": ");
    any_ = true;
  }

  void write_parameter(DeltaSink& sink) {
    auto parameter = key_and_value();
    if (!parameter || closed_) return;
    auto& [key, value] = *parameter;
    // "<parameter=a</parameter>": the end tag's own '>' closed the first one; there is no value.
    if (!value.ends_with(kParameterEnd)) return;
    value.remove_suffix(kParameterEnd.size());
    if (value.ends_with('\n')) value.remove_suffix(1);
    const bool is_json = is_parsed(key) && json_part(trimmed(value)) == JsonPart::whole;
    write_key(key, sink);
    sink.arguments(is_json ? trimmed(value) : quoted(value));
  }

  // The answer ends in the middle of a parameter: what stands of it, without an end.
  void write_begun_parameter(DeltaSink& sink) {
    auto parameter = key_and_value();
    if (!parameter) return;
    auto& [key, value] = *parameter;
    value = without_begun_marker(value, "\n" + std::string(kParameterEnd));
    value = without_begun_marker(value, kParameterEnd);
    write_key(key, sink);
    if (is_parsed(key) && json_part(trimmed(value)) != JsonPart::none) {
      sink.arguments(trimmed(value));
      return;
    }
    std::string text = quoted(value);
    text.pop_back();
    sink.arguments(text);
  }

  void close(DeltaSink& sink) {
    if (closed_) return;
    closed_ = true;
    if (key_and_value()) {
      // The model forgot the parameter's end, and perhaps more of it.
      part_.resize(part_.size() - end_.size());
      return write_begun_parameter(sink);
    }
    sink.arguments("}");
    sink.end_call();
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
