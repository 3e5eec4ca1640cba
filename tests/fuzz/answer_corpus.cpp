#include "tests/fuzz/corpus.h"

namespace strata::fuzz {

std::vector<std::string> corpus() {
  const std::vector<std::pair<char, std::string>> answers = {
      {0,
       R"([{"name": "f", "arguments": "{\"a\": 1}"}, {"function": {"name": "g", "arguments": {}}}])"},
      {0, R"({"name": "g", "arguments": {"x": [1, -2.5e3, "\u00e9\n", true, null]}} and more)"},
      {1, R"(<|python_tag|>{"name": "f", "parameters": {"q": "a"}})"},
      {2,
       "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": {}}}\n"
       "</tool_call>\n<tool_call>\n{\"arguments\": {}, \"name\": \"g\"}\n</tool_call>"},
      {3,
       "<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n<parameter=q>\nx\n"
       "</parameter>\n</function>\n</tool_call>"},
      {4, R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}])"},
      {4, R"([TOOL_CALLS]f[CALL_ID]x[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{})"},
      {5,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n"
       "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {6,
       "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>"},
      {6, "<|channel|>final<|message|>Hi<|return|>"},
  };
  std::vector<std::string> inputs;
  for (const auto& [family, text] : answers) {
    inputs.push_back(std::string(1, family) + "\1" + text);
    inputs.push_back(std::string(1, family) + "\3" + text);
  }
  return inputs;
}

}  // namespace strata::fuzz
