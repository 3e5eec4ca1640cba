#include "tests/fuzz/corpus.h"
#include "tests/support/vocabularies.h"

namespace strata::fuzz {

std::vector<std::string> corpus() {
  std::vector<std::string> inputs;
  for (const char* text :
       {"", "ab abc  \n\n<tool><|im_start|>user\nab<|im_end|>", "<0x41>▁a é漢字🙂 \x80\xFF",
        "aaaaaaaaaaaaaaaaaaaaaaaa bbbbb 12345 'S's\r\n\t"}) {
    inputs.push_back(std::string(1, '\0') + text);
    inputs.push_back(std::string(1, '\1') + text);
  }
  test::GgufWriter wordpiece = test::spm_vocabulary();
  wordpiece.set_string("tokenizer.ggml.model", "bert");
  for (const test::GgufWriter& writer :
       {test::spm_vocabulary(), test::bpe_vocabulary(), test::bpe_vocabulary("qwen2"), wordpiece}) {
    inputs.push_back(std::string(1, '\2') + writer.header());
  }
  return inputs;
}

}  // namespace strata::fuzz
