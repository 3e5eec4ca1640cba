// Methods of dictionaries, lists, tuples and numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

template <DictView::Part part>
Result<Value> dict_view(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"dict view", {}}));
  auto* view = runtime.make<DictView>();
  view->dict = self.dict();
  view->part = part;
  return Value(static_cast<Special*>(view));
}

Result<Value> dict_get(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"get", {"key", "default"}, 1}));
  if (!hash_of(bound[0])) {
    return runtime.error(fmt::format("unhashable type: '{}'", bound[0].type_name()));
  }
  const Value* value = self.dict()->find(bound[0]);
  if (value != nullptr) return *value;
  return bound.has(1) ? bound[1] : Value();
}

Result<Value> dict_copy(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"copy", {}}));
  auto* copy = runtime.make<Dict>();
  for (const auto& [key, value] : self.dict()->entries) {
    TRY(runtime.charge());
    runtime.grow(2 * sizeof(Value));
    copy->set(key, value);
  }
  return Value(copy);
}

Result<Value> list_copy(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"copy", {}}));
  TRY(runtime.charge(self.list()->items.size()));
  return Value(runtime.list(self.list()->items));
}

Result<Value> sequence_count(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"count", {"value"}, 1}));
  int64_t count = 0;
  for (const Value& item : self.elements()) {
    if (TRY(equal(runtime, item, bound[0]))) ++count;
  }
  return Value(count);
}

Result<Value> sequence_index(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"index", {"value", "start", "stop"}, 1}));
  const auto size = static_cast<int64_t>(self.elements().size());
  const auto clamp = [size](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
  };
  const int64_t start = clamp(TRY(integer_argument(runtime, bound, 1, 0, "start")));
  const int64_t stop = clamp(TRY(integer_argument(runtime, bound, 2, size, "stop")));
  for (int64_t i = start; i < stop; ++i) {
    if (TRY(equal(runtime, self.elements()[static_cast<size_t>(i)], bound[0]))) return Value(i);
  }
  return runtime.error(
      fmt::format("{} is not in {}", short_repr(runtime, bound[0]), self.type_name()));
}

Result<Value> integer_bit_length(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"bit_length", {}}));
  return Value(static_cast<int64_t>(self.big().bits()));
}

Result<Value> real_is_integer(Runtime& runtime, const Value& self, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"is_integer", {}}));
  const double value = self.real();
  return Value(std::isfinite(value) && value == std::trunc(value));
}

struct Method {
  Kind kind;
  std::string_view name;
  MethodFunction function;
};

constexpr Method kMethods[] = {
    {Kind::dict, "items", dict_view<DictView::Part::items>},
    {Kind::dict, "keys", dict_view<DictView::Part::keys>},
    {Kind::dict, "values", dict_view<DictView::Part::values>},
    {Kind::dict, "get", dict_get},
    {Kind::dict, "copy", dict_copy},
    {Kind::list, "copy", list_copy},
    {Kind::list, "count", sequence_count},
    {Kind::list, "index", sequence_index},
    {Kind::tuple, "count", sequence_count},
    {Kind::tuple, "index", sequence_index},
    {Kind::integer, "bit_length", integer_bit_length},
    {Kind::big, "bit_length", integer_bit_length},
    {Kind::real, "is_integer", real_is_integer},
};

}  // namespace

MethodFunction find_container_method(Kind kind, std::string_view name) {
  for (const Method& method : kMethods) {
    if (method.kind == kind && method.name == name) return method.function;
  }
  return nullptr;
}

}  // namespace strata::jinja
