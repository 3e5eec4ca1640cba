// The search behind the planner: which node takes how many units, in which order.
//
// Two ways, by the number of sets of nodes that can be told apart:
//
//   few:  a table over sets and units, best[set][units] = the least value with which this set, in
//         its best order, covers so many units; exact.
//   many: one order of the nodes at a time, the best cuts along it found exactly (nodes may be
//         skipped), and orders improved by moving one node as long as that helps; a fixed amount of
//         work, so that the same nodes give the same split.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/planner/cost_model.h"
#include "coordinator/planner/stage_times.h"

namespace strata::coordinator {

// What a split is to make fast.
enum class PlanGoal : uint8_t {
  one,   // one sequence: its token goes through all stages, the sum of their times counts
  many,  // many sequences at once: all stages work, the slowest stage's time counts
};

struct SplitStage {
  uint32_t node = 0;  // index
  uint32_t end = 0;   // units; begins where the one before ends
};
using Split = std::vector<SplitStage>;

// The best split, or none if memory does not allow any. Nodes have known speeds. With the least
// number of nodes: one that does not make the goal's time shorter has no stage.
std::optional<Split> find_split(const CostModel& cost, const std::vector<PlannerNode>& nodes,
                                PlanGoal goal);

// A stage for every node (of more nodes than units: for the fastest; of nodes that cannot hold a
// part: for the others), cut so that the slowest stage is as fast as it can be. None as above.
std::optional<Split> find_split_over_all(const CostModel& cost,
                                         const std::vector<PlannerNode>& nodes);

// The least value of `goal` that was found with one more node in the split; none if no cut gives
// it a part that fits.
std::optional<double> time_with_node(const StageTimes& times, const Split& split, uint32_t node,
                                     PlanGoal goal);

// The slowest stage's time in microseconds.
double bottleneck_us(const CostModel& cost, const std::vector<PlannerNode>& nodes,
                     const Split& split);

}  // namespace strata::coordinator
