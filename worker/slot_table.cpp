#include "worker/slot_table.h"

#include <fmt/format.h>

#include "runtime/base/checked_math.h"
#include "runtime/graph/ops.h"

namespace strata::worker {
namespace {

constexpr uint32_t kKnownFlags =
    StepRow::input_from_tail | StepRow::sample | StepRow::want_logits | StepRow::dead;

Status bad_slot(std::string_view record, uint32_t slot, uint32_t slots_max) {
  return invalid_argument(
      fmt::format("{} of slot {}, slots are 0 to {}", record, slot, slots_max - 1));
}

}  // namespace

SlotTable::SlotTable(SlotLimits limits)
    : limits_(std::move(limits)),
      slots_(limits_.slots_max),
      open_(limits_.slots_max),
      opened_(limits_.slots_max),
      seen_(limits_.slots_max) {}

uint32_t SlotTable::table_entries() const {
  return static_cast<uint32_t>(divide_up(limits_.max_context, ops::kKvBlockPositions));
}

Status SlotTable::check(const StepPlan& plan, bool is_head) {
  TRY(check_opens(plan));
  TRY(check_blocks(plan));
  TRY(check_rows(plan));
  if (!is_head) return ok_status();
  uint64_t wanted = 0;
  for (const StepRow& row : plan.rows) {
    if ((row.flags & StepRow::input_from_tail) == 0) wanted += row.count;
  }
  if (wanted == plan.tokens.size()) return ok_status();
  return invalid_argument(
      fmt::format("{} token ids, the rows need {}", plan.tokens.size(), wanted));
}

Status SlotTable::check_opens(const StepPlan& plan) {
  for (size_t i = 0; i < slots_.size(); ++i) open_[i] = slots_[i].is_open;
  opened_.assign(slots_.size(), false);
  for (const uint32_t slot : plan.closes) {
    if (slot >= slots_.size()) return bad_slot("close", slot, limits_.slots_max);
    open_[slot] = false;
  }
  for (const OpenSequence& sequence : plan.opens) {
    if (sequence.slot >= slots_.size()) {
      return bad_slot("open", sequence.slot, limits_.slots_max);
    }
    if (open_[sequence.slot]) {
      return Status(StatusCode::already_exists,
                    fmt::format("slot {} is opened for sequence {} while it is in use",
                                sequence.slot, sequence.sequence_id));
    }
    open_[sequence.slot] = opened_[sequence.slot] = true;
    TRY(validate(sequence.sampling, limits_.n_vocab)
            .with_context(fmt::format("sequence {}", sequence.sequence_id)));
    for (const int32_t id : sequence.history) {
      if (id >= 0 && id < limits_.n_vocab) continue;
      return invalid_argument(
          fmt::format("token id {} in the history of sequence {}, the "
                      "vocabulary has {}",
                      id, sequence.sequence_id, limits_.n_vocab));
    }
    if (sequence.answer_tokens > sequence.history.size()) {
      return invalid_argument(fmt::format("{} tokens of the answer in a history of {}, sequence {}",
                                          sequence.answer_tokens, sequence.history.size(),
                                          sequence.sequence_id));
    }
  }
  return ok_status();
}

Status SlotTable::check_blocks(const StepPlan& plan) const {
  const size_t groups = limits_.group_blocks.size();
  for (const BlockChange& change : plan.block_changes) {
    if (change.slot >= slots_.size()) {
      return bad_slot("block change", change.slot, limits_.slots_max);
    }
    if (!open_[change.slot]) {
      return not_found(
          fmt::format("block change of slot {}, which holds no sequence", change.slot));
    }
    if (change.group >= groups) {
      return invalid_argument(
          fmt::format("block change in KV group {} of {}", change.group, groups));
    }
    if (change.index >= table_entries() || change.block < -1 ||
        change.block >= limits_.group_blocks[change.group]) {
      return invalid_argument(fmt::format(
          "block change to block {} at entry {}: KV group {} has {} blocks, a table {} entries",
          change.block, change.index, change.group, limits_.group_blocks[change.group],
          table_entries()));
    }
  }
  for (const BlockCopy& copy : plan.block_copies) {
    const int32_t blocks = copy.group < groups ? limits_.group_blocks[copy.group] : 0;
    if (copy.from >= 0 && copy.from < blocks && copy.to >= 0 && copy.to < blocks) continue;
    return invalid_argument(fmt::format("block copy from {} to {}, KV group {} has {} blocks",
                                        copy.from, copy.to, copy.group, blocks));
  }
  return ok_status();
}

Status SlotTable::check_rows(const StepPlan& plan) {
  seen_.assign(slots_.size(), false);
  uint64_t tokens = 0;
  size_t live = 0;
  for (const StepRow& row : plan.rows) {
    if (row.slot >= slots_.size()) return bad_slot("row", row.slot, limits_.slots_max);
    if (seen_[row.slot]) {
      return invalid_argument(fmt::format("two rows of slot {} in one step", row.slot));
    }
    seen_[row.slot] = true;
    if (!open_[row.slot]) {
      return not_found(fmt::format("row of slot {}, which holds no sequence", row.slot));
    }
    if ((row.flags & StepRow::dead) != 0) continue;  // nobody will run it
    TRY(check_row(row, opened_[row.slot]));
    tokens += row.count;
    ++live;
  }
  if (tokens > static_cast<uint64_t>(limits_.max_batch_tokens) ||
      live > static_cast<size_t>(limits_.max_sequences)) {
    return invalid_argument(fmt::format("a step of {} tokens in {} rows, at most {} in {}", tokens,
                                        live, limits_.max_batch_tokens, limits_.max_sequences));
  }
  return ok_status();
}

Status SlotTable::check_row(const StepRow& row, bool opened) const {
  if ((row.flags & ~kKnownFlags) != 0) {
    return invalid_argument(fmt::format("row flags {:#x} of slot {}", row.flags, row.slot));
  }
  const bool from_tail = (row.flags & StepRow::input_from_tail) != 0;
  if (row.count < 1 || (from_tail && row.count != 1)) {
    return invalid_argument(fmt::format("row of {} tokens on slot {}{}", row.count, row.slot,
                                        from_tail ? ", the tail gives one" : ""));
  }
  if (uint64_t{row.position} + row.count > static_cast<uint64_t>(limits_.max_context)) {
    return invalid_argument(fmt::format("positions {} to {} of slot {}, the context is {}",
                                        row.position, uint64_t{row.position} + row.count - 1,
                                        row.slot, limits_.max_context));
  }
  const Slot& slot = slots_[row.slot];
  const bool fresh = opened || slot.is_fresh;
  if (!fresh && !slot.has_ended && row.position > slot.length) {
    return invalid_argument(fmt::format("position {} of slot {}, whose KV reaches to {}",
                                        row.position, row.slot, slot.length));
  }
  if (from_tail && (opened || (slot.last_sample_step == 0 && !slot.has_ended))) {
    return invalid_argument(
        fmt::format("row of slot {} takes the tail's token, but none was sampled", row.slot));
  }
  return ok_status();
}

void SlotTable::apply(const StepPlan& plan) {
  for (const uint32_t slot : plan.closes) slots_[slot] = Slot();
  for (const OpenSequence& sequence : plan.opens) {
    Slot& slot = slots_[sequence.slot];
    slot = Slot();
    slot.is_open = true;
    slot.sequence = sequence;
    // All that the sequence may come to, so that no token of it has to allocate.
    slot.tables.resize(limits_.group_blocks.size());
    for (std::vector<int32_t>& table : slot.tables) table.reserve(table_entries());
    slot.history = std::move(slot.sequence.history);
    if (looks_back(slot.sequence.sampling)) {
      slot.history.reserve(static_cast<size_t>(limits_.max_context) + 1);
    }
  }
  for (const BlockChange& change : plan.block_changes) {
    std::vector<int32_t>& table = slots_[change.slot].tables[change.group];
    if (table.size() <= change.index) table.resize(change.index + 1, -1);
    table[change.index] = change.block;
  }
}

}  // namespace strata::worker
