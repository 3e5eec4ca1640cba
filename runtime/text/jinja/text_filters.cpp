// Filters over text.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/arithmetic.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/iteration.h"
#include "runtime/text/jinja/json_text.h"
#include "runtime/text/jinja/python_format.h"
#include "runtime/text/jinja/text_operations.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

template <Case wanted>
Result<Value> case_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"case filter", {}}));
  return with_case(runtime, *TRY(to_text(runtime, input)), wanted);
}

Result<Value> capitalize_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"capitalize", {}}));
  return capitalize(runtime, *TRY(to_text(runtime, input)));
}

// Words begin after white space, a dash or an opening bracket; letters within one become small.
Result<Value> title_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"title", {}}));
  const TextRef text = TRY(to_text(runtime, input));
  TextBuilder out = runtime.builder();
  OriginCursor origin(*text);
  bool starts_word = true;
  for (size_t at = 0; at < text->bytes.size();) {
    const Character c = character_at(text->bytes, at);
    std::string changed;
    append_cased(text->bytes, c, starts_word ? Case::upper : Case::lower, changed);
    out.append(changed, origin.is_foreign(at));
    starts_word = is_space(c.code_point) || c.code_point == '-' || c.code_point == '(' ||
                  c.code_point == '{' || c.code_point == '[' || c.code_point == '<';
    at += c.length;
  }
  return runtime.text(std::move(out));
}

Result<Value> trim_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"trim", {"chars"}}));
  const Text* characters = TRY(text_argument(runtime, bound, 0, "chars"));
  return strip(runtime, *TRY(to_text(runtime, input)), characters, true, true);
}

Result<Value> replace_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"replace", {"old", "new", "count"}, 2}));
  const int64_t count =
      bound.is_set(2) ? TRY(integer_argument(runtime, bound, 2, -1, "count")) : -1;
  const TextRef old_text = TRY(to_text(runtime, bound[0]));
  const TextRef new_text = TRY(to_text(runtime, bound[1]));
  return replace(runtime, *TRY(to_text(runtime, input)), *old_text, *new_text, count);
}

Result<Value> string_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"string", {}}));
  return Value(TRY(to_text(runtime, input)));
}

Result<Value> safe_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"safe", {}}));
  TextBuilder out = runtime.builder();
  TRY(append_text(runtime, input, out));
  return runtime.text(std::move(out), true);
}

Result<Value> escape_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"escape", {}}));
  return escaped(runtime, input);
}

Result<Value> force_escape_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"forceescape", {}}));
  TextBuilder plain = runtime.builder();
  TRY(append_text(runtime, input, plain));
  return escaped(runtime, TRY(runtime.text(std::move(plain))));
}

Result<Value> center_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"center", {"width"}}));
  const int64_t width = TRY(integer_argument(runtime, bound, 0, 80, "width"));
  return pad(runtime, *TRY(to_text(runtime, input)), width, " ", Side::both);
}

Result<Value> format_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const TextRef text = TRY(to_text(runtime, input));
  if (arguments.named.empty()) {
    return format_percent(runtime, *text, runtime.tuple(arguments.positional));
  }
  if (!arguments.positional.empty()) {
    return runtime.error("can't handle positional and keyword arguments at the same time");
  }
  auto* values = runtime.make<Dict>();
  for (const auto& [name, value] : arguments.named) {
    values->set(TRY(runtime.text(std::string(name))), value);
  }
  return format_percent(runtime, *text, values);
}

Result<Value> indent_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"indent", {"width", "first", "blank"}}));
  MarkedText indention{"    ", {}};
  if (bound.has(0) && bound[0].is_string()) {
    indention = *bound[0].text();
  } else {
    const int64_t width = TRY(integer_argument(runtime, bound, 0, 4, "width"));
    TextBuilder spaces = runtime.builder();
    spaces.append_repeated(" ", static_cast<size_t>(std::max<int64_t>(width, 0)));
    if (spaces.overflowed()) return runtime.error("the indent is too wide");
    indention = spaces.take();
  }
  const bool first = truth_argument(bound, 1, false);
  const bool blank = truth_argument(bound, 2, false);
  if (input.is_undefined()) return runtime.error(input.undefined());
  if (!input.is_string()) {
    return runtime.error(fmt::format("indent needs a string, not {}", input.type_name()));
  }
  const Text& text = *input.text();
  TextBuilder out = runtime.builder();
  if (first) out.append(indention);
  // As with a line break added at the end: a text that ends with one has an empty last line.
  std::vector<Line> lines = lines_of(text.bytes);
  if (lines.empty() || lines.back().end != lines.back().next) {
    lines.push_back({text.bytes.size(), text.bytes.size(), text.bytes.size()});
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    TRY(runtime.charge());
    if (i > 0) {
      out.append("\n", false);
      if (blank || lines[i].end > lines[i].begin) out.append(indention);
    }
    out.append(text, lines[i].begin, lines[i].end);
  }
  return runtime.text(std::move(out), text.markup);
}

Result<Value> join_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"join", {"d", "attribute"}}));
  const Value empty = TRY(runtime.text(std::string()));
  const TextRef separator = TRY(to_text(runtime, bound.has(0) ? bound[0] : empty));
  std::vector<TextRef> parts;
  for (const Value& item : TRY(collect(runtime, input))) {
    const Value part = bound.is_set(1) ? TRY(follow_path(runtime, item, bound[1])) : item;
    parts.push_back(TRY(to_text(runtime, part)));
  }
  return join(runtime, *separator, parts);
}

Result<Value> truncate_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound =
      TRY(bind(runtime, arguments, {"truncate", {"length", "killwords", "end", "leeway"}}));
  const int64_t length = TRY(integer_argument(runtime, bound, 0, 255, "length"));
  const Value dots = TRY(runtime.text(std::string("...")));
  const TextRef end = TRY(to_text(runtime, bound.has(2) ? bound[2] : dots));
  const int64_t leeway =
      bound.is_set(3) ? TRY(integer_argument(runtime, bound, 3, 5, "leeway")) : 5;
  const TextRef text = TRY(to_text(runtime, input));
  const auto end_length = static_cast<int64_t>(end->length);
  if (length < end_length) {
    return runtime.error(fmt::format("expected length >= {}, got {}", end_length, length));
  }
  if (leeway < 0) return runtime.error(fmt::format("expected leeway >= 0, got {}", leeway));
  if (static_cast<int64_t>(text->length) <= length + std::min<int64_t>(leeway, 1 << 30)) {
    return Value(text);
  }
  size_t cut = offset_of(*text, static_cast<size_t>(length - end_length));
  if (!truth_argument(bound, 1, false)) {
    const size_t space = std::string_view(text->bytes).substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  TextBuilder out = runtime.builder();
  out.append(*text, 0, cut);
  out.append(*end);
  return runtime.text(std::move(out));
}

Result<Value> wordcount_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"wordcount", {}}));
  const TextRef text = TRY(to_text(runtime, input));
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text->bytes.size();) {
    const Character c = character_at(text->bytes, at);
    const bool word = is_word(c.code_point);
    if (word && !in_word) ++words;
    in_word = word;
    at += c.length;
  }
  return Value(words);
}

void append_url_quoted(const Text& text, bool query, TextBuilder& out) {
  OriginCursor origin(text);
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    const bool foreign = origin.is_foreign(i);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !query);
    if (plain) {
      out.append(std::string_view(&c, 1), foreign);
    } else if (c == ' ' && query) {
      out.append("+", foreign);
    } else {
      out.append(fmt::format("%{:02X}", static_cast<uint8_t>(c)), foreign);
    }
  }
}

Result<Value> urlencode_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"urlencode", {}}));
  TextBuilder out = runtime.builder();
  if (input.is_string() || !is_iterable(input)) {
    append_url_quoted(*TRY(to_text(runtime, input)), false, out);
    return runtime.text(std::move(out));
  }
  std::vector<Value> pairs;
  if (input.is(Value::Kind::dict)) {
    for (const auto& [key, value] : input.dict()->entries) {
      pairs.push_back(runtime.tuple({key, value}));
    }
  } else {
    pairs = TRY(collect(runtime, input));
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<Value> pair = TRY(collect(runtime, pairs[i]));
    if (pair.size() != 2) return runtime.error("urlencode needs pairs");
    if (i > 0) out.append("&", false);
    append_url_quoted(*TRY(to_text(runtime, pair[0])), true, out);
    out.append("=", false);
    append_url_quoted(*TRY(to_text(runtime, pair[1])), true, out);
  }
  return runtime.text(std::move(out));
}

Result<Value> tojson_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(
      bind(runtime, arguments, {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}}));
  JsonStyle style;
  style.ensure_ascii = truth_argument(bound, 0, false);
  style.sort_keys = truth_argument(bound, 3, false);
  if (bound.is_set(1)) {
    if (bound[1].is_string()) {
      style.indent = bound[1].bytes();
    } else {
      const int64_t width = TRY(integer_argument(runtime, bound, 1, 0, "indent"));
      if (width > 10'000) return runtime.error("the indent is too wide");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (bound.is_set(2)) {
    const std::vector<Value> separators = TRY(collect(runtime, bound[2]));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      return runtime.error("separators must be two strings");
    }
    style.item_separator = separators[0].bytes();
    style.key_separator = separators[1].bytes();
  }
  TextBuilder out = runtime.builder();
  TRY(append_json(runtime, input, style, out));
  return runtime.text(std::move(out));
}

constexpr FilterEntry kTextFilters[] = {
    {"capitalize", capitalize_filter},
    {"center", center_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"forceescape", force_escape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"join", join_filter},
    {"lower", case_filter<Case::lower>},
    {"replace", replace_filter},
    {"safe", safe_filter},
    {"string", string_filter},
    {"title", title_filter},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"upper", case_filter<Case::upper>},
    {"urlencode", urlencode_filter},
    {"wordcount", wordcount_filter},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kTextFilters; }

}  // namespace strata::jinja
