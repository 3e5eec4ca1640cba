#include "runtime/text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/text_operations.h"

namespace strata::jinja {
namespace {

constexpr std::array<std::string_view, 6> kUnsupported = {"random",    "urlize",   "xmlattr",
                                                          "striptags", "wordwrap", "pprint"};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  for (const auto part : {text_filters(), sequence_filters(), lazy_filters(), value_filters()}) {
    for (const FilterEntry& entry : part) {
      if (entry.name == name) return entry.function;
    }
  }
  return nullptr;
}

Result<Value> apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                           CallArguments& arguments) {
  TRY(runtime.charge());
  const FilterFunction filter = find_filter(name);
  if (filter != nullptr) return filter(runtime, input, arguments);
  if (std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end()) {
    return runtime.error(fmt::format("the filter '{}' is not supported", name));
  }
  return runtime.error(fmt::format("No filter named '{}'.", printable(name)));
}

Result<bool> apply_test(Runtime& runtime, std::string_view name, const Value& input,
                        CallArguments& arguments) {
  TRY(runtime.charge());
  const TestFunction test = find_test(name);
  if (test == nullptr) return runtime.error(fmt::format("No test named '{}'.", printable(name)));
  return test(runtime, input, arguments);
}

Result<Value> follow_path(Runtime& runtime, const Value& value, const Value& path,
                          const Value* fallback) {
  const auto step = [&](const Value& from, const Value& key) -> Result<Value> {
    Value next = TRY(get_item(runtime, from, key));
    return next.is_undefined() && fallback != nullptr ? *fallback : next;
  };
  if (path.is_none()) return value;
  if (!path.is_string()) return step(value, path);
  Value current = value;
  std::string_view rest = path.bytes();
  while (true) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    const bool numeric =
        !part.empty() && part.size() < 18 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const Value key =
        numeric ? Value::of(*BigInteger::parse(part)) : TRY(runtime.text(std::string(part)));
    current = TRY(step(current, key));
    if (end == rest.size()) return current;
    rest.remove_prefix(end + 1);
  }
}

Result<Value> sort_key(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return with_case(runtime, *value.text(), Case::lower);
}

}  // namespace strata::jinja
