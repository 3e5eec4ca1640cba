#include "tests/support/vocabularies.h"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/text/byte_level.h"

namespace strata::test {

Metadata metadata_of(const GgufWriter& writer) {
  const std::string header = writer.header();
  return GgufFile::from_header(std::as_bytes(std::span(header)), "test.gguf").value()->metadata();
}

GgufWriter spm_vocabulary() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  const size_t first_text = tokens.size();
  for (const char* text : {"▁", "a", "b", "c", "é", "▁a", "ab", "▁ab", "abc"}) {
    tokens.push_back(text);
    types.push_back(1);
  }
  std::vector<float> scores(tokens.size(), 0.0F);
  for (size_t i = first_text; i < tokens.size(); ++i) scores[i] = -static_cast<float>(i);
  const std::vector<std::pair<std::string, int32_t>> special = {
      {"\n\n", 4}, {"<|im_start|>", 3}, {"<|im_end|>", 3}};
  for (const auto& [text, type] : special) {
    tokens.push_back(text);
    types.push_back(type);
    scores.push_back(-1000.0F);
  }
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("tokenizer.ggml.model", "llama");
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_floats("tokenizer.ggml.scores", scores);
  writer.set_ints("tokenizer.ggml.token_type", types);
  writer.set_u32("tokenizer.ggml.bos_token_id", 1);
  writer.set_u32("tokenizer.ggml.eos_token_id", 2);
  writer.set_u32("tokenizer.ggml.unknown_token_id", 0);
  return writer;
}

GgufWriter bpe_vocabulary(const std::string& pre) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(byte_level_character(static_cast<uint8_t>(byte)));
  }
  std::vector<int32_t> types(256, 1);
  for (const char* text : {"ab", "Ġa", "Ġab"}) {
    tokens.push_back(text);
    types.push_back(1);
  }
  const std::vector<std::pair<std::string, int32_t>> special = {
      {"<tool>", 4}, {"<|im_start|>", 3}, {"<|im_end|>", 3}, {"<|endoftext|>", 3}};
  for (const auto& [text, type] : special) {
    tokens.push_back(text);
    types.push_back(type);
  }
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("tokenizer.ggml.model", "gpt2");
  writer.set_string("tokenizer.ggml.pre", pre);
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_ints("tokenizer.ggml.token_type", types);
  writer.set_strings("tokenizer.ggml.merges", {"a b", "Ġ a", "Ġ ab"});
  writer.set_u32("tokenizer.ggml.eos_token_id", 261);
  return writer;
}

}  // namespace strata::test
