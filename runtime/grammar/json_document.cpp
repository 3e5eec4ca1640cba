#include "runtime/grammar/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"

namespace strata::grammar {
namespace {

constexpr size_t kDepthMax = 200;
constexpr size_t kValuesMax = 200000;

}  // namespace

// The library's parser calls this for each part of the text; it does not recurse, nor throw here.
class JsonBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return add({}); }
  bool boolean(bool value) {
    JsonValue json;
    json.kind = JsonValue::Kind::boolean;
    json.boolean = value;
    return add(std::move(json));
  }
  bool number_integer(number_integer_t value) { return add_number(fmt::format("{}", value)); }
  bool number_unsigned(number_unsigned_t value) { return add_number(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) { return add_number(text); }
  bool string(string_t& value) {
    JsonValue json;
    json.kind = JsonValue::Kind::string;
    json.text = std::move(value);
    if (!open_.empty() && !document.values_[open_.back()].keys.empty() &&
        document.values_[open_.back()].keys.back() == "$anchor") {
      const auto entry = document.anchors_.try_emplace(json.text, open_.back()).first;
      entry->second = std::min(entry->second, open_.back());
    }
    return add(std::move(json));
  }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(JsonValue::Kind::object); }
  bool start_array(size_t) { return open(JsonValue::Kind::array); }
  bool end_object() {
    const JsonId id = open_.back();
    open_.pop_back();
    JsonValue& object = document.values_[id];
    const std::vector<std::string>& keys = object.keys;
    std::vector<uint32_t>& places = object.by_key;
    for (uint32_t place = 0; place < keys.size(); ++place) places.push_back(place);
    std::sort(places.begin(), places.end(),
              [&keys](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    const auto twice =
        std::adjacent_find(places.begin(), places.end(),
                           [&keys](uint32_t a, uint32_t b) { return keys[a] == keys[b]; });
    if (twice == places.end()) return true;
    return fail(
        fmt::format("{}: the name '{}' comes twice", document.path(id), printable(keys[*twice])));
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool key(string_t& name) {
    document.values_[open_.back()].keys.push_back(std::move(name));
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what: why"
    const std::string_view text = error.what();
    const size_t begin = text.find("at line");
    return fail(begin == std::string_view::npos ? fmt::format("no JSON at byte {}", position)
                                                : "no JSON " + printable(text.substr(begin), 200));
  }

  JsonDocument document;
  std::string failure;

 private:
  bool fail(std::string what) {
    if (failure.empty()) failure = std::move(what);
    return false;
  }
  bool add_number(std::string text) {
    JsonValue json;
    json.kind = JsonValue::Kind::number;
    json.text = std::move(text);
    return add(std::move(json));
  }
  bool add(JsonValue json) {
    std::vector<JsonValue>& values = document.values_;
    if (values.size() >= kValuesMax) return fail(fmt::format("more than {} values", kValuesMax));
    const auto id = static_cast<JsonId>(values.size());
    if (!open_.empty()) {
      json.parent = open_.back();
      json.place = static_cast<uint32_t>(values[open_.back()].children.size());
      values[open_.back()].children.push_back(id);
    }
    values.push_back(std::move(json));
    return true;
  }
  bool open(JsonValue::Kind kind) {
    if (open_.size() >= kDepthMax) return fail(fmt::format("deeper than {} levels", kDepthMax));
    JsonValue json;
    json.kind = kind;
    if (!add(std::move(json))) return false;
    open_.push_back(static_cast<JsonId>(document.values_.size() - 1));
    return true;
  }
  std::vector<JsonId> open_;
};

Result<JsonDocument> JsonDocument::parse(std::string_view text, std::string_view what) {
  TRY(check_no_nul(text, what));
  JsonBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return invalid_argument(fmt::format("{}: {}", what, builder.failure));
  }
  return std::move(builder.document);
}

std::optional<JsonId> JsonDocument::find(JsonId object, std::string_view key) const {
  const JsonValue& value = values_[object];
  const auto place = std::lower_bound(
      value.by_key.begin(), value.by_key.end(), key,
      [&value](uint32_t at, std::string_view wanted) { return value.keys[at] < wanted; });
  if (place == value.by_key.end() || value.keys[*place] != key) return std::nullopt;
  return value.children[*place];
}

std::optional<JsonId> JsonDocument::find_anchor(std::string_view name) const {
  const auto known = anchors_.find(name);
  if (known == anchors_.end()) return std::nullopt;
  return known->second;
}

std::string JsonDocument::path(JsonId id) const {
  std::vector<std::string> parts;
  for (; id != kRoot; id = values_[id].parent) {
    const JsonValue& value = values_[id];
    const JsonValue& parent = values_[value.parent];
    if (parent.kind == JsonValue::Kind::array) {
      parts.push_back(fmt::format("{}", value.place));
      continue;
    }
    std::string part;
    for (const char c : parent.keys[value.place]) {
      if (c == '~')
        part += "~0";
      else if (c == '/')
        part += "~1";
      else
        part += c;
    }
    parts.push_back(printable(part, 60));
  }
  std::string path = "#";
  for (size_t i = parts.size(); i-- > 0;) path += "/" + parts[i];
  return path;
}

std::optional<JsonId> JsonDocument::resolve(std::string_view pointer) const {
  JsonId id = kRoot;
  while (!pointer.empty()) {
    if (pointer[0] != '/') return std::nullopt;
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string part;
    for (size_t i = 1; i < end; ++i) {
      const bool escaped = pointer[i] == '~' && i + 1 < end;
      if (escaped && pointer[i + 1] != '0' && pointer[i + 1] != '1') return std::nullopt;
      part += escaped ? (pointer[++i] == '0' ? '~' : '/') : pointer[i];
    }
    pointer.remove_prefix(end);
    const JsonValue& value = values_[id];
    if (value.kind == JsonValue::Kind::object) {
      const std::optional<JsonId> child = find(id, part);
      if (!child) return std::nullopt;
      id = *child;
      continue;
    }
    const bool is_index =
        !part.empty() && part.size() < 8 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_index || static_cast<size_t>(std::stoul(part)) >= value.children.size()) {
      return std::nullopt;
    }
    id = value.children[std::stoul(part)];
  }
  return id;
}

}  // namespace strata::grammar
