#include "runtime/text/jinja/template.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/json_text.h"
#include "runtime/text/jinja/parser.h"
#include "runtime/text/jinja/scope.h"

namespace strata::jinja {
namespace {

// Takes the mark off strings with a trusted value under the trusted key.
Status trust(Runtime& runtime, const RenderInput& input, const Value& value) {
  const DepthGuard guard(runtime);
  TRY(guard.status());
  TRY(runtime.charge());
  if (value.is(Value::Kind::list)) {
    for (const Value& item : value.list()->items) TRY(trust(runtime, input, item));
  }
  if (!value.is(Value::Kind::dict)) return ok_status();
  for (auto& [key, item] : value.dict()->entries) {
    if (key.bytes() == input.trusted_key && item.is_string() &&
        std::find(input.trusted_values.begin(), input.trusted_values.end(), item.bytes()) !=
            input.trusted_values.end()) {
      item = TRY(runtime.text(std::string(item.bytes()), false));
    }
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const Template>> Template::compile(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return resource_exhausted(fmt::format("the template has {} bytes, at most {} are allowed",
                                          source.size(), kSourceBytesMax));
  }
  if (!is_utf8(source)) return invalid_argument("the template is not UTF-8");
  Body body = TRY(parse(source));
  return std::shared_ptr<const Template>(new Template(std::string(source), std::move(body)));
}

Result<MarkedText> Template::render(const RenderInput& input) const {
  Runtime runtime(input.limits);
  auto* globals = runtime.make<Scope>();
  add_globals(runtime, *globals, input.now, input.now_microseconds);
  auto* scope = runtime.make<Scope>();
  scope->parent = globals;
  scope->is_top = true;
  for (const auto& [name, text] : input.texts) scope->set(name, TRY(runtime.text(text)));
  for (const auto& [name, json] : input.json) {
    const Value value = TRY(parse_json(runtime, json, name));
    if (!input.trusted_key.empty()) TRY(trust(runtime, input, value));
    scope->set(name, value);
  }
  TextBuilder out = runtime.builder();
  Evaluator evaluator(runtime);
  TRY(evaluator.render(body_, *scope, out));
  return out.take();
}

}  // namespace strata::jinja
