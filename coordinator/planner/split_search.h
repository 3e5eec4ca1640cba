// The search behind the planner: which node takes how many units, in which order.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/planner/cost_model.h"

namespace strata::coordinator {

struct SplitStage {
  uint32_t node = 0;  // index
  uint32_t end = 0;   // units; begins where the one before ends
};
using Split = std::vector<SplitStage>;

// The best split, or none if memory does not allow any. Nodes have known speeds. `use_all`: every
// node gets a stage if memory allows (of more nodes than units, the fastest).
std::optional<Split> find_split(const CostModel& cost, const std::vector<PlannerNode>& nodes,
                                bool use_all = false);

// The slowest stage's time in microseconds.
double bottleneck_us(const CostModel& cost, const std::vector<PlannerNode>& nodes,
                     const Split& split);

}  // namespace strata::coordinator
