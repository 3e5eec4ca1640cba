#include "coordinator/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "coordinator/planner/split_search.h"
#include "runtime/base/check.h"
#include "runtime/base/human.h"

namespace strata::coordinator {
namespace {

struct Placement {
  uint32_t node;
  UnitRange units;
};

Plan build(const ModelProfile& model, const std::vector<PlannerNode>& nodes,
           const std::vector<Placement>& placements, const CostModel& cost) {
  Plan plan;
  plan.model = model.name;
  for (const Placement& placement : placements) {
    const PlannerNode& node = nodes[placement.node];
    plan.stages.push_back({.node = placement.node,
                           .node_name = node.name,
                           .device = node.device,
                           .range = layers_of(model, placement.units),
                           .need = cost.memory(placement.units),
                           .have_bytes = node.memory_bytes,
                           .step_us = cost.step_us(node, placement.units),
                           .forecast = cost.forecast(node, placement.units)});
  }
  return plan;
}

std::string need_text(const StageMemoryNeed& need) {
  return fmt::format("{} (weights {}, KV cache {}, activations {})", human_bytes(need.total()),
                     human_bytes(need.weights_bytes), human_bytes(need.kv_bytes),
                     human_bytes(need.compute_bytes));
}

// The split that a person asked for, as placements in order.
Result<std::vector<Placement>> place_split(const ModelProfile& model,
                                           const std::vector<PlannerNode>& nodes,
                                           const std::vector<SplitEntry>& split) {
  if (split.size() > nodes.size()) {
    return invalid_argument(fmt::format("the split has {} stages, but there are {} workers",
                                        split.size(), nodes.size()));
  }
  std::vector<bool> taken(nodes.size());
  const auto index_of = [&](const std::string& name) {
    return static_cast<size_t>(
        std::find_if(nodes.begin(), nodes.end(),
                     [&](const PlannerNode& node) { return node.name == name; }) -
        nodes.begin());
  };
  for (const SplitEntry& entry : split) {
    if (entry.node.empty()) continue;
    const size_t index = index_of(entry.node);
    if (index == nodes.size()) {
      std::string names;
      for (const PlannerNode& node : nodes) names += (names.empty() ? "" : ", ") + node.name;
      return invalid_argument(
          fmt::format("--split names '{}', and there is no such worker", entry.node),
          fmt::format("there {}: {}", nodes.size() == 1 ? "is" : "are", names));
    }
    if (taken[index]) {
      return invalid_argument(fmt::format("the split names '{}' twice", entry.node));
    }
    taken[index] = true;
  }
  std::vector<Placement> placements;
  uint32_t begin = 0;
  size_t next_free = 0;
  for (size_t i = 0; i < split.size(); ++i) {
    size_t node = index_of(split[i].node);
    if (split[i].node.empty()) {
      while (taken[next_free]) ++next_free;
      node = next_free;
      taken[node] = true;
    }
    const bool last = i + 1 == split.size();
    const uint32_t end = begin + split[i].layers + (last ? 1 : 0);
    placements.push_back({static_cast<uint32_t>(node), {begin, end}});
    begin = end;
  }
  if (begin != model.unit_count()) {
    return invalid_argument(
        fmt::format("the split has {} layers, the model {}", begin - 1, model.layer_count()));
  }
  return placements;
}

// The worst overrun of a fixed placement; ok if all fit.
Status check_memory(const ModelProfile& model, const std::vector<PlannerNode>& nodes,
                    const std::vector<Placement>& placements, const CostModel& cost) {
  const Placement* worst = nullptr;
  uint64_t worst_short = 0;
  for (const Placement& placement : placements) {
    const uint64_t need = cost.memory(placement.units).total();
    const uint64_t have = nodes[placement.node].memory_bytes;
    if (need > have && need - have > worst_short) {
      worst = &placement;
      worst_short = need - have;
    }
  }
  if (worst == nullptr) return ok_status();
  return resource_exhausted(fmt::format(
      "short by {} on {}: {} need {}, it has {}", human_bytes(worst_short), nodes[worst->node].name,
      layer_range_text(layers_of(model, worst->units)), need_text(cost.memory(worst->units)),
      human_bytes(nodes[worst->node].memory_bytes)));
}

std::vector<Placement> to_placements(const Split& split) {
  std::vector<Placement> placements;
  uint32_t begin = 0;
  for (const SplitStage& stage : split) {
    placements.push_back({stage.node, {begin, stage.end}});
    begin = stage.end;
  }
  return placements;
}

// What is missing when no split fits: the whole against the sum, or the place where it breaks.
Status explain_shortage(const ModelProfile& model, const std::vector<PlannerNode>& nodes,
                        const CostModel& cost) {
  uint64_t have = 0;
  uint64_t compute = 0;
  const PlannerNode* largest = &nodes[0];
  for (const PlannerNode& node : nodes) {
    have += node.memory_bytes;
    compute += model.compute_bytes[0][0];
    if (node.memory_bytes > largest->memory_bytes) largest = &node;
  }
  StageMemoryNeed need = cost.memory({0, model.unit_count()});
  need.compute_bytes = std::max(need.compute_bytes, compute);
  if (need.total() > have) {
    return resource_exhausted(fmt::format("short by {}: {} needs {}, the {} worker{} have {}",
                                          human_bytes(need.total() - have), model.name,
                                          need_text(need), nodes.size(),
                                          nodes.size() == 1 ? "" : "s", human_bytes(have)));
  }
  // Enough in all, but some piece fits nowhere beside what must stand with it.
  UnitRange largest_unit{0, 1};
  for (uint32_t unit = 0; unit < model.unit_count(); ++unit) {
    if (cost.memory({unit, unit + 1}).total() > cost.memory(largest_unit).total()) {
      largest_unit = {unit, unit + 1};
    }
  }
  const StageMemoryNeed piece = cost.memory(largest_unit);
  if (piece.total() > largest->memory_bytes) {
    return resource_exhausted(fmt::format(
        "short by {} on {}, the worker with the most memory: {} alone needs {}, it has {}",
        human_bytes(piece.total() - largest->memory_bytes), largest->name,
        layer_range_text(layers_of(model, largest_unit)), need_text(piece),
        human_bytes(largest->memory_bytes)));
  }
  return resource_exhausted(
      fmt::format("{} needs {} and the {} workers have {}, but no cut between layers fits them all",
                  model.name, need_text(need), nodes.size(), human_bytes(have)));
}

struct Search {
  const ModelProfile& model;
  const std::vector<PlannerNode>& nodes;
  const PlanOptions& options;

  Result<Plan> run(uint32_t context, uint32_t sequences) const {
    // A step as long as any context leaves no block behind a window.
    const uint32_t step_tokens = options.ignore_windows ? UINT32_MAX : options.step_tokens;
    const std::vector<uint32_t> blocks = blocks_for(model, context, sequences, step_tokens);
    const CostModel cost(model, blocks);
    std::vector<Placement> placements;
    if (!options.split.empty()) {
      placements = TRY(place_split(model, nodes, options.split));
      TRY(check_memory(model, nodes, placements, cost));
    } else {
      std::optional<Split> split;
      if (options.use_all_nodes) split = find_split_over_all(cost, nodes);
      if (!split) split = find_split(cost, nodes, options.goal);
      if (!split) return explain_shortage(model, nodes, cost);
      placements = to_placements(*split);
    }
    Plan plan = build(model, nodes, placements, cost);
    plan.context = context;
    plan.sequences = sequences;
    plan.group_blocks = blocks;
    plan.goal = options.goal;
    plan.step_time_by_plan = options.step_time_by_plan;
    return plan;
  }

  // The largest context, in steps of 256, with which a plan exists; 0 if none.
  uint32_t context_that_fits() const {
    uint32_t low = 0;
    uint32_t high = options.context / 256;
    while (low < high) {
      const uint32_t middle = low + (high - low + 1) / 2;
      if (run(middle * 256, 1).ok()) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low * 256;
  }
};

}  // namespace

Result<std::vector<SplitEntry>> parse_split(std::string_view text,
                                            std::optional<uint32_t> layer_count) {
  if (text.empty()) {
    return invalid_argument("--split: no layers are given",
                            "write layers per stage, such as 10,12,8 or worker-1:10,worker-2:20");
  }
  std::vector<SplitEntry> entries;
  uint64_t sum = 0;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;
    SplitEntry entry;
    const std::string_view whole = part;
    if (const size_t colon = part.rfind(':'); colon != std::string_view::npos) {
      entry.node = part.substr(0, colon);
      part = part.substr(colon + 1);
      if (entry.node.empty()) {
        return invalid_argument(fmt::format("--split: '{}' names no worker before ':'", whole));
      }
    }
    const auto [stop, error] =
        std::from_chars(part.data(), part.data() + part.size(), entry.layers);
    if (error != std::errc() || stop != part.data() + part.size()) {
      return invalid_argument(fmt::format("--split: '{}' is not a number of layers", whole),
                              "write layers per stage, such as 10,12,8 or worker-1:10,worker-2:20");
    }
    if (entry.layers == 0 && (begin <= text.size() || entries.empty())) {
      return invalid_argument(
          "--split: only the last of several stages may have 0 layers (it holds the output head)");
    }
    const bool is_named_twice =
        !entry.node.empty() &&
        std::any_of(entries.begin(), entries.end(),
                    [&](const SplitEntry& other) { return other.node == entry.node; });
    if (is_named_twice) {
      return invalid_argument(fmt::format("--split {}: '{}' is named twice", text, entry.node),
                              "a worker holds one stage");
    }
    sum += entry.layers;
    entries.push_back(std::move(entry));
  }
  if (layer_count && sum != *layer_count) {
    return invalid_argument(
        fmt::format("--split {}: {} layers in all, the model has {}", text, sum, *layer_count),
        "give each layer to one stage");
  }
  return entries;
}

namespace {

// More contexts than the one that is required may cost so much of the goal's time, not more.
constexpr double kSequencesSlack = 1.05;

double goal_us(const Plan& plan, PlanGoal goal) {
  return 1e6 / (goal == PlanGoal::one ? plan.predicted_tokens_per_s()
                                      : plan.predicted_pipelined_tokens_per_s());
}

Status check_nodes(const std::vector<PlannerNode>& nodes) {
  if (nodes.empty()) return invalid_argument("no workers to plan for", "start some workers");
  std::set<std::string> names;
  for (const PlannerNode& node : nodes) {
    if (!names.insert(node.name).second) {
      return invalid_argument(fmt::format("two nodes are named '{}'", node.name),
                              "give each node its own name");
    }
  }
  return ok_status();
}

// The nodes that may be used, and where each one stands among all.
struct Candidates {
  std::vector<PlannerNode> nodes;
  std::vector<uint32_t> index;
};

Result<Candidates> candidates(const std::vector<PlannerNode>& nodes, const PlanOptions& options) {
  const auto is_excluded = [&](const std::string& name) {
    return std::find(options.exclude.begin(), options.exclude.end(), name) != options.exclude.end();
  };
  for (const SplitEntry& entry : options.split) {
    if (!entry.node.empty() && is_excluded(entry.node)) {
      return invalid_argument(
          fmt::format("--split gives layers to '{}', which --exclude leaves out", entry.node),
          "take it out of one of the two");
    }
  }
  Candidates result;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (is_excluded(nodes[i].name)) continue;
    result.nodes.push_back(nodes[i]);
    result.index.push_back(i);
  }
  if (result.nodes.empty()) {
    return invalid_argument(fmt::format("--exclude leaves out all {} workers", nodes.size()),
                            "start others, or exclude fewer");
  }
  return result;
}

// "a alone", "a and b", "4 of them".
std::string stage_names(const Plan& plan) {
  if (plan.stages.size() == 1) return plan.stages[0].node_name + " alone";
  if (plan.stages.size() == 2) {
    return plan.stages[0].node_name + " and " + plan.stages[1].node_name;
  }
  return fmt::format("{} of them", plan.stages.size());
}

// Why nodes have no stage, and what it costs that all have one.
class Explanation {
 public:
  Explanation(const Search& search, const Plan& plan)
      : search_(search),
        plan_(plan),
        cost_(search.model, plan.group_blocks),
        times_(cost_, search.nodes) {
    for (const PlannedStage& stage : plan.stages) {
      const auto end = static_cast<uint32_t>(stage.range.end);
      split_.push_back({stage.node, end + (stage.range.has_head ? 1 : 0)});
    }
  }

  std::string why_left_out(uint32_t node) const {
    if (!search_.options.split.empty()) return "--split gives it no layers";
    const uint32_t units = search_.model.unit_count();
    const std::string have = human_bytes(search_.nodes[node].memory_bytes);
    uint64_t least = UINT64_MAX;
    for (uint32_t unit = 0; unit < units; ++unit) {
      least = std::min(least, cost_.memory({unit, unit + 1}).total());
    }
    if (least > search_.nodes[node].memory_bytes) {
      return fmt::format("the smallest part of the model needs {}, it has {}", human_bytes(least),
                         have);
    }
    if (split_.size() == units) {
      return fmt::format("the model has {} parts ({} layers and the output head), all are placed",
                         units, units - 1);
    }
    const std::optional<double> us = time_with_node(times_, split_, node, plan_.goal);
    if (!us) return fmt::format("no cut between layers gives it a part that fits its {}", have);
    const bool is_one = plan_.goal == PlanGoal::one;
    return fmt::format("{} at {:.1f} tokens/s with it, and {:.1f} without",
                       is_one ? "one sequence would run" : "many sequences would run", 1e6 / *us,
                       1e6 / goal_us(plan_, plan_.goal));
  }

  // Nothing if the best plan for the goal is no faster.
  std::string cost_of_all(PlanGoal goal) const {
    PlanOptions options = search_.options;
    options.use_all_nodes = false;
    options.goal = goal;
    const Search free_choice{search_.model, search_.nodes, options};
    const Result<Plan> best = free_choice.run(plan_.context, plan_.sequences);
    if (!best.ok() || goal_us(*best, goal) * kSequencesSlack > goal_us(plan_, goal)) return {};
    return fmt::format("--workers uses all {}: {} at {:.1f} tokens/s, and would at {:.1f} on {}",
                       plan_.stages.size(),
                       goal == PlanGoal::one ? "one sequence runs" : "many sequences run",
                       1e6 / goal_us(plan_, goal), 1e6 / goal_us(*best, goal), stage_names(*best));
  }

 private:
  const Search& search_;
  const Plan& plan_;
  const CostModel cost_;
  const StageTimes times_;
  Split split_;
};

void explain(const Search& search, Plan& plan) {
  const Explanation explanation(search, plan);
  std::vector<bool> used(search.nodes.size());
  for (const PlannedStage& stage : plan.stages) used[stage.node] = true;
  for (uint32_t i = 0; i < used.size(); ++i) {
    if (!used[i]) plan.left_out.push_back({search.nodes[i].name, explanation.why_left_out(i)});
  }
  if (!search.options.use_all_nodes || !search.options.split.empty()) return;
  for (const PlanGoal goal : {PlanGoal::one, PlanGoal::many}) {
    std::string cost = explanation.cost_of_all(goal);
    if (!cost.empty()) plan.remarks.push_back(std::move(cost));
  }
}

// With one context sure, as many more as the memory allows without a slower plan.
Result<Plan> with_more_sequences(const Search& search, Plan plan) {
  const double limit = goal_us(plan, plan.goal) * kSequencesSlack;
  for (uint32_t sequences = std::max(search.options.sequences_wanted, 1U); sequences > 1;
       --sequences) {
    Result<Plan> larger = search.run(search.options.context, sequences);
    if (larger.ok() && goal_us(*larger, larger->goal) <= limit) return larger;
  }
  return plan;
}

}  // namespace

Result<Plan> make_plan(const ModelProfile& model, const std::vector<PlannerNode>& nodes,
                       const PlanOptions& options) {
  TRY(check_nodes(nodes));
  if (options.context == 0) return invalid_argument("a context of 0 tokens");
  if (model.layers.empty()) return invalid_argument(model.name + " has no layers");
  const Candidates usable = TRY(candidates(nodes, options));
  const std::vector<PlannerNode> known = with_known_speeds(with_shared_hosts(usable.nodes));
  const Search search{model, known, options};
  Result<Plan> first = search.run(options.context, 1);
  if (!first.ok()) {
    if (first.status().code() != StatusCode::resource_exhausted) return first;
    const uint32_t context = search.context_that_fits();
    return first.status().with_hint(
        context > 0 ? fmt::format("a context of {} tokens would fit: --ctx {}", context, context)
                    : std::string("add a worker, give the workers more --memory, or take a smaller "
                                  "quantisation of the model"));
  }
  Plan plan = TRY(with_more_sequences(search, std::move(first).value()));
  plan.remarks = assumed_speeds(usable.nodes);
  explain(search, plan);
  for (PlannedStage& stage : plan.stages) stage.node = usable.index[stage.node];
  for (const PlannerNode& node : nodes) {
    const bool is_excluded = std::find(options.exclude.begin(), options.exclude.end(), node.name) !=
                             options.exclude.end();
    if (is_excluded) plan.left_out.push_back({node.name, "--exclude leaves it out"});
  }
  TRY(check_plan(plan, model));
  return plan;
}

}  // namespace strata::coordinator
