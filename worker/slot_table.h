// SlotTable: a stage's own copy of each live sequence's state, changed by every step's records.
//
// All stages see all steps in order, so their tables agree without talking. A plan is checked whole
// before anything of it is applied: a step that is refused has changed nothing.
//
// Threads: externally synchronised (the stage thread).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/constraint.h"
#include "runtime/model/step.h"

namespace strata::worker {

struct Slot {
  bool is_open = false;
  bool has_ended = false;  // sampled its last token, or failed: rows are skipped until it is closed
  bool is_fresh = true;    // no row has run; the first may begin anywhere (a prefix may be cached)
  OpenSequence sequence;
  uint32_t length = 0;                       // positions whose KV is written
  uint64_t last_sample_step = 0;             // the last step that sampled for it; 0: none
  std::vector<std::vector<int32_t>> tables;  // {KV groups}: block ids, -1 where none is held
  std::vector<int32_t> history;              // prompt and sampled tokens, if sampling looks back
  // From the first sample on, of a sequence with a grammar.
  std::optional<grammar::Constraint> constraint;
};

struct SlotLimits {
  uint32_t slots_max = 0;
  int32_t max_context = 0;
  int32_t max_batch_tokens = 0;
  int32_t max_sequences = 0;
  int32_t n_vocab = 0;
  std::vector<int32_t> group_blocks;  // {KV groups}
};

class SlotTable {
 public:
  explicit SlotTable(SlotLimits limits);

  // Whether the plan can be applied and its rows can run. `is_head` also checks the tokens.
  // Changes nothing of the slots. Errors: INVALID_ARGUMENT, NOT_FOUND (a slot without a sequence),
  // ALREADY_EXISTS.
  Status check(const StepPlan& plan, bool is_head);
  // Closes, opens and block changes. Requires: check() passed.
  void apply(const StepPlan& plan);

  // Requires: slot < limits.slots_max.
  Slot& operator[](uint32_t slot) { return slots_[slot]; }
  const Slot& operator[](uint32_t slot) const { return slots_[slot]; }

 private:
  uint32_t table_entries() const;  // of a whole context
  Status check_opens(const StepPlan& plan);
  Status check_blocks(const StepPlan& plan) const;
  Status check_rows(const StepPlan& plan);
  Status check_row(const StepRow& row, bool opened) const;

  SlotLimits limits_;
  std::vector<Slot> slots_;
  // {slots_max}, of the plan being checked: in use after its closes and opens; opened by it; with a
  // row in it.
  std::vector<bool> open_;
  std::vector<bool> opened_;
  std::vector<bool> seen_;
};

}  // namespace strata::worker
