// Step: what the coordinator asks of a pipeline in one micro-batch, and what comes back.
//
// The coordinator sends a StepPlan to the head; it is forwarded with the activations, so that every
// stage sees all steps in order and keeps its own copy of each slot's state (block tables, length).
// The tail samples, and answers with a StepResult: to the head, which may hold steps that wait for
// a token, and to the coordinator. proto/strata/v1/stage.proto mirrors these records on the wire
// and backends/remote/wire.h converts; nothing else knows the proto types. docs/wire.md lists them
// all.
//
// Words: a *slot* is a small number that names a live sequence on every stage of a pipeline, reused
// after it is closed; a *row* is one sequence's part of a step; a *cell* is a KV position.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/sampling/sampling_params.h"

namespace strata {

// Begins a sequence on a slot. Sent once, in the step that first uses the slot.
struct OpenSequence {
  uint32_t slot = 0;
  uint64_t sequence_id = 0;     // never reused within an epoch
  uint32_t prompt_tokens = 0;   // tokens before the first sampled one
  uint32_t max_new_tokens = 0;  // the tail ends the sequence with this many sampled tokens
  SamplingParams sampling;
  std::vector<int32_t> end_ids;  // sampling one of these ends the sequence
  // All tokens so far, only when sampling looks back (penalties, a grammar); else empty.
  std::vector<int32_t> history;
  // Of these, the last so many are of the answer: not 0 for a sequence that goes on elsewhere.
  uint32_t answer_tokens = 0;
};

// Entry `index` of the slot's block table of a KV group becomes `block`.
struct BlockChange {
  uint32_t slot = 0;
  uint32_t group = 0;
  uint32_t index = 0;
  int32_t block = -1;
};

// Block `to` becomes a copy of block `from` on every layer of the group, before the step's rows
// run.
struct BlockCopy {
  uint32_t group = 0;
  int32_t from = -1;
  int32_t to = -1;
};

struct StepRow {
  enum Flags : uint32_t {
    input_from_tail = 1,  // count is 1; the token is the one the tail sampled for `position`
    sample = 2,           // sample a token after the row's last position
    want_logits = 4,      // report the logits of all the row's positions
    dead = 8,             // set by the head: the sequence has ended, all stages skip the row
  };
  uint32_t slot = 0;
  uint32_t position = 0;  // of the row's first token
  uint32_t count = 0;     // tokens; KV must be written for all before them
  uint32_t flags = 0;
};

// A row that a stage gave up: later stages find it dead, and the tail's result ends its sequence.
struct RowFailure {
  uint32_t row = 0;  // in StepPlan::rows
  Status why;        // names the stage
};

struct StepPlan {
  uint64_t epoch = 0;
  uint64_t step_id = 0;    // from 1 in each epoch, without gaps
  uint32_t budget_ms = 0;  // time left when the frame was sent; 0: no limit
  // Not ok: a stage before could not run the step. Later ones apply its records, run none of its
  // rows and pass this on; the tail's result carries it to the head and the coordinator.
  Status failure;
  uint64_t busy_ns = 0;  // that the stages so far have computed on it
  std::vector<OpenSequence> opens;
  std::vector<uint32_t> closes;  // slots; applied before opens
  std::vector<BlockChange> block_changes;
  std::vector<BlockCopy> block_copies;
  std::vector<StepRow> rows;
  // Token ids of the rows that do not take theirs from the tail, in row order.
  std::vector<int32_t> tokens;
  std::vector<RowFailure> row_failures;

  // Tokens of all rows that are not dead: the columns of the activations.
  uint32_t live_tokens() const;
};

// A plan with the residual stream after the sender's last layer: F32 {n_embd, live_tokens}, columns
// in row order, dead rows left out. Empty on the way to the head.
struct StepFrame {
  StepPlan plan;
  std::vector<float> activations;
};

enum class SequenceEnd : uint8_t {
  none = 0,       // goes on
  end_token = 1,  // sampled one of end_ids
  length = 2,     // reached max_new_tokens
  error = 3,      // the row failed; see TokenRecord::error
  // The tail still compiles the sequence's grammar: no token, and nothing more on this slot. It is
  // to be opened again a little later.
  not_ready = 4,
};

struct TokenRecord {
  uint32_t slot = 0;
  uint64_t sequence_id = 0;
  uint32_t position = 0;  // of the sampled token: the last input position + 1
  int32_t token = -1;     // -1 if none was sampled
  float logprob = 0;
  SequenceEnd end = SequenceEnd::none;
  std::vector<std::pair<int32_t, float>> top;  // top_logprobs alternatives, best first
  std::vector<float> logits;                   // {n_vocab, count} if the row wanted them
  Status error;  // this row only, such as non-finite logits; other rows go on
};

struct StepResult {
  uint64_t epoch = 0;
  uint64_t step_id = 0;
  std::vector<TokenRecord> records;  // one per row that is not dead and sampled or wanted logits
  Status status;                     // not ok: the whole step failed, and names the stage
  uint64_t busy_ns = 0;              // that all stages have computed on it
};

// Takes steps in order. Implementations: worker/local_stage.h (computes),
// backends/remote/remote_stage.h (forwards to another node).
class StepSink {
 public:
  virtual ~StepSink() = default;
  // Does not block on computation; the number of steps in flight is bounded by the coordinator.
  // Threads: one caller at a time.
  virtual void submit(StepFrame frame) = 0;
};

// Takes results in order of their steps. Threads: any one thread of the sender, must not block.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  virtual void deliver(StepResult result) = 0;
};

}  // namespace strata
