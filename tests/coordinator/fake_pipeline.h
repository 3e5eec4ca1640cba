// A pipeline of stages in virtual time, that checks what it is sent.
//
// It keeps what real stages keep (slots, block tables, cache contents) and computes a "model" whose
// next token is a hash of all tokens that a full-attention row reads *through the block tables*, so
// that any mistake with blocks, slots, positions or order gives a wrong token. Stages take steps
// one after the other; the head waits for tokens of the tail; sequences that have ended are dead.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coordinator/engine/engine.h"

namespace strata::coordinator {

// Equal numbers for equal seeds, on every platform.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint32_t operator()() { return static_cast<uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

// The tokens that the fake model gives after `prompt`, until an end id or `max_new` tokens. The end
// id is not part of it, as with the engine.
std::vector<int32_t> expected_tokens(const std::vector<int32_t>& prompt, uint32_t max_new,
                                     const std::vector<int32_t>& end_ids, int32_t vocab_size);

class FakePipeline {
 public:
  FakePipeline(const PipelineShape& shape, Duration stage_time, Duration hop_time);

  // Computes the step's times and result at once; take_result() gives it when its time has come.
  void submit(const StepPlan& plan, TimePoint now);
  std::optional<TimePoint> next_result() const;
  StepResult take_result();

  // Faults, by step id or sequence's n-th opening (from 1).
  std::set<uint64_t> failing_steps;
  std::set<uint64_t> unanswered_steps;
  std::map<uint64_t, uint32_t> row_errors;  // sequence id -> position
  std::set<uint64_t> unready;               // sequence ids whose first sample comes too early

  uint32_t dead_rows = 0;
  uint32_t rows = 0;
  uint64_t largest_step = 0;
  Duration busy{};  // of all stages together
  // Of the first broken rule; empty if all is well.
  std::string fault;

 private:
  struct Slot {
    OpenSequence open;
    bool used = false;
    bool ended = false;
    uint32_t length = 0;                                          // positions written
    uint32_t sampled = 0;                                         // tokens
    std::map<uint32_t, std::pair<int32_t, TimePoint>> from_tail;  // by position
    std::vector<std::vector<int32_t>> tables;                     // by group
  };
  struct Cell {
    int32_t token = -1;
    uint32_t position = 0;
    uint64_t sequence_id = 0;
  };

  void broken(const std::string& rule);
  void apply_changes(const StepPlan& plan);
  void run_row(const StepRow& row, const StepPlan& plan, size_t& next_token, StepResult& result,
               std::vector<std::pair<uint32_t, uint32_t>>& sampled);
  Cell* cell(const Slot& slot, size_t group, uint32_t position);
  uint64_t read_all(const Slot& slot, uint32_t position);
  TimePoint pass_through(TimePoint ready);

  PipelineShape shape_;
  Duration stage_time_;
  Duration hop_time_;
  std::vector<TimePoint> stage_free_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Cell>> cells_;  // by group, by block * 16 + offset
  std::map<TimePoint, std::vector<StepResult>> results_;
  uint64_t next_step_ = 1;
};

}  // namespace strata::coordinator
