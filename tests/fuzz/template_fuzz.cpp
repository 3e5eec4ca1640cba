// Feeds any text to the template engine, and renders what compiles over a fixed conversation with
// small limits. Beyond "no crash, no hang": errors have messages, texts are UTF-8 and their marks
// are in order and inside.
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto compiled = jinja::Template::compile(source);
  if (!compiled.ok()) {
    STRATA_CHECK(!compiled.status().message().empty(), "an error without a message");
    return 0;
  }
  jinja::RenderInput input;
  input.json = {{"messages",
                 R"([{"role": "system", "content": "s"}, {"role": "user", "content": "é <b> 🙂"},
                       {"role": "assistant", "content": null, "tool_calls": [{"function":
                       {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]}])"},
                {"tools", R"([{"function": {"name": "f", "parameters": {"type": "object"}}}])"},
                {"x", "[3, 1, 2]"}};
  input.texts = {{"bos_token", "<s>"}};
  input.limits = {.steps_max = 100'000,
                  .text_bytes_max = 1 << 18,
                  .live_bytes_max = 4 << 20,
                  .depth_max = 200,
                  .seconds_max = 0.5};
  const auto text = compiled.value()->render(input);
  if (!text.ok()) {
    STRATA_CHECK(!text.status().message().empty(), "an error without a message");
    return 0;
  }
  STRATA_CHECK(is_utf8(text.value().bytes), "the text is no UTF-8");
  size_t end = 0;
  for (const jinja::ByteRange& range : text.value().foreign) {
    STRATA_CHECK(range.begin >= end && range.begin < range.end, "marks out of order");
    end = range.end;
  }
  STRATA_CHECK(end <= text.value().bytes.size(), "a mark behind the text");
  return 0;
}
