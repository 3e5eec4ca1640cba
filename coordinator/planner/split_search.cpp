#include "coordinator/planner/split_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/base/check.h"

namespace strata::coordinator {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
// Values this close count as equal: fewer nodes then decide.
constexpr double kSame = 1e-3;
// Steps of the table over sets: some 50 ms, for 12 unlike nodes and 30 layers.
constexpr uint64_t kTableStepsMax = uint64_t{1} << 25;
// Steps of the search over orders: some 50 ms.
constexpr uint64_t kOrderStepsMax = uint64_t{1} << 25;
// Of one sequence's time, for stages that are more equal: many sequences run faster with them, and
// a measurement is no more exact than that.
constexpr double kBalanceSlack = 1.05;

double join(PlanGoal goal, double before, double stage) {
  return goal == PlanGoal::one ? before + stage : std::max(before, stage);
}

uint64_t cut_pairs(uint32_t units) { return uint64_t{units} * (units + 1) / 2; }

// A value and the split that has it.
struct Found {
  double value = kNone;
  Split split;
};

// --- Few sets: a table ---------------------------------------------------------------------------

// States are "how many nodes of each kind are used".
class SetTable {
 public:
  SetTable(const StageTimes& times, PlanGoal goal) : times_(times), goal_(goal) {
    for (const NodeKind& kind : times.kinds()) {
      strides_.push_back(states_);
      states_ = std::min(states_ * (kind.members.size() + 1), kTableStepsMax);
    }
  }

  bool is_small() const {
    return states_ * times_.kinds().size() * cut_pairs(times_.units()) <= kTableStepsMax;
  }

  // Of all sets, or the set of all nodes alone.
  Found search(bool all_nodes) {
    const uint32_t units = times_.units();
    best_.assign(states_ * (units + 1), kNone);
    from_.assign(best_.size(), {});
    best_[0] = 0;
    for (size_t state = 1; state < states_; ++state) {
      for (uint32_t k = 0; k < strides_.size(); ++k) {
        if (count(state, k) > 0) extend(state, k);
      }
    }
    if (all_nodes) return {best_[at(states_ - 1, units)], trace(states_ - 1)};
    double least = kNone;
    for (size_t state = 1; state < states_; ++state)
      least = std::min(least, best_[at(state, units)]);
    size_t chosen = 0;
    for (size_t state = 1; state < states_; ++state) {
      if (best_[at(state, units)] > least * (1 + kSame)) continue;
      if (chosen == 0 || used_nodes(state) < used_nodes(chosen)) chosen = state;
    }
    return {best_[at(chosen, units)], trace(chosen)};
  }

 private:
  struct Step {
    uint32_t kind = 0;
    uint32_t begin = 0;
  };

  size_t at(size_t state, uint32_t units) const { return state * (times_.units() + 1) + units; }
  size_t count(size_t state, size_t kind) const {
    return state / strides_[kind] % (times_.kinds()[kind].members.size() + 1);
  }
  size_t used_nodes(size_t state) const {
    size_t used = 0;
    for (size_t k = 0; k < strides_.size(); ++k) used += count(state, k);
    return used;
  }

  // `state`, with a node of the kind as its last stage.
  void extend(size_t state, uint32_t kind) {
    const uint32_t units = times_.units();
    const size_t before = at(state - strides_[kind], 0);
    const size_t here = at(state, 0);
    for (uint32_t begin = 0; begin < units; ++begin) {
      const double value = best_[before + begin];
      if (value == kNone) continue;
      for (uint32_t end = begin + 1; end <= units; ++end) {
        const double joined = join(goal_, value, times_.kind_us(kind, begin, end));
        if (joined < best_[here + end]) {
          best_[here + end] = joined;
          from_[here + end] = {kind, begin};
        }
      }
    }
  }

  Split trace(size_t state) const {
    Split split;
    uint32_t end = times_.units();
    if (best_[at(state, end)] == kNone) return split;
    while (state != 0) {
      const Step step = from_[at(state, end)];
      split.push_back({times_.kinds()[step.kind].members[count(state, step.kind) - 1], end});
      state -= strides_[step.kind];
      end = step.begin;
    }
    std::reverse(split.begin(), split.end());
    return split;
  }

  const StageTimes& times_;
  const PlanGoal goal_;
  std::vector<size_t> strides_;
  size_t states_ = 1;
  std::vector<double> best_;  // [state][units]
  std::vector<Step> from_;
};

// --- Many sets: orders ---------------------------------------------------------------------------

// The best cuts along an order of nodes; all of them get a stage, or some are skipped.
Found cut_along(const StageTimes& times, const std::vector<uint32_t>& order, PlanGoal goal,
                bool all_nodes) {
  const uint32_t units = times.units();
  const size_t row = units + 1;
  constexpr uint32_t kSkipped = UINT32_MAX;
  std::vector<double> best((order.size() + 1) * row, kNone);
  std::vector<uint32_t> from(best.size(), kSkipped);
  best[0] = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const double* before = &best[i * row];
    double* here = &best[(i + 1) * row];
    if (!all_nodes) std::copy(before, before + row, here);
    for (uint32_t begin = 0; begin < units; ++begin) {
      if (before[begin] == kNone) continue;
      for (uint32_t end = begin + 1; end <= units; ++end) {
        const double joined = join(goal, before[begin], times.us(order[i], begin, end));
        if (joined < here[end]) {
          here[end] = joined;
          from[(i + 1) * row + end] = begin;
        }
      }
    }
  }
  Found found{best.back(), {}};
  if (found.value == kNone) return found;
  uint32_t end = units;
  for (size_t i = order.size(); i > 0; --i) {
    const uint32_t begin = from[i * row + end];
    if (begin == kSkipped) continue;
    found.split.push_back({order[i - 1], end});
    end = begin;
  }
  std::reverse(found.split.begin(), found.split.end());
  return found;
}

class OrderSearch {
 public:
  OrderSearch(const StageTimes& times, PlanGoal goal, bool all_nodes)
      : times_(times), goal_(goal), all_nodes_(all_nodes) {}

  Found search() {
    std::vector<std::vector<uint32_t>> starts;
    const auto start_by = [&](double PlannerNode::*speed, uint64_t PlannerNode::*memory) {
      std::vector<const PlannerNode*> node(times_.nodes());
      for (const NodeKind& kind : times_.kinds()) {
        for (const uint32_t member : kind.members) node[member] = kind.node;
      }
      std::vector<uint32_t> order(times_.nodes());
      std::iota(order.begin(), order.end(), 0U);
      std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return speed != nullptr ? node[a]->*speed > node[b]->*speed
                                : node[a]->*memory > node[b]->*memory;
      });
      starts.push_back(order);
      std::reverse(order.begin(), order.end());
      starts.push_back(std::move(order));
    };
    start_by(&PlannerNode::read_bytes_per_s, nullptr);
    start_by(nullptr, &PlannerNode::memory_bytes);
    steps_of_one_ = std::max<uint64_t>(times_.nodes() * cut_pairs(times_.units()), 1);
    for (std::vector<uint32_t>& start : starts) {
      steps_left_ = kOrderStepsMax / starts.size();
      improve(std::move(start));
    }
    return best_;
  }

 private:
  // Moves one node to another place as long as that is better and there is work left.
  void improve(std::vector<uint32_t> order) {
    Found current = cut_along(times_, order, goal_, all_nodes_);
    for (bool better = true; better;) {
      better = false;
      for (size_t from = 0; from < order.size() && !better; ++from) {
        for (size_t to = 0; to < order.size() && !better; ++to) {
          if (from == to) continue;
          if (steps_left_ < steps_of_one_) return take(std::move(current));
          steps_left_ -= steps_of_one_;
          std::vector<uint32_t> moved = order;
          moved.erase(moved.begin() + static_cast<ptrdiff_t>(from));
          moved.insert(moved.begin() + static_cast<ptrdiff_t>(to), order[from]);
          Found found = cut_along(times_, moved, goal_, all_nodes_);
          if (!(found.value < current.value * (1 - 1e-9))) continue;
          current = std::move(found);
          order = std::move(moved);
          better = true;
        }
      }
    }
    take(std::move(current));
  }

  void take(Found found) {
    if (found.value < best_.value) best_ = std::move(found);
  }

  const StageTimes& times_;
  const PlanGoal goal_;
  const bool all_nodes_;
  uint64_t steps_of_one_ = 1;
  uint64_t steps_left_ = 0;
  Found best_;
};

// Takes stages out as long as the rest is no slower without them.
void drop_idle(const StageTimes& times, PlanGoal goal, Found& found) {
  const double limit = found.value * (1 + kSame);
  for (size_t i = 0; i < found.split.size() && found.split.size() > 1;) {
    std::vector<uint32_t> order;
    for (const SplitStage& stage : found.split) order.push_back(stage.node);
    order.erase(order.begin() + static_cast<ptrdiff_t>(i));
    Found fewer = cut_along(times, order, goal, true);
    if (fewer.value <= limit) {
      found = std::move(fewer);
      i = 0;
    } else {
      ++i;
    }
  }
}

// --- Both ----------------------------------------------------------------------------------------

Found search(const StageTimes& times, PlanGoal goal, bool all_nodes) {
  SetTable table(times, goal);
  Found found =
      table.is_small() ? table.search(all_nodes) : OrderSearch(times, goal, all_nodes).search();
  if (!StageTimes::fits(found.value)) return {};
  if (!all_nodes) drop_idle(times, goal, found);
  return found;
}

// Moves the cuts of a split so that the sum over the stages of `us + weight * us^2` is least, none
// exceeds the bound and every stage keeps a unit. The order of the nodes stays.
Split move_cuts(const StageTimes& times, const Split& split, double bound_us, double plain,
                double square) {
  const uint32_t units = times.units();
  const size_t stages = split.size();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(units + 1, kNone));
  std::vector<std::vector<uint32_t>> from(stages + 1, std::vector<uint32_t>(units + 1, 0));
  best[0][0] = 0;
  for (size_t s = 0; s < stages; ++s) {
    for (uint32_t begin = 0; begin < units; ++begin) {
      if (best[s][begin] == kNone) continue;
      for (uint32_t end = begin + 1; end <= units; ++end) {
        const double us = times.us(split[s].node, begin, end);
        if (us > bound_us || !StageTimes::fits(us)) continue;
        const double sum = best[s][begin] + plain * us + square * us * us;
        if (sum < best[s + 1][end]) {
          best[s + 1][end] = sum;
          from[s + 1][end] = begin;
        }
      }
    }
  }
  if (best[stages][units] == kNone) return split;
  Split moved = split;
  uint32_t end = units;
  for (size_t s = stages; s > 0; --s) {
    moved[s - 1].end = end;
    end = from[s][end];
  }
  return moved;
}

double value_of(const StageTimes& times, const Split& split, PlanGoal goal) {
  double value = 0;
  uint32_t begin = 0;
  for (const SplitStage& stage : split) {
    value = join(goal, value, times.us(stage.node, begin, stage.end));
    begin = stage.end;
  }
  return value;
}

// The most equal stages, for the value that was found: of many streams exactly, of one nearly.
Split balance(const StageTimes& times, const Found& found, PlanGoal goal) {
  if (found.split.size() < 2) return found.split;
  if (goal == PlanGoal::many) return move_cuts(times, found.split, found.value, 0, 1);
  const double limit = found.value * kBalanceSlack;
  Split equal = move_cuts(times, found.split, kNone, 0, 1);
  if (value_of(times, equal, goal) <= limit) return equal;
  // Between the shortest time and the most equal stages: by the weight of the squares.
  Split best = found.split;
  double low = 1e-6 / found.value;
  double high = 1e6 / found.value;
  for (int i = 0; i < 40; ++i) {
    const double weight = std::sqrt(low * high);
    Split moved = move_cuts(times, found.split, kNone, 1, weight);
    if (value_of(times, moved, goal) <= limit) {
      best = std::move(moved);
      low = weight;
    } else {
      high = weight;
    }
  }
  return best;
}

bool holds_some_unit(const StageTimes& times, uint32_t node) {
  for (uint32_t unit = 0; unit < times.units(); ++unit) {
    if (StageTimes::fits(times.us(node, unit, unit + 1))) return true;
  }
  return false;
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

std::optional<Split> find_split(const CostModel& cost, const std::vector<PlannerNode>& nodes,
                                PlanGoal goal) {
  const StageTimes times(cost, nodes);
  const Found found = search(times, goal, false);
  if (found.split.empty()) return std::nullopt;
  return balance(times, found, goal);
}

std::optional<Split> find_split_over_all(const CostModel& cost,
                                         const std::vector<PlannerNode>& nodes) {
  const StageTimes all(cost, nodes);
  std::vector<uint32_t> chosen;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (holds_some_unit(all, i)) chosen.push_back(i);
  }
  // Last in this order: the first to go.
  std::stable_sort(chosen.begin(), chosen.end(), [&](uint32_t a, uint32_t b) {
    return nodes[a].read_bytes_per_s > nodes[b].read_bytes_per_s;
  });
  if (chosen.size() > all.units()) chosen.resize(all.units());
  std::stable_sort(chosen.begin(), chosen.end(), [&](uint32_t a, uint32_t b) {
    return nodes[a].memory_bytes > nodes[b].memory_bytes;
  });
  for (; !chosen.empty(); chosen.pop_back()) {
    std::vector<PlannerNode> subset;
    for (const uint32_t index : chosen) subset.push_back(nodes[index]);
    const StageTimes times(cost, subset);
    const Found found = search(times, PlanGoal::many, true);
    if (found.split.empty()) continue;
    Split split = balance(times, found, PlanGoal::many);
    for (SplitStage& stage : split) stage.node = chosen[stage.node];
    return split;
  }
  return std::nullopt;
}

std::optional<double> time_with_node(const StageTimes& times, const Split& split, uint32_t node,
                                     PlanGoal goal) {
  double least = kNone;
  for (size_t place = 0; place <= split.size(); ++place) {
    std::vector<uint32_t> order;
    for (const SplitStage& stage : split) order.push_back(stage.node);
    order.insert(order.begin() + static_cast<ptrdiff_t>(place), node);
    least = std::min(least, cut_along(times, order, goal, true).value);
  }
  if (!StageTimes::fits(least)) return std::nullopt;
  return least;
}

}  // namespace strata::coordinator
