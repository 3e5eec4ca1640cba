// Planner: contiguous splits of a model's units over nodes and their orders.
//
// Minimised is the slowest stage's time (that is what bounds the tokens of many sequences), then
// the sum of squares (that balances the rest), subject to exact memory. For a given bound T on a
// stage's time, each node takes as many units as T and its memory allow, and a table over sets of
// nodes keeps the most units that a set can cover; T is found by bisection:
//
//   covered({a, b}) = max(take(covered({a}), b), take(covered({b}), a))
//
// Equal nodes count as one kind, so that the table has (n1 + 1)(n2 + 1)... entries instead of 2^n.
// All nodes are used if that costs next to nothing; what a split cannot use is a spare.
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
  // Every node gets a stage, as far as there are units, whatever that does to the time; else a node
  // that only costs time is left out.
  bool use_all_nodes = false;
  // Layers with a window get as many KV blocks as those that see everything.
  bool ignore_windows = false;
  // Steps get time by their tokens, see Plan::token_allowance; else a fixed limit holds.
  bool step_time_by_plan = true;
};

// Errors: INVALID_ARGUMENT for no nodes, a context of 0 and a split that names what does not exist;
// RESOURCE_EXHAUSTED "short by ... on ..." with need and have, and what would fit as the hint.
Result<Plan> make_plan(const ModelProfile& model, const std::vector<PlannerNode>& nodes,
                       const PlanOptions& options);

}  // namespace strata::coordinator
