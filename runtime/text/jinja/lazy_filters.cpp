// Filters that give a generator: nothing happens until its elements are asked for, it can be walked
// through once, has no length and is always true, as in Python.
#include <fmt/format.h>

#include <memory>
#include <unordered_map>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/iteration.h"

namespace strata::jinja {
namespace {

Value generator(Runtime& runtime, NextFunction next) {
  return static_cast<Special*>(lazy(runtime, std::move(next)));
}

// The source of a lazy filter, opened at the first element.
class Source {
 public:
  explicit Source(Value value) : value_(std::move(value)) {}
  Result<bool> next(Runtime& runtime, Value& out) {
    if (iterator_ == nullptr) iterator_ = TRY(iterate(runtime, value_));
    return iterator_->next(runtime, out);
  }
  const Value& value() const { return value_; }
  // What is false, such as none, has no elements, as jinja2's map, select and reject have it.
  static Source of_truthy(const Value& value) {
    return Source(is_truthy(value) ? value : Value(Undefined{}));
  }

 private:
  Value value_;
  Iterator* iterator_ = nullptr;
};

// Filters and tests that filters call: one level deeper.
template <typename Function>
auto nested(Runtime& runtime, Function function) -> decltype(function()) {
  const DepthGuard guard(runtime);
  TRY(guard.status());
  return function();
}

Result<std::string> name_of(Runtime& runtime, const Value& name, std::string_view what) {
  if (name.is_string()) return name.bytes();
  return runtime.error(fmt::format("the name of a {} must be a string", what));
}

Result<Value> map_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  struct State {
    Source source;
    CallArguments arguments;
    std::string filter;
    Value path;
    std::optional<Value> fallback;
    bool by_path = false;
  };
  auto state =
      std::make_shared<State>(State{Source::of_truthy(input), arguments, {}, {}, {}, false});
  if (arguments.positional.empty()) {
    const Bound bound = TRY(bind(runtime, arguments, {"map", {"attribute", "default"}, 0}));
    if (!bound.has(0)) return runtime.error("map requires a filter argument");
    state->by_path = true;
    state->path = bound[0];
    if (bound.is_set(1)) state->fallback = bound[1];
  } else {
    state->filter = TRY(name_of(runtime, arguments.positional[0], "filter"));
    state->arguments.positional.erase(state->arguments.positional.begin());
  }
  return generator(runtime, [state](Runtime& run, Value& out) -> Result<bool> {
    Value item;
    const bool more =
        TRY(nested(run, [&]() -> Result<bool> { return state->source.next(run, item); }));
    if (!more) return false;
    out = TRY(nested(run, [&]() -> Result<Value> {
      if (state->by_path) {
        return follow_path(run, item, state->path, state->fallback ? &*state->fallback : nullptr);
      }
      CallArguments copy = state->arguments;
      return apply_filter(run, state->filter, item, copy);
    }));
    return true;
  });
}

template <bool wanted, bool by_attribute>
Result<Value> select_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  struct State {
    Source source;
    CallArguments arguments;
    Value path;
    std::string test;  // empty: truth
  };
  auto state = std::make_shared<State>(State{Source::of_truthy(input), arguments, {}, {}});
  std::vector<Value>& rest = state->arguments.positional;
  if (by_attribute) {
    if (rest.empty()) return runtime.error("Missing parameter for attribute name");
    state->path = rest[0];
    rest.erase(rest.begin());
  }
  if (!rest.empty()) {
    state->test = TRY(name_of(runtime, rest[0], "test"));
    rest.erase(rest.begin());
  }
  return generator(runtime, [state](Runtime& run, Value& out) -> Result<bool> {
    return nested(run, [&]() -> Result<bool> {
      Value item;
      while (TRY(state->source.next(run, item))) {
        const Value part = by_attribute ? TRY(follow_path(run, item, state->path)) : item;
        bool passes = false;
        if (state->test.empty()) {
          passes = is_truthy(part);
        } else {
          CallArguments copy = state->arguments;
          passes = TRY(apply_test(run, state->test, part, copy));
        }
        if (passes == wanted) {
          out = item;
          return true;
        }
      }
      return false;
    });
  });
}

Result<Value> unique_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"unique", {"case_sensitive", "attribute"}}));
  struct State {
    Source source;
    bool case_sensitive;
    Value path;
    Dict* seen;
  };
  auto state =
      std::make_shared<State>(State{Source(input), truth_argument(bound, 0, false),
                                    bound.has(1) ? bound[1] : Value(), runtime.make<Dict>()});
  return generator(runtime, [state](Runtime& run, Value& out) -> Result<bool> {
    Value item;
    while (TRY(nested(run, [&]() -> Result<bool> { return state->source.next(run, item); }))) {
      const Value part = TRY(follow_path(run, item, state->path));
      const Value key = TRY(sort_key(run, part, state->case_sensitive));
      if (!hash_of(key)) return run.error(fmt::format("unhashable type: '{}'", key.type_name()));
      if (state->seen->find(key) != nullptr) continue;
      run.grow(2 * sizeof(Value));
      state->seen->set(key, Value());
      out = item;
      return true;
    }
    return false;
  });
}

Result<Value> batch_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"batch", {"linecount", "fill_with"}, 1}));
  const int64_t size = TRY(integer_argument(runtime, bound, 0, 0, "linecount"));
  const Value fill = bound.has(1) ? bound[1] : Value();
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : TRY(collect(runtime, input))) {
    if (static_cast<int64_t>(batch.size()) == size) {
      batches.emplace_back(runtime.list(std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    while (!fill.is_none() && static_cast<int64_t>(batch.size()) < size) {
      TRY(runtime.charge());
      runtime.grow(sizeof(Value));
      batch.push_back(fill);
    }
    batches.emplace_back(runtime.list(std::move(batch)));
  }
  return Value(static_cast<Special*>(over(runtime, std::move(batches), "generator")));
}

Result<Value> slice_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"slice", {"slices", "fill_with"}, 1}));
  const int64_t slices = TRY(integer_argument(runtime, bound, 0, 0, "slices"));
  const Value fill = bound.has(1) ? bound[1] : Value();
  const std::vector<Value> items = TRY(collect(runtime, input));
  if (slices == 0) return runtime.error("integer division or modulo by zero");
  const auto count = static_cast<int64_t>(items.size());
  std::vector<Value> parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    TRY(runtime.charge());
    const bool extra = i < count % slices;
    const int64_t end = begin + count / slices + (extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (!fill.is_none() && !extra) part.push_back(fill);
    parts.emplace_back(runtime.list(std::move(part)));
    begin = end;
  }
  return Value(static_cast<Special*>(over(runtime, std::move(parts), "generator")));
}

Result<Value> items_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"items", {}}));
  return generator(runtime,
                   [source = std::make_shared<Source>(input), at = size_t{0}](
                       Runtime& run, Value& out) mutable -> Result<bool> {
                     const Value& value = source->value();
                     if (value.is_undefined()) return false;
                     if (!value.is(Value::Kind::dict))
                       return run.error("Can only get item pairs from a mapping.");
                     if (at >= value.dict()->entries.size()) return false;
                     const auto& [key, item] = value.dict()->entries[at++];
                     out = run.tuple({key, item});
                     return true;
                   });
}

constexpr FilterEntry kLazyFilters[] = {
    {"batch", batch_filter},
    {"items", items_filter},
    {"map", map_filter},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<false, true>},
    {"select", select_filter<true, false>},
    {"selectattr", select_filter<true, true>},
    {"slice", slice_filter},
    {"unique", unique_filter},
};

}  // namespace

std::span<const FilterEntry> lazy_filters() { return kLazyFilters; }

}  // namespace strata::jinja
