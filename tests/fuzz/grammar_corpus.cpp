#include "tests/fuzz/corpus.h"

namespace strata::fuzz {

std::vector<std::string> corpus() {
  std::vector<std::string> inputs;
  const auto add = [&inputs](char kind, std::string text, const std::string& document) {
    inputs.push_back(kind + std::move(text) + '\0' + document);
  };
  add('\0',
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":-5,"maximum":120},)"
      R"("b":{"type":"string","pattern":"^[a-z]+$","maxLength":5}},"required":["a"]})",
      R"({"a":12,"b":"xyz","c":[]})");
  add('\0',
      R"({"anyOf":[{"type":"array","items":{"$ref":"#"},"minItems":1},{"enum":[1,"x",null,{}]}]})",
      R"([1,["x",[null]]])");
  add('\0',
      R"({"oneOf":[{"type":"number","multipleOf":0.5},{"type":"integer"}],"allOf":[{"maximum":9}]})",
      "1.5");
  add('\0',
      R"({"type":"object","patternProperties":{"^x":{"format":"date"}},"propertyNames":{"maxLength":3},)"
      R"("additionalProperties":{"const":{"k":[true]}},"minProperties":1,"maxProperties":3,)"
      R"("dependentRequired":{"a":["b"]}})",
      R"({"x1":"2024-02-29","q":{"k":[true]}})");
  add('\0', R"({"prefixItems":[{"type":"null"}],"items":false,"$defs":{"a/b":{"$anchor":"z"}}})",
      "[null]");
  add('\1',
      "root ::= expr\nexpr ::= term (ws [-+*/] ws term)*\nterm ::= num | \"(\" ws expr ws \")\"\n"
      "num ::= \"-\"? [0-9]{1,5}\nws ::= [ \\t]*  # space\n",
      "(1 + 2)*-3");
  add('\1', "root ::= \"a\" root \"b\" | [^\\x00-\\x1f\\\"] | \"\\u00e9\" .?", "aaéxbb");
  add('\2', "^(?:[a-c\\d_]{2,4}|\\p{Lu}+?x?)(-\\u{1F642})*$", "ab1-🙂");
  return inputs;
}

}  // namespace strata::fuzz
