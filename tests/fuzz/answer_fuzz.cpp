// Feeds any text to the parser of answers, as each family's. The first byte chooses the family and
// the second how the text is cut. Beyond "no crash": a text cut differently gives the same
// reasoning, content and calls, and arguments are JSON or a beginning of it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/text/answer/json_scanner.h"
#include "tests/support/parsed_answer.h"

namespace {

using namespace strata;

constexpr std::array<std::string_view, 7> kSources = {"",
                                                      "<|python_tag|>",
                                                      "<tool_call><think></think>",
                                                      "<tool_call><function=<think></think>",
                                                      "[TOOL_CALLS]",
                                                      "<｜tool▁calls▁begin｜>",
                                                      "<|channel|><|message|>"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const ToolFormat format = tool_format_of(kSources[data[0] % kSources.size()], true);
  AnswerOptions options;
  options.parse_calls = data[1] % 8 != 0;
  options.tool_names = {"f", "g"};
  options.parsed_parameters = {"f.n"};
  options.starts_in_reasoning = data[1] % 3 == 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const test::ParsedAnswer whole = test::parse_answer(format, options, text);
  STRATA_CHECK(test::parse_answer(format, options, text, 1 + data[1] % 7) == whole,
               "a cut changes the answer");
  for (const auto& [name, arguments] : whole.calls) {
    JsonScanner scanner;
    for (const char byte : arguments) {
      const JsonScanner::Step step = scanner.feed(byte);
      STRATA_CHECK(step == JsonScanner::Step::more || step == JsonScanner::Step::done,
                   "arguments are no beginning of JSON");
    }
  }
  return 0;
}
