// Planner: contiguous splits of a model's units over nodes and their orders.
//
// Minimised is the time of one sequence's token (the sum over the stages), or that of the slowest
// stage (which bounds the tokens of many sequences), as the goal says, subject to exact memory;
// then stages are made equal. A node that does not help the goal gets no stage, and the plan says
// what it would cost. split_search.h has the search.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/planner/plan.h"

namespace strata::coordinator {

// "10,12,8" or "worker-2:10,worker-1:20": layers per stage, head first. Only the last may be 0 (a
// stage with the output head alone).
struct SplitEntry {
  std::string node;  // empty: the next node in order that no entry names
  uint32_t layers = 0;
};
// Errors: INVALID_ARGUMENT naming the part that is wrong, or a sum that differs from `layer_count`
// if that is known.
Result<std::vector<SplitEntry>> parse_split(std::string_view text,
                                            std::optional<uint32_t> layer_count = {});

struct PlanOptions {
  uint32_t context = 4096;
  uint32_t sequences_wanted = 4;  // full contexts, if memory allows; at least one is required
  uint32_t step_tokens = 512;
  std::vector<SplitEntry> split = {};  // obeyed to the letter if not empty
  PlanGoal goal = PlanGoal::one;
  // Every node gets a stage, as far as there are units and memory, whatever that does to the time;
  // the plan's remarks say what it does. Else a node that does not help the goal is left out.
  bool use_all_nodes = false;
  std::vector<std::string> exclude = {};  // names of nodes that get no stage
  // Layers with a window get as many KV blocks as those that see everything.
  bool ignore_windows = false;
  // Steps get time by their tokens, see Plan::token_allowance; else a fixed limit holds.
  bool step_time_by_plan = true;
};

// Errors: INVALID_ARGUMENT for no nodes, a context of 0 and a split that names what does not exist
// or is excluded; names to exclude that do not exist are no error, they may join later.
// RESOURCE_EXHAUSTED "short by ... on ..." with need and have, and what would fit as the hint.
Result<Plan> make_plan(const ModelProfile& model, const std::vector<PlannerNode>& nodes,
                       const PlanOptions& options);

}  // namespace strata::coordinator
