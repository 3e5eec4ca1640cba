#include "runtime/text/jinja/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/unicode_text.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

struct BoundMethod final : Special {
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string repr() const override {
    return fmt::format("<built-in method {} of {} object>", name, self.type_name());
  }
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime& runtime, CallArguments& arguments) override {
    return function(runtime, self, arguments);
  }

  Value self;
  std::string name;
  MethodFunction function = nullptr;
};

// Methods that change their object.
bool changes_object(Kind kind, std::string_view name) {
  constexpr std::array<std::string_view, 8> kList = {"append", "clear",  "extend",  "insert",
                                                     "pop",    "remove", "reverse", "sort"};
  constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault",
                                                     "update"};
  if (kind == Kind::list) return std::find(kList.begin(), kList.end(), name) != kList.end();
  return kind == Kind::dict && std::find(kDict.begin(), kDict.end(), name) != kDict.end();
}

Value missing(Runtime& runtime, const Value& object, std::string_view name) {
  const std::string type = object.is_none() ? "None" : fmt::format("{} object", object.type_name());
  return runtime.undefined(fmt::format("'{}' has no attribute '{}'", type, printable(name)));
}

// Sets `out` and returns true if the object has such an attribute.
Result<bool> find_attribute(Runtime& runtime, const Value& object, std::string_view name,
                            Value& out) {
  if (object.is(Kind::special)) return object.special()->attribute(runtime, name, out);
  if (changes_object(object.kind(), name)) {
    out =
        runtime.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe: "
                                      "templates cannot change lists and dictionaries",
                                      name, object.type_name()));
    return true;
  }
  if (object.is(Kind::tuple)) {
    const std::vector<std::string_view>& names = object.tuple()->names;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) {
      out = object.tuple()->items[static_cast<size_t>(found - names.begin())];
      return true;
    }
  }
  const MethodFunction method =
      object.is_string() ? find_string_method(name) : find_container_method(object.kind(), name);
  if (method == nullptr) return false;
  out = bound_method(runtime, object, name, method);
  return true;
}

// Sets `out` and returns true if there is such an element.
Result<bool> find_item(Runtime& runtime, const Value& object, const Value& key, Value& out) {
  if (object.is(Kind::special)) return object.special()->item(runtime, key, out);
  if (object.is(Kind::dict)) {
    const Value* value = object.dict()->find(key);
    if (value != nullptr) out = *value;
    return value != nullptr;
  }
  if (!object.is_string() && !object.is_sequence_object()) return false;
  if (!key.is(Kind::integer) && !key.is(Kind::boolean)) return false;
  const auto length = static_cast<int64_t>(*length_of(object));
  const int64_t index = key.small() < 0 ? key.small() + length : key.small();
  if (index < 0 || index >= length) return false;
  const auto at = static_cast<size_t>(index);
  if (object.is_sequence_object()) {
    out = object.elements()[at];
    return true;
  }
  const Text& text = *object.text();
  if (!text.is_ascii()) TRY(runtime.charge_bytes(text.bytes.size()));
  const size_t begin = offset_of(text, at);
  out = TRY(runtime.slice(text, begin, begin + character_at(text.bytes, begin).length));
  return true;
}

// A slice's number as Python clamps it; `fallback` for None.
Result<int64_t> slice_index(Runtime& runtime, const Value& value, int64_t fallback) {
  if (value.is_none()) return fallback;
  if (value.is_undefined()) return runtime.error(value.undefined());
  if (!value.is_integer()) {
    return runtime.error("slice indices must be integers or None or have an __index__ method");
  }
  if (value.is(Kind::big)) return value.big().is_negative() ? INT64_MIN + 1 : INT64_MAX;
  return std::max(value.small(), INT64_MIN + 1);
}

// Where a slice begins, how far apart its elements are, and how many there are.
struct SlicePlan {
  int64_t start;
  int64_t step;
  int64_t count;
};

Result<SlicePlan> plan_slice(Runtime& runtime, const Value& begin, const Value& end,
                             const Value& step_value, int64_t length) {
  const int64_t step = TRY(slice_index(runtime, step_value, 1));
  if (step == 0) return runtime.error("slice step cannot be zero");
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? length : length - 1;
  const auto clamp = [&](int64_t index) {
    if (index < 0) index += length;
    return std::clamp(index, lowest, highest);
  };
  const int64_t first = TRY(slice_index(runtime, begin, 0));
  const int64_t last = TRY(slice_index(runtime, end, 0));
  const int64_t start = begin.is_none() ? (step > 0 ? lowest : highest) : clamp(first);
  const int64_t stop = end.is_none() ? (step > 0 ? highest : lowest) : clamp(last);
  const int64_t distance = step > 0 ? stop - start : start - stop;
  const int64_t stride = step > 0 ? step : -step;
  return SlicePlan{start, step, distance <= 0 ? 0 : 1 + (distance - 1) / stride};
}

Result<Value> slice_text(Runtime& runtime, const Text& text, const SlicePlan& plan) {
  if (plan.count == 0) return runtime.slice(text, 0, 0);
  TRY(runtime.charge_bytes(text.bytes.size()));
  if (plan.step == 1) {
    const size_t begin = offset_of(text, static_cast<size_t>(plan.start));
    return runtime.slice(text, begin,
                         offset_of(text, static_cast<size_t>(plan.start + plan.count)));
  }
  std::vector<size_t> offsets;
  if (!text.is_ascii()) {
    for (size_t at = 0; at < text.bytes.size(); at += character_at(text.bytes, at).length) {
      offsets.push_back(at);
    }
    if (offsets.size() < text.length) return runtime.error("the string is no UTF-8");
  }
  TextBuilder out = runtime.builder();
  TRY(runtime.charge(static_cast<uint64_t>(plan.count)));
  for (int64_t i = 0; i < plan.count; ++i) {
    auto at = static_cast<size_t>(plan.start + i * plan.step);
    if (!text.is_ascii()) at = offsets[at];
    out.append(text, at, at + character_at(text.bytes, at).length);
  }
  return runtime.text(std::move(out), text.markup);
}

}  // namespace

Value bound_method(Runtime& runtime, const Value& self, std::string_view name,
                   MethodFunction function) {
  auto* method = runtime.make<BoundMethod>();
  method->self = self;
  method->name = std::string(name);
  method->function = function;
  return static_cast<Special*>(method);
}

Result<Value> get_attribute_only(Runtime& runtime, const Value& object, std::string_view name) {
  Value value;
  if (TRY(find_attribute(runtime, object, name, value))) return value;
  return missing(runtime, object, name);
}

Result<Value> get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is_undefined()) return runtime.error(object.undefined());
  Value value;
  if (TRY(find_attribute(runtime, object, name, value))) return value;
  if (object.is(Kind::dict)) {
    const Value* found = object.dict()->find(name);
    if (found != nullptr) return *found;
  }
  return missing(runtime, object, name);
}

Result<Value> get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return runtime.error(object.undefined());
  Value value;
  if (TRY(find_item(runtime, object, key, value))) return value;
  if (!key.is_string()) {
    return runtime.undefined(
        fmt::format("{} object has no element {}", object.type_name(), short_repr(runtime, key)));
  }
  if (TRY(find_attribute(runtime, object, key.bytes(), value))) return value;
  return missing(runtime, object, key.bytes());
}

Result<Value> get_slice(Runtime& runtime, const Value& object, const Value& begin, const Value& end,
                        const Value& step) {
  if (object.is_undefined()) return runtime.error(object.undefined());
  const bool is_range = object.as<Range>() != nullptr;
  if (!object.is_string() && !object.is_sequence_object() && !is_range) {
    return runtime.undefined(fmt::format("{} object has no element slice", object.type_name()));
  }
  const auto length = static_cast<int64_t>(*length_of(object));
  const SlicePlan plan = TRY(plan_slice(runtime, begin, end, step, length));
  if (object.is_string()) return slice_text(runtime, *object.text(), plan);
  if (const Range* range = object.as<Range>()) {
    auto* part = runtime.make<Range>();
    part->start = range->at(plan.start);
    part->step = range->step * plan.step;
    part->count = plan.count;
    part->stop = part->at(plan.count);
    return Value(static_cast<Special*>(part));
  }
  TRY(runtime.charge(static_cast<uint64_t>(plan.count)));
  std::vector<Value> items;
  for (int64_t i = 0; i < plan.count; ++i) {
    items.push_back(object.elements()[static_cast<size_t>(plan.start + i * plan.step)]);
  }
  if (object.is(Kind::list)) return Value(runtime.list(std::move(items)));
  return Value(runtime.tuple(std::move(items)));
}

}  // namespace strata::jinja
