#include "runtime/text/jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/equality.h"

namespace strata::jinja {

Result<Bound> bind(Runtime& runtime, const CallArguments& arguments, const Signature& signature) {
  const size_t count = signature.parameters.size();
  std::vector<const Value*> values(count);
  if (arguments.positional.size() > count) {
    return runtime.error(fmt::format("{}() takes at most {} argument{} ({} given)",
                                     signature.function, count, count == 1 ? "" : "s",
                                     arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* parameter =
        std::find(signature.parameters.begin(), signature.parameters.end(), name);
    if (parameter == signature.parameters.end()) {
      return runtime.error(fmt::format("{}() got an unexpected keyword argument '{}'",
                                       signature.function, printable(name)));
    }
    const auto index = static_cast<size_t>(parameter - signature.parameters.begin());
    if (values[index] != nullptr) {
      return runtime.error(fmt::format("{}() got multiple values for argument '{}'",
                                       signature.function, printable(name)));
    }
    values[index] = &value;
  }
  for (size_t i = 0; i < signature.required; ++i) {
    if (values[i] == nullptr) {
      return runtime.error(fmt::format("{}() is missing the argument '{}'", signature.function,
                                       signature.parameters.begin()[i]));
    }
  }
  return Bound(std::move(values));
}

Result<int64_t> integer_argument(Runtime& runtime, const Bound& bound, size_t index,
                                 int64_t fallback, std::string_view name) {
  if (!bound.has(index)) return fallback;
  const Value& value = bound[index];
  if (value.is_undefined()) return runtime.error(value.undefined());
  if (!value.is(Value::Kind::integer) && !value.is(Value::Kind::boolean)) {
    return runtime.error(
        fmt::format("the argument '{}' is a {}, must be an integer", name, value.type_name()));
  }
  return value.small();
}

Result<const Text*> text_argument(Runtime& runtime, const Bound& bound, size_t index,
                                  std::string_view name) {
  if (!bound.is_set(index)) return nullptr;
  const Value& value = bound[index];
  if (value.is_undefined()) return runtime.error(value.undefined());
  if (!value.is_string()) {
    return runtime.error(
        fmt::format("the argument '{}' is a {}, must be a string", name, value.type_name()));
  }
  return value.text().get();
}

Result<const Text*> required_text(Runtime& runtime, const Bound& bound, size_t index,
                                  std::string_view name) {
  const Text* text = TRY(text_argument(runtime, bound, index, name));
  if (text == nullptr) return runtime.error("must be str, not NoneType");
  return text;
}

bool truth_argument(const Bound& bound, size_t index, bool fallback) {
  return bound.has(index) ? is_truthy(bound[index]) : fallback;
}

}  // namespace strata::jinja
