// Batcher: which rows make the next micro-batch.
//
// Several micro-batches are in flight, one per stage and one more that waits at the head. A row of
// a sequence that is being decoded needs the token of its previous row, so that a pipeline of S
// stages is full only if the sequences are spread over S micro-batches:
//
//   stage 0   A B   C D   A B   C D          four sequences, two stages:
//   stage 1         A B   C D   A B          each step takes ceil(4 / 2) rows
//
// Decoding rows come first and cost one token each; what is left of the step's token budget goes to
// chunks of prompts, the least recently served first. Prompts do not wait for their own results, so
// chunks of one prompt follow each other through the stages; a prompt that would fit one step is
// still cut into about S chunks, to keep all stages at work.
// Nobody starves: a step always has room for every decoding row that is due, and for prompt tokens.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::coordinator {

struct BatchLimits {
  uint32_t stage_count = 1;
  uint32_t step_tokens = 512;  // at least 2
  // The most tokens of one prompt in one step. 0: step_tokens, and cut shorter for many stages.
  uint32_t prefill_chunk = 0;
};

// A live sequence as the batcher sees it.
struct BatchCandidate {
  uint32_t index = 0;         // the caller's name for it
  uint32_t prompt_left = 0;   // prompt tokens that no step has taken yet
  bool decode_ready = false;  // may take one more decoding row now
  bool decoding = false;      // its prompt is done; counts for the spread, ready or not
  uint64_t last_served = 0;   // number of the step that last took it
};

struct BatchRow {
  uint32_t index = 0;
  uint32_t count = 0;  // tokens
};

// Chunks shorter than this are bound by reading the weights, not by computing.
inline constexpr uint32_t kShortestSpreadChunk = 64;

// Rows for one step, in the order of the step; empty if nothing is due. Candidates in any order.
std::vector<BatchRow> choose_rows(std::span<const BatchCandidate> candidates,
                                  const BatchLimits& limits);

}  // namespace strata::coordinator
