#include "tests/coordinator/fake_pipeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::coordinator {
namespace {

uint64_t mix(uint64_t hash, int32_t token) {
  return (hash ^ (static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
}

int32_t token_of(uint64_t hash, int32_t vocab_size) {
  return static_cast<int32_t>((hash >> 29) % static_cast<uint64_t>(vocab_size));
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::vector<int32_t> expected_tokens(const std::vector<int32_t>& prompt, uint32_t max_new,
                                     const std::vector<int32_t>& end_ids, int32_t vocab_size) {
  uint64_t hash = 1;
  for (const int32_t token : prompt) hash = mix(hash, token);
  std::vector<int32_t> tokens;
  while (tokens.size() < max_new) {
    const int32_t token = token_of(hash, vocab_size);
    if (contains(end_ids, token)) break;
    tokens.push_back(token);
    hash = mix(hash, token);
  }
  return tokens;
}

FakePipeline::FakePipeline(const PipelineShape& shape, Duration stage_time, Duration hop_time)
    : shape_(shape), stage_time_(stage_time), hop_time_(hop_time) {
  stage_free_.resize(shape.stage_count);
  slots_.resize(shape.slots);
  for (const KvGroupShape& group : shape.groups) {
    cells_.emplace_back(static_cast<size_t>(group.block_count) * kBlockPositions);
  }
}

void FakePipeline::broken(const std::string& rule) {
  if (fault.empty()) fault = rule;
}

FakePipeline::Cell* FakePipeline::cell(const Slot& slot, size_t group, uint32_t position) {
  const std::vector<int32_t>& table = slot.tables[group];
  const size_t index = position / kBlockPositions;
  if (index >= table.size() || table[index] < 0) {
    broken(fmt::format("no block for position {} of sequence {}", position, slot.open.sequence_id));
    return nullptr;
  }
  const size_t at =
      static_cast<size_t>(table[index]) * kBlockPositions + position % kBlockPositions;
  if (at >= cells_[group].size()) {
    broken("a block beyond the cache");
    return nullptr;
  }
  return &cells_[group][at];
}

// The hash over what position `position` sees; also checks the windowed groups' cells.
uint64_t FakePipeline::read_all(const Slot& slot, uint32_t position) {
  uint64_t hash = 1;
  for (size_t g = 0; g < shape_.groups.size(); ++g) {
    const uint32_t window = shape_.groups[g].window;
    const uint32_t begin = window == 0 || position < window ? 0 : position - window + 1;
    for (uint32_t p = begin; p <= position; ++p) {
      const Cell* read = cell(slot, g, p);
      if (read == nullptr) return 0;
      if (read->sequence_id != slot.open.sequence_id || read->position != p) {
        broken(fmt::format("position {} of sequence {} was overwritten", p, slot.open.sequence_id));
        return 0;
      }
      if (window == 0 && g == 0) hash = mix(hash, read->token);
    }
  }
  return hash;
}

void FakePipeline::apply_changes(const StepPlan& plan) {
  for (const uint32_t slot : plan.closes) {
    if (!slots_.at(slot).used) broken(fmt::format("close of the unused slot {}", slot));
    slots_[slot] = {};
  }
  for (const OpenSequence& open : plan.opens) {
    Slot& slot = slots_.at(open.slot);
    if (slot.used) broken(fmt::format("slot {} opened twice", open.slot));
    slot = {};
    slot.used = true;
    slot.open = open;
    slot.tables.resize(shape_.groups.size());
  }
  for (const BlockChange& change : plan.block_changes) {
    Slot& slot = slots_.at(change.slot);
    if (!slot.used) broken("a block for an unused slot");
    std::vector<int32_t>& table = slot.tables.at(change.group);
    if (table.size() <= change.index) table.resize(change.index + 1, -1);
    table[change.index] = change.block;
  }
}

void FakePipeline::run_row(const StepRow& row, const StepPlan& plan, size_t& next_token,
                           StepResult& result,
                           std::vector<std::pair<uint32_t, uint32_t>>& sampled) {
  Slot& slot = slots_.at(row.slot);
  const bool from_tail = (row.flags & StepRow::input_from_tail) != 0;
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; !from_tail && i < row.count; ++i)
    tokens.push_back(plan.tokens.at(next_token++));
  ++rows;
  if (!slot.used) broken("a row of an unused slot");
  if (slot.ended) {
    ++dead_rows;
    return;
  }
  if (row.position != slot.length)
    broken(fmt::format("row at {}, due {}", row.position, slot.length));
  if (from_tail) tokens.push_back(slot.from_tail.at(row.position).first);
  for (uint32_t i = 0; i < row.count; ++i) {
    for (size_t g = 0; g < cells_.size(); ++g) {
      if (Cell* target = cell(slot, g, row.position + i)) {
        *target = {tokens[i], row.position + i, slot.open.sequence_id};
      }
    }
  }
  // What the row's first position sees must be intact as well.
  read_all(slot, row.position);
  slot.length += row.count;
  const uint32_t position = slot.length;
  TokenRecord record{.slot = row.slot,
                     .sequence_id = slot.open.sequence_id,
                     .position = position,
                     .top = {},
                     .logits = {},
                     .error = {}};
  const auto row_error = row_errors.find(slot.open.sequence_id);
  if (row_error != row_errors.end() && position >= row_error->second) {
    record.end = SequenceEnd::error;
    record.error = data_loss("non-finite logits");
    slot.ended = true;
    result.records.push_back(record);
    return;
  }
  if ((row.flags & StepRow::want_logits) != 0) {
    record.logits.assign(static_cast<size_t>(shape_.vocab_size) * row.count, 0.0F);
    for (uint32_t i = 0; i < row.count; ++i) {
      record.logits[static_cast<size_t>(shape_.vocab_size) * i] =
          static_cast<float>(row.position + i);
    }
  }
  if ((row.flags & StepRow::sample) != 0 && unready.contains(slot.open.sequence_id)) {
    record.end = SequenceEnd::not_ready;
    slot.ended = true;
    result.records.push_back(std::move(record));
    return;
  }
  if ((row.flags & StepRow::sample) != 0) {
    record.token = token_of(read_all(slot, position - 1), shape_.vocab_size);
    ++slot.sampled;
    if (contains(slot.open.end_ids, record.token)) record.end = SequenceEnd::end_token;
    if (record.end == SequenceEnd::none && slot.sampled == slot.open.max_new_tokens) {
      record.end = SequenceEnd::length;
    }
    if (record.end != SequenceEnd::none) slot.ended = true;
    slot.from_tail[position] = {record.token, {}};
    sampled.emplace_back(row.slot, position);
  }
  if (record.token >= 0 || !record.logits.empty()) result.records.push_back(std::move(record));
}

TimePoint FakePipeline::pass_through(TimePoint ready) {
  for (TimePoint& stage_free : stage_free_) {
    const TimePoint start = std::max(ready, stage_free);
    stage_free = start + stage_time_;
    busy += stage_time_;
    ready = stage_free + hop_time_;
  }
  return ready;
}

void FakePipeline::submit(const StepPlan& plan, TimePoint now) {
  if (plan.step_id != next_step_++) broken(fmt::format("step {} out of order", plan.step_id));
  if (plan.epoch != shape_.epoch) broken("a step of another epoch");
  if (plan.rows.empty()) broken("an empty step");
  apply_changes(plan);
  StepResult result{.epoch = plan.epoch, .step_id = plan.step_id, .records = {}, .status = {}};
  TimePoint ready = now + hop_time_;
  uint64_t tokens = 0;
  for (const StepRow& row : plan.rows) {
    tokens += row.count;
    Slot& slot = slots_.at(row.slot);
    if ((row.flags & StepRow::input_from_tail) == 0 || slot.ended) continue;
    const auto token = slot.from_tail.find(row.position);
    if (token == slot.from_tail.end()) {
      broken(fmt::format("position {} waits for a token that nobody samples", row.position));
      return;
    }
    ready = std::max(ready, token->second.second);
  }
  largest_step = std::max(largest_step, tokens);
  if (tokens > shape_.step_tokens) broken(fmt::format("a step of {} tokens", tokens));
  size_t next_token = 0;
  std::vector<std::pair<uint32_t, uint32_t>> sampled;
  for (const StepRow& row : plan.rows) run_row(row, plan, next_token, result, sampled);
  if (next_token != plan.tokens.size()) broken("tokens that belong to no row");
  const TimePoint done = pass_through(ready);
  for (const auto& [slot, position] : sampled) slots_[slot].from_tail[position].second = done;
  if (failing_steps.contains(plan.step_id)) {
    result.status = internal_error("stage 1 on worker-2: the device failed");
    result.records.clear();
    for (const StepRow& row : plan.rows) slots_[row.slot].ended = true;
  }
  if (!unanswered_steps.contains(plan.step_id)) results_[done].push_back(std::move(result));
}

std::optional<TimePoint> FakePipeline::next_result() const {
  if (results_.empty()) return std::nullopt;
  return results_.begin()->first;
}

StepResult FakePipeline::take_result() {
  auto first = results_.begin();
  StepResult result = std::move(first->second.front());
  first->second.erase(first->second.begin());
  if (first->second.empty()) results_.erase(first);
  return result;
}

}  // namespace strata::coordinator
