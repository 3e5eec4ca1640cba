// StageTimes: what every range of units takes on every node, looked up instead of computed.
//
// A search asks for the same few thousand ranges again and again. Ranges that do not fit into a
// node's memory cost more than any time, by what is missing, so that a search finds its way from
// splits that do not fit to those that do.
//
// Threads: immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/planner/cost_model.h"

namespace strata::coordinator {

// Nodes that cannot be told apart.
struct NodeKind {
  const PlannerNode* node = nullptr;
  std::vector<uint32_t> members;
};
std::vector<NodeKind> kinds_of(const std::vector<PlannerNode>& nodes);

class StageTimes {
 public:
  // Nodes have known speeds and outlive this.
  StageTimes(const CostModel& cost, const std::vector<PlannerNode>& nodes);

  // Of units [begin, end), begin < end.
  double us(uint32_t node, uint32_t begin, uint32_t end) const {
    return kind_us(kind_of_[node], begin, end);
  }
  double kind_us(uint32_t kind, uint32_t begin, uint32_t end) const {
    return tables_[kind][begin * (units_ + 1) + end];
  }
  // False for what kind_us() gives, or a sum or maximum of it, if a range in it does not fit.
  static bool fits(double us) { return us < kDoesNotFit; }

  uint32_t units() const { return units_; }
  uint32_t nodes() const { return static_cast<uint32_t>(kind_of_.size()); }
  const std::vector<NodeKind>& kinds() const { return kinds_; }

 private:
  // Beyond all times; bytes that are missing are added to it.
  static constexpr double kDoesNotFit = 1e18;

  uint32_t units_;
  std::vector<NodeKind> kinds_;
  std::vector<uint32_t> kind_of_;            // by node
  std::vector<std::vector<double>> tables_;  // [kind][begin * (units + 1) + end]
};

}  // namespace strata::coordinator
