// Which two neighbouring tokens become which one, and in what order: the merges of a byte-level
// vocabulary, by ids.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/metadata.h"
#include "runtime/text/vocab.h"

namespace strata {

struct Merge {
  int32_t rank = -1;  // lower goes first; -1: these two do not merge
  int32_t id = -1;    // of the token that they become
};

// Threads: immutable after load(); any thread.
class MergeTable {
 public:
  // tokenizer.ggml.merges: strings "left right". Errors: INVALID_ARGUMENT "... merge N ..." for one
  // without a space between two texts, or of which a part or the result is no token.
  static Result<MergeTable> load(const Metadata& metadata, const Vocab& vocab);

  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    int32_t left = -1;
    int32_t right = -1;
    Merge merge;
  };
  size_t first_place(int32_t left, int32_t right) const;

  std::vector<Slot> slots_;  // open addressing, a power of two long, at most half full
};

}  // namespace strata
