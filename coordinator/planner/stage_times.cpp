#include "coordinator/planner/stage_times.h"

#include <algorithm>
#include <tuple>

namespace strata::coordinator {

std::vector<NodeKind> kinds_of(const std::vector<PlannerNode>& nodes) {
  const auto key = [](const PlannerNode& node) {
    return std::tuple(node.read_bytes_per_s, node.int8_ops_per_s, node.hop_us, node.memory_bytes);
  };
  std::vector<NodeKind> kinds;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const NodeKind& candidate) {
      return key(*candidate.node) == key(nodes[i]);
    });
    if (kind != kinds.end()) {
      kind->members.push_back(i);
    } else {
      kinds.push_back({&nodes[i], {i}});
    }
  }
  return kinds;
}

StageTimes::StageTimes(const CostModel& cost, const std::vector<PlannerNode>& nodes)
    : units_(cost.model().unit_count()), kinds_(kinds_of(nodes)), kind_of_(nodes.size()) {
  constexpr double kLongestUs = 1e15;  // 30 years: slower is all the same
  for (uint32_t k = 0; k < kinds_.size(); ++k) {
    for (const uint32_t member : kinds_[k].members) kind_of_[member] = k;
    const PlannerNode& node = *kinds_[k].node;
    std::vector<double> table((units_ + 1) * (units_ + 1), kDoesNotFit);
    for (uint32_t begin = 0; begin < units_; ++begin) {
      for (uint32_t end = begin + 1; end <= units_; ++end) {
        const uint64_t need = cost.memory({begin, end}).total();
        double& entry = table[begin * (units_ + 1) + end];
        entry = need > node.memory_bytes
                    ? kDoesNotFit + static_cast<double>(need - node.memory_bytes)
                    : std::min(cost.step_us(node, {begin, end}), kLongestUs);
      }
    }
    tables_.push_back(std::move(table));
  }
}

}  // namespace strata::coordinator
