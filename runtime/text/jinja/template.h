// Template: a compiled chat template and its renderings.
//
// The language is Jinja as transformers sets it up (trim_blocks, lstrip_blocks, loop controls, an
// immutable sandbox), and texts equal jinja2's byte for byte. A rendering is bounded in steps,
// memory, depth and time (Limits), so a hostile template ends with an error.
//
// Threads: immutable; any thread, many renderings at once.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/marked_text.h"
#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

// A source of more bytes than this is refused. The longest of a known model has 30,000.
inline constexpr size_t kSourceBytesMax = size_t{1} << 20;

struct RenderInput {
  // Variables by name as JSON texts. All their strings count as foreign but those below.
  std::vector<std::pair<std::string, std::string>> json;
  // Strings of the model's own, such as bos_token: not foreign.
  std::vector<std::pair<std::string, std::string>> texts;
  // Strings that are no foreign text where they stand under this key of an object, such as the
  // known names of roles.
  std::string trusted_key;
  std::vector<std::string> trusted_values;
  // The local time of strftime_now().
  std::tm now{};
  int64_t now_microseconds = 0;
  Limits limits;
};

class Template {
 public:
  // Errors: INVALID_ARGUMENT "line L, column C: ..."; RESOURCE_EXHAUSTED for nesting or size.
  static Result<std::shared_ptr<const Template>> compile(std::string_view source);

  // The text and which parts of it came from the input.
  // Errors: INVALID_ARGUMENT "line L, column C: ..." where the template fails, or calls
  // raise_exception; RESOURCE_EXHAUSTED at a limit.
  Result<MarkedText> render(const RenderInput& input) const;

  const std::string& source() const { return source_; }

 private:
  Template(std::string source, Body body) : source_(std::move(source)), body_(std::move(body)) {}

  std::string source_;
  Body body_;
};

}  // namespace strata::jinja
