// Filters over sequences that give their result at once.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/arithmetic.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/iteration.h"
#include "runtime/text/jinja/text_operations.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

struct Keyed {
  Value key;
  Value item;
};

// Python's sorted(): stable, also when reversed.
Status sort_by_key(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  Status failure;
  const auto less = [&](const Value& a, const Value& b) {
    if (!failure.ok()) return false;
    const auto order = compare(runtime, a, b, "<");
    if (!order.ok()) {
      failure = order.status();
      return false;
    }
    return order.value() < 0;
  };
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key) : less(a.key, b.key);
  });
  return failure;
}

std::vector<Value> items_of(const std::vector<Keyed>& keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (const Keyed& entry : keyed) items.push_back(entry.item);
  return items;
}

Result<Value> length_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"length", {}}));
  const std::optional<size_t> length = length_of(input);
  if (length) return Value(static_cast<int64_t>(*length));
  return runtime.error(fmt::format("object of type '{}' has no len()", input.type_name()));
}

Result<Value> first_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"first", {}}));
  Iterator* iterator = TRY(iterate(runtime, input));
  Value item;
  if (TRY(iterator->next(runtime, item))) return item;
  return runtime.undefined("No first item, sequence was empty.");
}

Result<Value> last_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"last", {}}));
  if (input.as<Iterator>() != nullptr) {
    return runtime.error(fmt::format("'{}' object is not reversible", input.type_name()));
  }
  const std::vector<Value> items = TRY(collect(runtime, input));
  if (!items.empty()) return items.back();
  return runtime.undefined("No last item, sequence was empty.");
}

Result<Value> list_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"list", {}}));
  return Value(runtime.list(TRY(collect(runtime, input))));
}

Result<Value> reverse_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"reverse", {}}));
  if (input.is_string()) {
    TextBuilder out = runtime.builder();
    const Text& text = *input.text();
    for (size_t end = text.bytes.size(); end > 0;) {
      const size_t begin = character_before(text.bytes, end).begin;
      out.append(text, begin, end);
      end = begin;
    }
    return runtime.text(std::move(out), text.markup);
  }
  if (!is_iterable(input)) return runtime.error("argument must be iterable");
  std::vector<Value> items = TRY(collect(runtime, input));
  std::reverse(items.begin(), items.end());
  if (input.as<Iterator>() != nullptr || input.is_undefined()) {
    return Value(runtime.list(std::move(items)));
  }
  return Value(static_cast<Special*>(over(runtime, std::move(items), "list_reverseiterator")));
}

Result<Value> sort_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound =
      TRY(bind(runtime, arguments, {"sort", {"reverse", "case_sensitive", "attribute"}}));
  const bool case_sensitive = truth_argument(bound, 1, false);
  std::vector<Keyed> keyed;
  for (const Value& item : TRY(collect(runtime, input))) {
    Value key = item;
    if (bound.is_set(2) && bound[2].is_string()) {
      // Several paths, separated by commas.
      std::vector<Value> parts;
      const Value comma = TRY(runtime.text(std::string(",")));
      const Value paths = TRY(split(runtime, *bound[2].text(), comma.text().get(), -1, false));
      for (const Value& path : paths.list()->items) {
        const Value part = TRY(follow_path(runtime, item, path));
        parts.push_back(TRY(sort_key(runtime, part, case_sensitive)));
      }
      key = runtime.list(std::move(parts));
    } else {
      if (bound.is_set(2)) key = TRY(follow_path(runtime, item, bound[2]));
      key = TRY(sort_key(runtime, key, case_sensitive));
    }
    keyed.push_back({std::move(key), item});
  }
  TRY(sort_by_key(runtime, keyed, truth_argument(bound, 0, false)));
  return Value(runtime.list(items_of(keyed)));
}

Result<Value> dictsort_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound =
      TRY(bind(runtime, arguments, {"dictsort", {"case_sensitive", "by", "reverse"}}));
  const Text* by = TRY(text_argument(runtime, bound, 1, "by"));
  const std::string part = by != nullptr ? by->bytes : "key";
  if (part != "key" && part != "value") {
    return runtime.error("You can only sort by either \"key\" or \"value\"");
  }
  if (input.is_undefined()) return runtime.error(input.undefined());
  if (!input.is(Value::Kind::dict)) {
    return runtime.error(fmt::format("'{}' object has no attribute 'items'", input.type_name()));
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.dict()->entries) {
    Value by_value =
        TRY(sort_key(runtime, part == "key" ? key : value, truth_argument(bound, 0, false)));
    keyed.push_back({std::move(by_value), runtime.tuple({key, value})});
  }
  TRY(sort_by_key(runtime, keyed, truth_argument(bound, 2, false)));
  return Value(runtime.list(items_of(keyed)));
}

template <bool largest>
Result<Value> extreme_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"min", {"case_sensitive", "attribute"}}));
  const std::vector<Value> items = TRY(collect(runtime, input));
  if (items.empty()) return runtime.undefined("No aggregated item, sequence was empty.");
  Value best;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    const Value part = bound.is_set(1) ? TRY(follow_path(runtime, items[i], bound[1])) : items[i];
    const Value key = TRY(sort_key(runtime, part, truth_argument(bound, 0, false)));
    bool better = i == 0;
    if (!better) {
      const auto order = TRY(compare(runtime, key, best_key, largest ? ">" : "<"));
      better = largest ? order > 0 : order < 0;
    }
    if (better) {
      best = items[i];
      best_key = key;
    }
  }
  return best;
}

Result<Value> sum_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"sum", {"attribute", "start"}}));
  Value sum = bound.has(1) ? bound[1] : Value(int64_t{0});
  if (sum.is_string()) return runtime.error("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : TRY(collect(runtime, input))) {
    const Value part = bound.is_set(0) ? TRY(follow_path(runtime, item, bound[0])) : item;
    sum = TRY(arithmetic(runtime, Operation::add, sum, part));
  }
  return sum;
}

Result<Value> groupby_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound =
      TRY(bind(runtime, arguments, {"groupby", {"attribute", "default", "case_sensitive"}, 1}));
  const Value* fallback = bound.is_set(1) ? &bound[1] : nullptr;
  std::vector<Keyed> keyed;
  for (const Value& item : TRY(collect(runtime, input))) {
    const Value part = TRY(follow_path(runtime, item, bound[0], fallback));
    Value key = TRY(sort_key(runtime, part, truth_argument(bound, 2, false)));
    keyed.push_back({std::move(key), item});
  }
  TRY(sort_by_key(runtime, keyed, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    std::vector<Value> members;
    while (end < keyed.size() && TRY(equal(runtime, keyed[end].key, keyed[begin].key))) {
      members.push_back(keyed[end++].item);
    }
    const Value name = TRY(follow_path(runtime, keyed[begin].item, bound[0], fallback));
    Tuple* group = runtime.tuple({name, runtime.list(std::move(members))});
    group->names = {"grouper", "list"};
    groups.emplace_back(group);
    begin = end;
  }
  return Value(runtime.list(std::move(groups)));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"count", length_filter},    {"dictsort", dictsort_filter}, {"first", first_filter},
    {"groupby", groupby_filter}, {"last", last_filter},         {"length", length_filter},
    {"list", list_filter},       {"max", extreme_filter<true>}, {"min", extreme_filter<false>},
    {"reverse", reverse_filter}, {"sort", sort_filter},         {"sum", sum_filter},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kSequenceFilters; }

}  // namespace strata::jinja
