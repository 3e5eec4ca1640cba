// The filters and tests of Jinja, by name.
//
// Not here, and refused by name: random (no two renderings would be alike), urlize, xmlattr,
// striptags, wordwrap, pprint.
//
// Threads: free functions, any thread.
#pragma once

#include <span>
#include <string_view>

#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

// `input` is what stands before the bar.
using FilterFunction = Result<Value> (*)(Runtime& runtime, const Value& input,
                                         CallArguments& arguments);
using TestFunction = Result<bool> (*)(Runtime& runtime, const Value& input,
                                      CallArguments& arguments);

// Null if there is none of that name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

// Errors: "No filter named 'x'." and those of the filter.
Result<Value> apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                           CallArguments& arguments);
Result<bool> apply_test(Runtime& runtime, std::string_view name, const Value& input,
                        CallArguments& arguments);

// Each file's part of the table; find_filter() looks through them in turn.
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> lazy_filters();
std::span<const FilterEntry> value_filters();

// The element that a path such as "function.name" or 0 leads to, undefined if it leads nowhere;
// `fallback`, if not null, in place of undefined ones.
Result<Value> follow_path(Runtime& runtime, const Value& value, const Value& path,
                          const Value* fallback = nullptr);

// What sorting compares: strings in lower case unless `case_sensitive`.
Result<Value> sort_key(Runtime& runtime, const Value& value, bool case_sensitive);

}  // namespace strata::jinja
