// Small vocabularies as files, for tests of the text layer and its fuzzer.
#pragma once

#include <string>

#include "runtime/gguf/metadata.h"
#include "tests/support/gguf_writer.h"

namespace strata::test {

// The metadata of what `writer` describes. Aborts the test program if the file itself is broken.
Metadata metadata_of(const GgufWriter& writer);

// SentencePiece: <unk> <s> </s> (0 to 2), all bytes (3 to 258), then "▁", letters, and
// "▁a" "ab" "▁ab" "abc" with falling scores; user-defined "\n\n", control "<|im_start|>" and
// "<|im_end|>".
GgufWriter spm_vocabulary();

// Byte-level: all bytes (0 to 255), merges to "ab", "Ġa", "Ġab", then user-defined "<tool>",
// control "<|im_start|>", "<|im_end|>", "<|endoftext|>".
GgufWriter bpe_vocabulary(const std::string& pre = "gpt-2");

}  // namespace strata::test
