// The functions that every template finds.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/iteration.h"
#include "runtime/text/jinja/scope.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

// The sandbox's bound.
constexpr int64_t kRangeMax = 100'000;

Result<Value> range_function(Runtime& runtime, CallArguments& arguments) {
  if (arguments.positional.empty()) {
    return runtime.error("range expected at least 1 argument, got 0");
  }
  const Bound bound = TRY(bind(runtime, arguments, {"range", {"start", "stop", "step"}, 1}));
  auto* range = runtime.make<Range>();
  const int64_t first = TRY(integer_argument(runtime, bound, 0, 0, "start"));
  range->start = bound.has(1) ? first : 0;
  range->stop = bound.has(1) ? TRY(integer_argument(runtime, bound, 1, 0, "stop")) : first;
  range->step = TRY(integer_argument(runtime, bound, 2, 1, "step"));
  if (range->step == 0) return runtime.error("range() arg 3 must not be zero");
  __extension__ using Wide = __int128;  // distances of 64-bit integers fit
  const auto wide = [](int64_t value) { return static_cast<Wide>(value); };
  const Wide distance =
      range->step > 0 ? wide(range->stop) - range->start : wide(range->start) - range->stop;
  const Wide stride = range->step > 0 ? wide(range->step) : -wide(range->step);
  const Wide count = distance <= 0 ? 0 : 1 + (distance - 1) / stride;
  if (count > kRangeMax) {
    return runtime.error(
        fmt::format("Range too big. The sandbox blocks ranges larger than {}.", kRangeMax));
  }
  range->count = static_cast<int64_t>(count);
  return Value(static_cast<Special*>(range));
}

// dict(mapping or pairs, **named).
Result<Dict*> make_dict(Runtime& runtime, const CallArguments& arguments) {
  auto* dict = runtime.make<Dict>();
  const auto add = [&](const Value& key, const Value& value) -> Status {
    TRY(runtime.charge());
    if (!hash_of(key)) return runtime.error(fmt::format("unhashable type: '{}'", key.type_name()));
    runtime.grow(2 * sizeof(Value));
    dict->set(key, value);
    return ok_status();
  };
  if (arguments.positional.size() > 1) {
    return runtime.error(
        fmt::format("dict expected at most 1 argument, got {}", arguments.positional.size()));
  }
  for (const Value& source : arguments.positional) {
    const Dict* other = source.is(Value::Kind::dict) ? source.dict() : nullptr;
    if (const auto* names = source.as<Namespace>()) other = names->attributes;
    if (other != nullptr) {
      for (const auto& [key, value] : other->entries) TRY(add(key, value));
      continue;
    }
    for (const Value& item : TRY(collect(runtime, source))) {
      const std::vector<Value> pair = TRY(collect(runtime, item));
      if (pair.size() != 2) return runtime.error("a dict needs pairs of key and value");
      TRY(add(pair[0], pair[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    const Value key = TRY(runtime.text(std::string(name)));
    TRY(add(key, value));
  }
  return dict;
}

Result<Value> dict_function(Runtime& runtime, CallArguments& arguments) {
  return Value(TRY(make_dict(runtime, arguments)));
}

Result<Value> namespace_function(Runtime& runtime, CallArguments& arguments) {
  auto* names = runtime.make<Namespace>();
  names->attributes = TRY(make_dict(runtime, arguments));
  return Value(static_cast<Special*>(names));
}

struct Cycler final : Special {
  // What its methods do.
  struct Step final : Special {
    std::string_view type_name() const override { return "method"; }
    bool is_callable() const override { return true; }
    Result<Value> call(Runtime&, CallArguments&) override {
      if (resets) {
        cycler->at = 0;
        return Value();
      }
      Value value = cycler->items[cycler->at];
      cycler->at = (cycler->at + 1) % cycler->items.size();
      return value;
    }
    Cycler* cycler = nullptr;
    bool resets = false;
  };

  std::string_view type_name() const override { return "Cycler"; }
  Result<bool> attribute(Runtime& runtime, std::string_view name, Value& out) override {
    if (name == "current") {
      out = items[at];
      return true;
    }
    if (name != "next" && name != "reset") return false;
    auto* step = runtime.make<Step>();
    step->cycler = this;
    step->resets = name == "reset";
    out = static_cast<Special*>(step);
    return true;
  }

  std::vector<Value> items;
  size_t at = 0;
};

Result<Value> cycler_function(Runtime& runtime, CallArguments& arguments) {
  if (arguments.positional.empty()) return runtime.error("at least one item has to be provided");
  auto* cycler = runtime.make<Cycler>();
  cycler->items = arguments.positional;
  return Value(static_cast<Special*>(cycler));
}

struct Joiner final : Special {
  std::string_view type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime& runtime, CallArguments&) override {
    if (used) return separator;
    used = true;
    return runtime.text(std::string());
  }
  Value separator;
  bool used = false;
};

Result<Value> joiner_function(Runtime& runtime, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"joiner", {"sep"}}));
  auto* joiner = runtime.make<Joiner>();
  joiner->separator = bound.has(0) ? bound[0] : TRY(runtime.text(std::string(", ")));
  return Value(static_cast<Special*>(joiner));
}

Result<Value> raise_function(Runtime& runtime, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"raise_exception", {"message"}, 1}));
  return runtime.error(TRY(to_text(runtime, bound[0]))->bytes);
}

Result<Value> strftime_function(Runtime& runtime, CallArguments& arguments, const std::tm& now,
                                int64_t microseconds) {
  const Bound bound = TRY(bind(runtime, arguments, {"strftime_now", {"format"}, 1}));
  const Text* format = TRY(text_argument(runtime, bound, 0, "format"));
  if (format == nullptr) return runtime.error("strftime() argument 1 must be str, not NoneType");
  // Python writes microseconds itself, and nothing for the zone of a time without one.
  std::string directives;
  for (size_t i = 0; i < format->bytes.size(); ++i) {
    const char c = format->bytes[i];
    if (c == '\0') return runtime.error("embedded null character");
    if (c != '%' || i + 1 >= format->bytes.size()) {
      directives += c;
      continue;
    }
    const char letter = format->bytes[++i];
    if (letter == 'f') {
      directives += fmt::format("{:06}", microseconds);
    } else if (letter != 'z' && letter != 'Z') {
      directives += c;
      directives += letter;
    }
  }
  if (directives.empty()) return runtime.text(std::string());
  if (directives.size() > 1000) return runtime.error("the format of strftime_now() is too long");
  // A mark at the end tells an empty result from one that does not fit.
  directives += '|';
  char text[8192];
  const size_t length = std::strftime(text, sizeof(text), directives.c_str(), &now);
  if (length == 0) return runtime.error("the text of strftime_now() is too long");
  return runtime.text(std::string(text, length - 1), format->has_foreign());
}

}  // namespace

void add_globals(Runtime& runtime, Scope& scope, const std::tm& now, int64_t now_microseconds) {
  const auto add = [&](std::string_view name, auto function) {
    auto* value = runtime.make<FunctionValue>();
    value->name = name;
    value->function = std::move(function);
    scope.set(name, static_cast<Special*>(value));
  };
  add("range", range_function);
  add("dict", dict_function);
  add("namespace", namespace_function);
  add("cycler", cycler_function);
  add("joiner", joiner_function);
  add("raise_exception", raise_function);
  add("strftime_now", [now, now_microseconds](Runtime& run, CallArguments& arguments) {
    return strftime_function(run, arguments, now, now_microseconds);
  });
}

}  // namespace strata::jinja
