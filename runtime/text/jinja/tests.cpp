// Jinja's tests: what stands behind "is".
#include <fmt/format.h>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/arithmetic.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/iteration.h"
#include "runtime/text/jinja/unicode_text.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

// A test of the value alone.
template <bool (*test)(const Value&)>
Result<bool> plain(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"test", {}}));
  return test(input);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::boolean); }
bool is_true(const Value& v) { return v.is(Kind::boolean) && v.boolean(); }
bool is_false(const Value& v) { return v.is(Kind::boolean) && !v.boolean(); }
bool is_integer(const Value& v) { return v.is(Kind::integer) || v.is(Kind::big); }
bool is_float(const Value& v) { return v.is(Kind::real); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::dict); }
bool is_escaped(const Value& v) { return v.is_string() && v.text()->markup; }
bool is_iterable_value(const Value& v) { return is_iterable(v); }
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_sequence_object() || v.is(Kind::dict) || v.is_undefined() ||
         v.as<Range>() != nullptr;
}
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is(Kind::special) && v.special()->is_callable());
}

template <bool (*is_wanted)(char32_t)>
Result<bool> cased(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"test", {}}));
  const TextRef text = TRY(to_text(runtime, input));
  bool any = false;
  for (size_t at = 0; at < text->bytes.size();) {
    const Character c = character_at(text->bytes, at);
    if (is_cased(c.code_point)) {
      if (!is_wanted(c.code_point)) return false;
      any = true;
    }
    at += c.length;
  }
  return any;
}

Result<bool> divides(Runtime& runtime, const Value& input, const Value& divisor, int64_t rest) {
  const Value modulo = TRY(arithmetic(runtime, Operation::modulo, input, divisor));
  return equals(modulo, rest);
}

Result<bool> odd(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"odd", {}}));
  return divides(runtime, input, int64_t{2}, 1);
}

Result<bool> even(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"even", {}}));
  return divides(runtime, input, int64_t{2}, 0);
}

Result<bool> divisible_by(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"divisibleby", {"num"}, 1}));
  return divides(runtime, input, bound[0], 0);
}

template <Operation operation>
Result<bool> comparison(Runtime& runtime, const Value& input, CallArguments& arguments) {
  constexpr bool kIsIn = operation == Operation::in;
  const Bound bound =
      TRY(bind(runtime, arguments, {kIsIn ? "in" : "comparison", {kIsIn ? "seq" : "other"}, 1}));
  return holds(runtime, operation, input, bound[0]);
}

Result<bool> same_as(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"sameas", {"other"}, 1}));
  if (input.kind() != bound[0].kind()) return false;
  const void* address = input.address();
  if (address != nullptr) return address == bound[0].address();
  return equal(runtime, input, bound[0]);
}

Result<bool> filter_exists(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"filter", {}}));
  return input.is_string() && find_filter(input.bytes()) != nullptr;
}

Result<bool> test_exists(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"test", {}}));
  return input.is_string() && find_test(input.bytes()) != nullptr;
}

struct Entry {
  std::string_view name;
  TestFunction function;
};

constexpr Entry kTests[] = {
    {"!=", comparison<Operation::not_equal>},
    {"<", comparison<Operation::less>},
    {"<=", comparison<Operation::less_equal>},
    {"==", comparison<Operation::equal>},
    {">", comparison<Operation::greater>},
    {">=", comparison<Operation::greater_equal>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", comparison<Operation::equal>},
    {"equalto", comparison<Operation::equal>},
    {"escaped", plain<is_escaped>},
    {"even", even},
    {"false", plain<is_false>},
    {"filter", filter_exists},
    {"float", plain<is_float>},
    {"ge", comparison<Operation::greater_equal>},
    {"greaterthan", comparison<Operation::greater>},
    {"gt", comparison<Operation::greater>},
    {"in", comparison<Operation::in>},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable_value>},
    {"le", comparison<Operation::less_equal>},
    {"lessthan", comparison<Operation::less>},
    {"lower", cased<is_lower>},
    {"lt", comparison<Operation::less>},
    {"mapping", plain<is_mapping>},
    {"ne", comparison<Operation::not_equal>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", odd},
    {"sameas", same_as},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", test_exists},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", cased<is_upper>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace strata::jinja
