// Python's way of giving arguments to parameters, for filters, tests, methods and functions.
//
// Threads: free functions, any thread.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

// What a filter or method takes: parameters by name, of which the first `required` have no default.
struct Signature {
  std::string_view function;
  std::initializer_list<std::string_view> parameters;
  size_t required = 0;
};

// The arguments by parameter; what was left out is absent.
class Bound {
 public:
  explicit Bound(std::vector<const Value*> values) : values_(std::move(values)) {}

  // Null if it was not given.
  const Value* get(size_t index) const { return values_[index]; }
  bool has(size_t index) const { return values_[index] != nullptr; }
  // Given, and not None.
  bool is_set(size_t index) const { return has(index) && !values_[index]->is_none(); }
  const Value& operator[](size_t index) const { return *values_[index]; }

 private:
  std::vector<const Value*> values_;
};

// Errors: as Python's TypeError for a missing, unknown, doubled or extra argument.
// The result points into `arguments`.
Result<Bound> bind(Runtime& runtime, const CallArguments& arguments, const Signature& signature);

// The argument as an integer of 64 bits, or `fallback` if it was not given.
// Errors: for other types, and integers beyond 64 bits.
Result<int64_t> integer_argument(Runtime& runtime, const Bound& bound, size_t index,
                                 int64_t fallback, std::string_view name);
// The argument as a string; null if it was not given or is None.
Result<const Text*> text_argument(Runtime& runtime, const Bound& bound, size_t index,
                                  std::string_view name);
// The same, and an error where there is none.
Result<const Text*> required_text(Runtime& runtime, const Bound& bound, size_t index,
                                  std::string_view name);
bool truth_argument(const Bound& bound, size_t index, bool fallback);

}  // namespace strata::jinja
