// The methods of strings, by Python's names.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/iteration.h"
#include "runtime/text/jinja/python_format.h"
#include "runtime/text/jinja/text_operations.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

template <Case wanted>
Result<Value> change_case(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"case method", {}}));
  return with_case(runtime, *self.text(), wanted);
}

Result<Value> capitalize_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"capitalize", {}}));
  return capitalize(runtime, *self.text());
}

Result<Value> title_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"title", {}}));
  return title(runtime, *self.text());
}

template <bool left, bool right>
Result<Value> strip_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"strip", {"chars"}}));
  const Text* characters = TRY(text_argument(runtime, bound, 0, "chars"));
  return strip(runtime, *self.text(), characters, left, right);
}

template <bool from_right>
Result<Value> split_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"split", {"sep", "maxsplit"}}));
  const Text* separator = TRY(text_argument(runtime, bound, 0, "sep"));
  const int64_t most = TRY(integer_argument(runtime, bound, 1, -1, "maxsplit"));
  return split(runtime, *self.text(), separator, most, from_right);
}

Result<Value> splitlines(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"splitlines", {"keepends"}}));
  const bool keep = truth_argument(bound, 0, false);
  std::vector<Value> lines;
  for (const Line& line : lines_of(self.bytes())) {
    lines.push_back(TRY(runtime.slice(*self.text(), line.begin, keep ? line.next : line.end)));
  }
  return Value(runtime.list(std::move(lines)));
}

template <bool last>
Result<Value> partition(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"partition", {"sep"}, 1}));
  const Text* separator = TRY(required_text(runtime, bound, 0, "sep"));
  if (separator->bytes.empty()) return runtime.error("empty separator");
  const Text& text = *self.text();
  const size_t size = text.bytes.size();
  if (last) TRY(charge_backward_search(runtime, text, *separator));
  const std::optional<size_t> found = find_text(text, *separator, 0, size, last);
  const Value nothing = TRY(runtime.slice(text, 0, 0));
  if (!found) {
    return Value(last ? runtime.tuple({nothing, nothing, self})
                      : runtime.tuple({self, nothing, nothing}));
  }
  const size_t behind = *found + separator->bytes.size();
  const Value before = TRY(runtime.slice(text, 0, *found));
  const Value middle = TRY(runtime.slice(text, *found, behind));
  const Value after = TRY(runtime.slice(text, behind, size));
  return Value(runtime.tuple({before, middle, after}));
}

Result<Value> replace_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"replace", {"old", "new", "count"}, 2}));
  const Text* old_text = TRY(text_argument(runtime, bound, 0, "old"));
  const Text* new_text = TRY(text_argument(runtime, bound, 1, "new"));
  const int64_t count = TRY(integer_argument(runtime, bound, 2, -1, "count"));
  if (old_text == nullptr || new_text == nullptr) {
    return runtime.error("replace() argument must be str, not NoneType");
  }
  return replace(runtime, *self.text(), *old_text, *new_text, count);
}

// The bytes that [start, end) in characters of a search method mean; false if start is behind the
// end of the text.
Result<bool> window(Runtime& runtime, const Text& text, const Bound& bound, size_t& begin,
                    size_t& end) {
  const auto length = static_cast<int64_t>(text.length);
  const int64_t start = bound.is_set(1) ? TRY(integer_argument(runtime, bound, 1, 0, "start")) : 0;
  const int64_t stop =
      bound.is_set(2) ? TRY(integer_argument(runtime, bound, 2, length, "end")) : length;
  const auto clamp = [length](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + length : index, 0, length);
  };
  begin = offset_of(text, static_cast<size_t>(clamp(start)));
  end = offset_of(text, static_cast<size_t>(clamp(stop)));
  return start <= length && begin <= end;
}

// What find() and count() look for, and where.
struct Search {
  const Text* wanted = nullptr;
  size_t begin = 0;  // bytes
  size_t end = 0;
  bool is_inside = false;  // there is such a place
};

Result<Search> search_of(Runtime& runtime, const Text& text, CallArguments& arguments,
                         std::string_view name, bool backward) {
  const Bound bound = TRY(bind(runtime, arguments, {name, {"sub", "start", "end"}, 1}));
  Search search;
  search.wanted = TRY(required_text(runtime, bound, 0, "sub"));
  TRY(runtime.charge_bytes(text.bytes.size()));
  if (backward) TRY(charge_backward_search(runtime, text, *search.wanted));
  search.is_inside = TRY(window(runtime, text, bound, search.begin, search.end));
  return search;
}

enum class NotFound : uint8_t { minus_one, error };

template <bool last, NotFound otherwise>
Result<Value> find_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Text& text = *self.text();
  const Search search = TRY(search_of(runtime, text, arguments, "find", last));
  if (search.is_inside) {
    const std::optional<size_t> found =
        find_text(text, *search.wanted, search.begin, search.end, last);
    if (found) {
      return Value(
          static_cast<int64_t>(count_code_points(std::string_view(text.bytes).substr(0, *found))));
    }
  }
  if (otherwise == NotFound::error) return runtime.error("substring not found");
  return Value(int64_t{-1});
}

Result<Value> count_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Text& text = *self.text();
  Search search = TRY(search_of(runtime, text, arguments, "count", false));
  if (!search.is_inside) return Value(int64_t{0});
  if (search.wanted->bytes.empty()) {
    return Value(static_cast<int64_t>(
        count_code_points(
            std::string_view(text.bytes).substr(search.begin, search.end - search.begin)) +
        1));
  }
  int64_t count = 0;
  while (const auto found = find_text(text, *search.wanted, search.begin, search.end, false)) {
    ++count;
    search.begin = *found + search.wanted->bytes.size();
  }
  return Value(count);
}

template <bool at_start>
Result<Value> starts_or_ends(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::string_view name = at_start ? "startswith" : "endswith";
  const Bound bound = TRY(bind(runtime, arguments, {name, {"prefix", "start", "end"}, 1}));
  size_t begin = 0;
  size_t end = 0;
  const bool inside = TRY(window(runtime, *self.text(), bound, begin, end));
  const std::string_view part =
      inside ? std::string_view(self.bytes()).substr(begin, end - begin) : std::string_view();
  const auto matches = [&](const Value& fix) {
    return inside && (at_start ? part.starts_with(fix.bytes()) : part.ends_with(fix.bytes()));
  };
  const Value& wanted = bound[0];
  if (wanted.is_undefined()) return runtime.error(wanted.undefined());
  if (wanted.is_string()) return Value(matches(wanted));
  if (!wanted.is(Value::Kind::tuple)) {
    return runtime.error(fmt::format("{} first arg must be str or a tuple of str, not {}", name,
                                     wanted.type_name()));
  }
  for (const Value& fix : wanted.tuple()->items) {
    if (!fix.is_string()) return runtime.error("a tuple of prefixes must hold strings only");
    if (matches(fix)) return Value(true);
  }
  return Value(false);
}

template <bool at_start>
Result<Value> remove_fix(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"removeprefix", {"prefix"}, 1}));
  const Text* fix = TRY(required_text(runtime, bound, 0, "prefix"));
  const Text& text = *self.text();
  const bool found =
      at_start ? text.bytes.starts_with(fix->bytes) : text.bytes.ends_with(fix->bytes);
  const size_t length = found ? fix->bytes.size() : 0;
  return at_start ? runtime.slice(text, length, text.bytes.size())
                  : runtime.slice(text, 0, text.bytes.size() - length);
}

template <Side side>
Result<Value> pad_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"justify", {"width", "fillchar"}, 1}));
  const int64_t width = TRY(integer_argument(runtime, bound, 0, 0, "width"));
  const Text* fill = TRY(text_argument(runtime, bound, 1, "fillchar"));
  if (fill != nullptr && fill->length != 1) {
    return runtime.error("The fill character must be exactly one character long");
  }
  return pad(runtime, *self.text(), width, fill != nullptr ? fill->bytes : " ", side);
}

Result<Value> zfill(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"zfill", {"width"}, 1}));
  const int64_t width = TRY(integer_argument(runtime, bound, 0, 0, "width"));
  const Text& text = *self.text();
  const size_t sign = text.bytes.starts_with('+') || text.bytes.starts_with('-') ? 1 : 0;
  const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(text.length), 0);
  TextBuilder out = runtime.builder();
  out.append(text, 0, sign);
  out.append_repeated("0", static_cast<size_t>(missing));
  out.append(text, sign, text.bytes.size());
  return runtime.text(std::move(out), text.markup);
}

Result<Value> expandtabs(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"expandtabs", {"tabsize"}}));
  const auto tab = static_cast<size_t>(
      std::max<int64_t>(TRY(integer_argument(runtime, bound, 0, 8, "tabsize")), 0));
  const Text& text = *self.text();
  TextBuilder out = runtime.builder();
  size_t column = 0;
  for (size_t at = 0; at < text.bytes.size() && !out.overflowed();) {
    const Character c = character_at(text.bytes, at);
    if (c.code_point == '\t') {
      const size_t spaces = tab == 0 ? 0 : tab - column % tab;
      out.append_repeated(" ", spaces);
      column += spaces;
    } else {
      out.append(text, at, at + c.length);
      column = c.code_point == '\n' || c.code_point == '\r' ? 0 : column + 1;
    }
    at += c.length;
  }
  return runtime.text(std::move(out), text.markup);
}

Result<Value> join_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"join", {"iterable"}, 1}));
  const std::vector<Value> items = TRY(collect(runtime, bound[0]));
  std::vector<TextRef> parts;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return runtime.error(fmt::format("sequence item {}: expected str instance, {} found", i,
                                       items[i].type_name()));
    }
    parts.push_back(items[i].text());
  }
  return join(runtime, *self.text(), parts);
}

Result<Value> format_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  return format_braces(runtime, *self.text(), arguments);
}

Result<Value> format_map(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"format_map", {"mapping"}, 1}));
  if (!bound[0].is(Value::Kind::dict)) return runtime.error("format_map() needs a dict");
  CallArguments named;
  for (const auto& [key, value] : bound[0].dict()->entries) {
    if (key.is_string()) named.named.emplace_back(key.bytes(), value);
  }
  return format_braces(runtime, *self.text(), named);
}

// All characters are of the class, and there is one.
template <bool (*is_class)(char32_t)>
Result<Value> all_are(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"class method", {}}));
  const std::string& bytes = self.bytes();
  TRY(runtime.charge_bytes(bytes.size()));
  for (size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    if (!is_class(c.code_point)) return Value(false);
    at += c.length;
  }
  return Value(!bytes.empty());
}

template <bool (*is_wanted)(char32_t)>
Result<Value> all_cased_are(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"case test", {}}));
  const std::string& bytes = self.bytes();
  TRY(runtime.charge_bytes(bytes.size()));
  bool any = false;
  for (size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    if (is_cased(c.code_point)) {
      if (!is_wanted(c.code_point)) return Value(false);
      any = true;
    }
    at += c.length;
  }
  return Value(any);
}

Result<Value> is_ascii_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"isascii", {}}));
  return Value(std::all_of(self.bytes().begin(), self.bytes().end(),
                           [](char c) { return static_cast<uint8_t>(c) < 0x80; }));
}

Result<Value> is_title_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"istitle", {}}));
  bool any = false;
  bool in_word = false;
  for (size_t at = 0; at < self.bytes().size();) {
    const Character c = character_at(self.bytes(), at);
    at += c.length;
    if (is_upper(c.code_point) || is_title(c.code_point)) {
      if (in_word) return Value(false);
      any = in_word = true;
    } else if (is_lower(c.code_point)) {
      if (!in_word) return Value(false);
    } else {
      in_word = false;
    }
  }
  return Value(any);
}

Result<Value> is_printable_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (self.bytes().empty()) return Value(true);
  return all_are<is_printable>(runtime, self, arguments);
}

Result<Value> is_identifier(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (self.bytes().empty() || is_numeric(character_at(self.bytes(), 0).code_point))
    return Value(false);
  return all_are<is_word>(runtime, self, arguments);
}

struct Method {
  std::string_view name;
  MethodFunction function;
};

constexpr Method kMethods[] = {
    {"capitalize", capitalize_method},
    {"casefold", change_case<Case::fold>},
    {"center", pad_method<Side::both>},
    {"count", count_method},
    {"endswith", starts_or_ends<false>},
    {"expandtabs", expandtabs},
    {"find", find_method<false, NotFound::minus_one>},
    {"format", format_method},
    {"format_map", format_map},
    {"index", find_method<false, NotFound::error>},
    {"isalnum", all_are<is_alnum>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", is_ascii_method},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isidentifier", is_identifier},
    {"islower", all_cased_are<is_lower>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", is_printable_method},
    {"isspace", all_are<is_space>},
    {"istitle", is_title_method},
    {"isupper", all_cased_are<is_upper>},
    {"join", join_method},
    {"ljust", pad_method<Side::right>},
    {"lower", change_case<Case::lower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_fix<true>},
    {"removesuffix", remove_fix<false>},
    {"replace", replace_method},
    {"rfind", find_method<true, NotFound::minus_one>},
    {"rindex", find_method<true, NotFound::error>},
    {"rjust", pad_method<Side::left>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines},
    {"startswith", starts_or_ends<true>},
    {"strip", strip_method<true, true>},
    {"swapcase", change_case<Case::swap>},
    {"title", title_method},
    {"upper", change_case<Case::upper>},
    {"zfill", zfill},
};

}  // namespace

MethodFunction find_string_method(std::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return method.function;
  }
  return nullptr;
}

}  // namespace strata::jinja
