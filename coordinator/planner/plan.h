// Plan: which node holds which layers, with its memory and its predicted time.
//
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/planner/cost_model.h"
#include "coordinator/planner/model_profile.h"
#include "coordinator/planner/split_search.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace strata::coordinator {

struct PlannedStage {
  uint32_t node = 0;  // index into the planner's nodes
  std::string node_name;
  std::string device;
  LayerRange range;
  StageMemoryNeed need;
  uint64_t have_bytes = 0;
  double step_us = 0;
  StepForecast forecast;
};

// A node without a stage.
struct LeftOut {
  std::string node;
  std::string why;  // to follow a colon
};

struct Plan {
  std::string model;
  uint32_t context = 0;                // the most tokens of one sequence
  uint32_t sequences = 0;              // full contexts that the KV cache holds
  std::vector<uint32_t> group_blocks;  // by KV group
  std::vector<PlannedStage> stages;    // head first
  std::vector<LeftOut> left_out;
  std::vector<std::string> remarks;  // sentences: what was assumed, what an option costs
  PlanGoal goal = PlanGoal::one;     // see PlanOptions
  bool step_time_by_plan = true;     // see PlanOptions

  // One sequence's tokens in a second, and those of as many sequences as there are stages.
  double predicted_tokens_per_s() const;
  double predicted_pipelined_tokens_per_s() const;
  // What a token may add to the time that a step is given before it counts as hung: several times
  // what decoding it alone is predicted to take in all stages. 0 without step_time_by_plan.
  Duration token_allowance() const;
  // "10,12,8".
  std::string split_text() const;
};

// INTERNAL with the first rule that the plan breaks: stages cover all layers in order without gaps,
// the first has the embedding, the last the head, no node twice, memory fits.
Status check_plan(const Plan& plan, const ModelProfile& model);

// For people: a table and a line of totals. Columns are aligned; no colours.
std::string plan_table(const Plan& plan);
// One JSON object as text.
std::string plan_json(const Plan& plan);

}  // namespace strata::coordinator
