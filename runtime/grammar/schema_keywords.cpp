#include "runtime/grammar/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "runtime/base/ascii.h"
#include "runtime/base/utf8.h"

namespace strata::grammar {
namespace {

using Kind = JsonValue::Kind;

constexpr uint32_t kCountMax = 10'000'000;

constexpr std::array<std::string_view, 18> kAnnotations = {
    "title",    "description", "default",  "examples",         "deprecated",
    "readOnly", "writeOnly",   "$comment", "contentEncoding",  "contentSchema",
    "$defs",    "definitions", "$anchor",  "contentMediaType", "$vocabulary",
    "example",  "$schema",     "$id"};

class Reader {
 public:
  Reader(const JsonDocument& schema, JsonId node) : schema_(schema), node_(node) {}

  Result<Keywords> read() {
    const JsonValue& value = schema_.at(node_);
    if (value.kind == Kind::boolean) {
      keywords_.never = !value.boolean;
      return std::move(keywords_);
    }
    if (value.kind != Kind::object) return wrong("", "a schema is an object, true or false");
    for (size_t i = 0; i < value.keys.size(); ++i)
      TRY(read_keyword(value.keys[i], value.children[i]));
    return std::move(keywords_);
  }

 private:
  using Method = Status (Reader::*)(std::string_view, JsonId);

  Status wrong(std::string_view keyword, std::string_view what) const {
    return invalid_argument(fmt::format("schema at {}: {}{}", schema_.path(node_),
                                        keyword.empty() ? "" : fmt::format("{}: ", keyword), what));
  }

  Status read_keyword(std::string_view key, JsonId value) {
    static const std::map<std::string_view, Method> kMethods = {
        {"type", &Reader::read_type},
        {"enum", &Reader::read_enum},
        {"const", &Reader::read_const},
        {"$ref", &Reader::read_ref},
        {"allOf", &Reader::read_branches},
        {"anyOf", &Reader::read_branches},
        {"oneOf", &Reader::read_branches},
        {"minimum", &Reader::read_limit},
        {"maximum", &Reader::read_limit},
        {"exclusiveMinimum", &Reader::read_limit},
        {"exclusiveMaximum", &Reader::read_limit},
        {"multipleOf", &Reader::read_limit},
        {"minLength", &Reader::read_count},
        {"maxLength", &Reader::read_count},
        {"minItems", &Reader::read_count},
        {"maxItems", &Reader::read_count},
        {"minProperties", &Reader::read_count},
        {"maxProperties", &Reader::read_count},
        {"pattern", &Reader::read_text},
        {"format", &Reader::read_text},
        {"prefixItems", &Reader::read_branches},
        {"items", &Reader::read_schema},
        {"additionalProperties", &Reader::read_schema},
        {"propertyNames", &Reader::read_schema},
        {"properties", &Reader::read_members},
        {"patternProperties", &Reader::read_members},
        {"required", &Reader::read_required},
        {"dependentRequired", &Reader::read_dependents},
        {"uniqueItems", &Reader::read_unique},
    };
    if (const auto method = kMethods.find(key); method != kMethods.end()) {
      return (this->*method->second)(key, value);
    }
    if (key == "$id" && node_ != JsonDocument::kRoot) {
      return unimplemented(
          fmt::format("schema at {}: $id is supported at the root only", schema_.path(node_)));
    }
    const bool known =
        std::find(kAnnotations.begin(), kAnnotations.end(), key) != kAnnotations.end();
    if (known || key.starts_with("x-")) return ok_status();
    return unimplemented(
        fmt::format("schema at {}: the keyword '{}' is not supported", schema_.path(node_),
                    printable(key)),
        "docs/grammar.md lists the keywords that are; names that begin with x- are read over");
  }

  Status read_type(std::string_view key, JsonId value) {
    std::vector<JsonId> names = {value};
    if (schema_.at(value).kind == Kind::array) names = schema_.at(value).children;
    keywords_.types = 0;
    bool number = false;
    for (const JsonId name : names) {
      const std::string_view text =
          schema_.at(name).kind == Kind::string ? schema_.at(name).text : std::string_view();
      if (text == "null")
        keywords_.types |= kTypeNull;
      else if (text == "boolean")
        keywords_.types |= kTypeBoolean;
      else if (text == "number" || text == "integer")
        keywords_.types |= kTypeNumber;
      else if (text == "string")
        keywords_.types |= kTypeString;
      else if (text == "array")
        keywords_.types |= kTypeArray;
      else if (text == "object")
        keywords_.types |= kTypeObject;
      else
        return wrong(key, "null, boolean, integer, number, string, array or object, or a list");
      number = number || text == "number";
    }
    keywords_.integer = !number && (keywords_.types & kTypeNumber) != 0;
    return ok_status();
  }

  Status read_enum(std::string_view key, JsonId value) {
    if (schema_.at(value).kind != Kind::array) return wrong(key, "a list of values is expected");
    if (keywords_.values) return wrong(key, "beside const is not supported");
    keywords_.values = schema_.at(value).children;
    return ok_status();
  }

  Status read_const(std::string_view key, JsonId value) {
    if (keywords_.values) return wrong(key, "beside enum is not supported");
    keywords_.values = {value};
    return ok_status();
  }

  Status read_ref(std::string_view key, JsonId value) {
    if (schema_.at(value).kind != Kind::string) return wrong(key, "a text is expected");
    std::string_view text = schema_.at(value).text;
    const std::string shown = printable(text);
    const size_t hash = std::min(text.find('#'), text.size());
    const std::optional<JsonId> id = schema_.find(JsonDocument::kRoot, "$id");
    const bool own = hash == 0 || (id && schema_.at(*id).kind == Kind::string &&
                                   schema_.at(*id).text == text.substr(0, hash));
    if (!own) {
      return unimplemented(fmt::format("schema at {}: $ref: '{}' leads out of the schema",
                                       schema_.path(node_), shown),
                           "put the other schema into $defs");
    }
    text.remove_prefix(std::min(hash + 1, text.size()));
    const std::string pointer = unescape(text);
    keywords_.ref = pointer.empty() || pointer[0] == '/' ? schema_.resolve(pointer)
                                                         : schema_.find_anchor(pointer);
    if (!keywords_.ref) return wrong(key, fmt::format("'{}' leads to nothing", shown));
    return ok_status();
  }

  // %41 is 'A'.
  static std::string unescape(std::string_view text) {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
      const std::optional<uint32_t> code =
          text[i] == '%' ? parse_hex(text.substr(i + 1), 2) : std::nullopt;
      result += code ? static_cast<char>(*code) : text[i];
      if (code) i += 2;
    }
    return result;
  }

  Status read_branches(std::string_view key, JsonId value) {
    const JsonValue& list = schema_.at(value);
    if (list.kind != Kind::array || list.children.empty()) {
      return wrong(key, "a list of one schema or more is expected");
    }
    if (key == "allOf") keywords_.all_of = list.children;
    if (key == "anyOf") keywords_.any_of = list.children;
    if (key == "oneOf") keywords_.one_of = list.children;
    if (key == "prefixItems") keywords_.prefix_items = list.children;
    return ok_status();
  }

  Status read_limit(std::string_view key, JsonId value) {
    if (schema_.at(value).kind != Kind::number) return wrong(key, "a number is expected");
    const Result<Decimal> parsed = parse_decimal(schema_.at(value).text);
    if (!parsed.ok()) return wrong(key, parsed.status().message());
    const Decimal& number = *parsed;
    if (key == "multipleOf") {
      if (number.negative || number.is_zero()) return wrong(key, "a number above 0 is expected");
      keywords_.multiple_of = number;
      return ok_status();
    }
    const bool is_low = key == "minimum" || key == "exclusiveMinimum";
    const bool excluded = key.starts_with("exclusive");
    std::optional<Decimal>& limit = is_low ? keywords_.low : keywords_.high;
    bool& limit_excluded = is_low ? keywords_.low_excluded : keywords_.high_excluded;
    const auto order = limit ? compare(number, *limit) : std::strong_ordering::equal;
    const bool tighter = !limit || (is_low ? order > 0 : order < 0) || (order == 0 && excluded);
    if (!tighter) return ok_status();
    limit = number;
    limit_excluded = excluded;
    return ok_status();
  }

  Status read_count(std::string_view key, JsonId value) {
    const Result<Decimal> parsed = parse_decimal(
        schema_.at(value).kind == Kind::number ? schema_.at(value).text : std::string("-1"));
    if (!parsed.ok() || parsed->negative || !parsed->is_integer()) {
      return wrong(key, "a whole number from 0 is expected");
    }
    const bool is_max = key.starts_with("max");
    uint32_t count = kCountMax;
    if (parsed->whole.size() < 9) count = static_cast<uint32_t>(std::stoul(parsed->whole));
    if (count >= kCountMax) {
      if (!is_max) return wrong(key, fmt::format("{} is more than is supported", parsed->whole));
      count = kUnlimited;
    }
    if (key == "minLength") keywords_.length_min = count;
    if (key == "maxLength") keywords_.length_max = count;
    if (key == "minItems") keywords_.items_min = count;
    if (key == "maxItems") keywords_.items_max = count;
    if (key == "minProperties") keywords_.members_min = count;
    if (key == "maxProperties") keywords_.members_max = count;
    return ok_status();
  }

  Status read_text(std::string_view key, JsonId value) {
    if (schema_.at(value).kind != Kind::string) return wrong(key, "a text is expected");
    (key == "pattern" ? keywords_.pattern : keywords_.format) = schema_.at(value).text;
    return ok_status();
  }

  Status read_schema(std::string_view key, JsonId value) {
    const Kind kind = schema_.at(value).kind;
    if (key == "items" && kind == Kind::array) {
      return wrong(key, "a list is of an older draft: use prefixItems");
    }
    if (kind != Kind::object && kind != Kind::boolean) return wrong(key, "a schema is expected");
    if (key == "items") keywords_.items = value;
    if (key == "additionalProperties") keywords_.additional = value;
    if (key == "propertyNames") keywords_.property_names = value;
    return ok_status();
  }

  Status read_members(std::string_view key, JsonId value) {
    const JsonValue& object = schema_.at(value);
    if (object.kind != Kind::object) return wrong(key, "an object of schemas is expected");
    auto& members = key == "properties" ? keywords_.properties : keywords_.pattern_properties;
    for (size_t i = 0; i < object.keys.size(); ++i) {
      members.emplace_back(object.keys[i], object.children[i]);
    }
    return ok_status();
  }

  Result<std::vector<std::string>> read_names(std::string_view key, JsonId value) const {
    const JsonValue& list = schema_.at(value);
    if (list.kind != Kind::array) return wrong(key, "a list of names is expected");
    std::vector<std::string> names;
    for (const JsonId id : list.children) {
      if (schema_.at(id).kind != Kind::string) return wrong(key, "a list of names is expected");
      names.push_back(schema_.at(id).text);
    }
    return names;
  }

  Status read_required(std::string_view key, JsonId value) {
    keywords_.required = TRY(read_names(key, value));
    return ok_status();
  }

  Status read_dependents(std::string_view key, JsonId value) {
    const JsonValue& object = schema_.at(value);
    if (object.kind != Kind::object) return wrong(key, "an object of lists of names is expected");
    for (size_t i = 0; i < object.keys.size(); ++i) {
      keywords_.dependents.emplace_back(object.keys[i], TRY(read_names(key, object.children[i])));
    }
    return ok_status();
  }

  Status read_unique(std::string_view key, JsonId value) {
    if (schema_.at(value).kind != Kind::boolean) return wrong(key, "true or false is expected");
    if (!schema_.at(value).boolean) return ok_status();
    const std::optional<JsonId> max = schema_.find(node_, "maxItems");
    if (max && (schema_.at(*max).text == "1" || schema_.at(*max).text == "0")) return ok_status();
    return unimplemented(
        fmt::format("schema at {}: the keyword 'uniqueItems' is not supported",
                    schema_.path(node_)),
        "an automaton cannot compare the elements of a list; check them afterwards");
  }

  const JsonDocument& schema_;
  const JsonId node_;
  Keywords keywords_;
};

}  // namespace

Result<Keywords> read_keywords(const JsonDocument& schema, JsonId node) {
  return Reader(schema, node).read();
}

}  // namespace strata::grammar
