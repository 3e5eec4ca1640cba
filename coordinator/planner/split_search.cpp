#include "coordinator/planner/split_search.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "runtime/base/check.h"

namespace strata::coordinator {
namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();
// A plan that uses every node may be slower by so much than one that leaves some idle.
constexpr double kAllNodesSlack = 1.05;
// Entries of the table over sets of nodes; beyond it, nodes go in order of speed.
constexpr size_t kStatesMax = size_t{1} << 16;

// Nodes that cannot be told apart.
struct NodeKind {
  const PlannerNode* node = nullptr;
  std::vector<uint32_t> members;
};

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

// The end of the longest range from `begin` that the node can take within the bound; `begin` if
// none.
uint32_t take(const CostModel& cost, const PlannerNode& node, uint32_t begin, double bound_us) {
  const auto fits = [&](uint32_t end) {
    const UnitRange units{begin, end};
    return cost.memory(units).total() <= node.memory_bytes && cost.step_us(node, units) <= bound_us;
  };
  // The whole model on one node has no hop and holds a tied head once: the one case that may fit
  // although a part does not.
  const uint32_t all = cost.model().unit_count();
  if (begin == 0 && fits(all)) return all;
  uint32_t low = begin;
  uint32_t high = all;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Table over "how many nodes of each kind are used": the most units covered, and by which step.
class CoverTable {
 public:
  CoverTable(const CostModel& cost, const std::vector<NodeKind>& kinds)
      : cost_(cost), kinds_(kinds) {
    for (const NodeKind& kind : kinds) {
      strides_.push_back(states_);
      states_ *= kind.members.size() + 1;
    }
  }

  // A split within the bound, with all nodes if `all_nodes` says so.
  std::optional<Split> fill(double bound_us, bool all_nodes) {
    covered_.assign(states_, 0);
    last_kind_.assign(states_, -1);
    compute_takes(bound_us);
    const uint32_t units = cost_.model().unit_count();
    uint32_t nodes = 0;
    for (const NodeKind& kind : kinds_) nodes += static_cast<uint32_t>(kind.members.size());
    for (size_t state = 1; state < states_; ++state) {
      const uint32_t used = used_nodes(state);
      // Leaves a unit for each node that is still to come.
      const uint32_t limit = all_nodes ? units - std::min(units, nodes - used) : units;
      for (size_t k = 0; k < kinds_.size(); ++k) {
        if (count(state, k) == 0) continue;
        const size_t before = state - strides_[k];
        if (before != 0 && last_kind_[before] < 0) continue;
        const uint32_t begin = covered_[before];
        if (begin >= units) continue;
        const uint32_t end = std::min(takes_[k][begin], limit);
        if (end <= begin || (last_kind_[state] >= 0 && end <= covered_[state])) continue;
        covered_[state] = end;
        last_kind_[state] = static_cast<int>(k);
      }
      const bool complete = covered_[state] == units && last_kind_[state] >= 0;
      if (complete && (!all_nodes || used == nodes)) return trace(state);
    }
    return std::nullopt;
  }

 private:
  void compute_takes(double bound_us) {
    takes_.assign(kinds_.size(), {});
    for (size_t k = 0; k < kinds_.size(); ++k) {
      for (uint32_t begin = 0; begin < cost_.model().unit_count(); ++begin) {
        takes_[k].push_back(take(cost_, *kinds_[k].node, begin, bound_us));
      }
    }
  }
  size_t count(size_t state, size_t kind) const {
    return state / strides_[kind] % (kinds_[kind].members.size() + 1);
  }
  uint32_t used_nodes(size_t state) const {
    size_t used = 0;
    for (size_t k = 0; k < kinds_.size(); ++k) used += count(state, k);
    return static_cast<uint32_t>(used);
  }
  Split trace(size_t state) const;

  const CostModel& cost_;
  const std::vector<NodeKind>& kinds_;
  std::vector<size_t> strides_;
  size_t states_ = 1;
  std::vector<std::vector<uint32_t>> takes_;  // [kind][begin]: take() within the bound
  std::vector<uint32_t> covered_;
  std::vector<int> last_kind_;
};

Split CoverTable::trace(size_t state) const {
  Split split;
  while (state != 0) {
    const size_t kind = static_cast<size_t>(last_kind_[state]);
    split.push_back({kinds_[kind].members[count(state, kind) - 1], covered_[state]});
    state -= strides_[kind];
  }
  std::reverse(split.begin(), split.end());
  return split;
}

// For sets of nodes too large for the table: the fastest first, each after the other.
std::optional<Split> fill_in_order(const CostModel& cost, const std::vector<PlannerNode>& nodes,
                                   const std::vector<uint32_t>& order, double bound_us) {
  Split split;
  uint32_t begin = 0;
  for (const uint32_t index : order) {
    const uint32_t end = take(cost, nodes[index], begin, bound_us);
    if (end > begin) split.push_back({index, end});
    begin = end;
    if (begin == cost.model().unit_count()) return split;
  }
  return std::nullopt;
}

// Moves the cuts of a split so that the sum of squared stage times is least, none exceeds the
// bound and every stage keeps a unit. The order of the nodes stays.
Split balance(const CostModel& cost, const std::vector<PlannerNode>& nodes, const Split& split,
              double bound_us) {
  const uint32_t units = cost.model().unit_count();
  const size_t stages = split.size();
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // best[s][u]: least sum with the first s stages over the first u units.
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(units + 1, kNone));
  std::vector<std::vector<uint32_t>> from(stages + 1, std::vector<uint32_t>(units + 1, 0));
  best[0][0] = 0;
  for (size_t s = 0; s < stages; ++s) {
    const PlannerNode& node = nodes[split[s].node];
    for (uint32_t begin = 0; begin < units; ++begin) {
      if (best[s][begin] == kNone) continue;
      for (uint32_t end = begin + 1; end <= units; ++end) {
        const double us = cost.step_us(node, {begin, end});
        if (us > bound_us || cost.memory({begin, end}).total() > node.memory_bytes) continue;
        const double sum = best[s][begin] + us * us;
        if (sum < best[s + 1][end]) {
          best[s + 1][end] = sum;
          from[s + 1][end] = begin;
        }
      }
    }
  }
  if (best[stages][units] == kNone) return split;
  Split balanced = split;
  uint32_t end = units;
  for (size_t s = stages; s > 0; --s) {
    balanced[s - 1].end = end;
    end = from[s][end];
  }
  return balanced;
}

}  // namespace

double bottleneck_us(const CostModel& cost, const std::vector<PlannerNode>& nodes,
                     const Split& split) {
  double slowest = 0;
  uint32_t begin = 0;
  for (const SplitStage& stage : split) {
    slowest = std::max(slowest, cost.step_us(nodes[stage.node], {begin, stage.end}));
    begin = stage.end;
  }
  return slowest;
}

namespace {

// Looks for splits of some nodes within a bound on the slowest stage's time.
class SplitSearch {
 public:
  SplitSearch(const CostModel& cost, const std::vector<PlannerNode>& nodes)
      : cost_(cost), nodes_(nodes), kinds_(kinds_of(nodes)), table_(cost, kinds_) {
    for (const NodeKind& kind : kinds_) {
      states_ = std::min(states_ * (kind.members.size() + 1), kStatesMax + 1);
    }
    order_ = by_speed(nodes);
  }

  static std::vector<uint32_t> by_speed(const std::vector<PlannerNode>& nodes) {
    std::vector<uint32_t> order(nodes.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return nodes[a].read_bytes_per_s > nodes[b].read_bytes_per_s;
    });
    return order;
  }

  std::optional<Split> within(double bound_us, bool all_nodes) {
    if (states_ <= kStatesMax) return table_.fill(bound_us, all_nodes);
    if (all_nodes) return std::nullopt;
    return fill_in_order(cost_, nodes_, order_, bound_us);
  }

  // The split with the least bound, to a thousandth: there is always a split in hand, and `low` is
  // known to be too small.
  std::optional<Split> least(bool all_nodes) {
    std::optional<Split> best = within(kNoBound, all_nodes);
    if (!best) return best;
    double high = bottleneck_us(cost_, nodes_, *best);
    double low = 0;
    while (high - low > 1e-3 * high) {
      const double middle = (low + high) / 2;
      if (std::optional<Split> found = within(middle, all_nodes)) {
        best = std::move(found);
        high = std::min(middle, bottleneck_us(cost_, nodes_, *best));
      } else {
        low = middle;
      }
    }
    return best;
  }

 private:
  const CostModel& cost_;
  const std::vector<PlannerNode>& nodes_;
  const std::vector<NodeKind> kinds_;
  CoverTable table_;
  std::vector<uint32_t> order_;
  size_t states_ = 1;
};

// As find_split() with use_all; none if a node cannot hold even one unit.
std::optional<Split> split_over_all(const CostModel& cost, const std::vector<PlannerNode>& nodes) {
  const uint32_t units = cost.model().unit_count();
  std::vector<uint32_t> chosen = SplitSearch::by_speed(nodes);
  if (chosen.size() > units) chosen.resize(units);
  std::sort(chosen.begin(), chosen.end());
  std::vector<PlannerNode> subset;
  for (const uint32_t index : chosen) subset.push_back(nodes[index]);
  std::optional<Split> split = SplitSearch(cost, subset).least(true);
  if (!split) return split;
  *split = balance(cost, subset, *split, bottleneck_us(cost, subset, *split));
  for (SplitStage& stage : *split) stage.node = chosen[stage.node];
  return split;
}

}  // namespace

std::optional<Split> find_split(const CostModel& cost, const std::vector<PlannerNode>& nodes,
                                bool use_all) {
  if (use_all) {
    if (std::optional<Split> split = split_over_all(cost, nodes)) return split;
  }
  SplitSearch search(cost, nodes);
  std::optional<Split> best = search.least(false);
  if (!best) return best;
  double bound = bottleneck_us(cost, nodes, *best);
  if (best->size() < nodes.size()) {
    if (std::optional<Split> all = search.within(bound * kAllNodesSlack, true)) {
      best = std::move(all);
      bound *= kAllNodesSlack;
    }
  }
  return balance(cost, nodes, *best, bound);
}

}  // namespace strata::coordinator
