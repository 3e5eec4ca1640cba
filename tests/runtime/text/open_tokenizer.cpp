#include "tests/runtime/text/open_tokenizer.h"

#include <gtest/gtest.h>

#include "runtime/gguf/gguf_file.h"

namespace strata::test {

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  Result<std::shared_ptr<GgufFile>> file = GgufFile::open(path);
  if (!file.ok()) {
    ADD_FAILURE() << file.status().to_string();
    return nullptr;
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = make_tokenizer(file.value()->metadata());
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status().to_string();
    return nullptr;
  }
  return std::move(tokenizer).value();
}

}  // namespace strata::test
