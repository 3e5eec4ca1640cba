// A vocabulary's tokenizer, or a test failure.
#pragma once

#include <memory>
#include <string>

#include "runtime/text/tokenizer.h"

namespace strata::test {

// Null after a test failure if the file has no tokenizer.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

}  // namespace strata::test
