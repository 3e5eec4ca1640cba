#include "coordinator/planner/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/human.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text_table.h"

namespace strata::coordinator {
namespace {

double sum_us(const Plan& plan) {
  double sum = 0;
  for (const PlannedStage& stage : plan.stages) sum += stage.step_us;
  return sum;
}

double slowest_us(const Plan& plan) {
  double slowest = 0;
  for (const PlannedStage& stage : plan.stages) slowest = std::max(slowest, stage.step_us);
  return slowest;
}

// "0-9", "10-29 + head", "head".
std::string layers_text(const LayerRange& range) {
  std::string text;
  if (range.count() == 1) text = fmt::format("{}", range.begin);
  if (range.count() > 1) text = fmt::format("{}-{}", range.begin, range.end - 1);
  if (range.has_head) text += text.empty() ? "head" : " + head";
  return text;
}

}  // namespace

double Plan::predicted_tokens_per_s() const {
  const double us = sum_us(*this);
  return us > 0 ? 1e6 / us : 0;
}

double Plan::predicted_pipelined_tokens_per_s() const {
  const double us = slowest_us(*this);
  return us > 0 ? 1e6 / us : 0;
}

Duration Plan::token_allowance() const {
  // A prompt's tokens are cheaper than decoded ones; long contexts and busy machines are not.
  constexpr double kAllowance = 4;
  constexpr double kMostUs = 60e6;
  const double us = step_time_by_plan ? std::min(kAllowance * sum_us(*this), kMostUs) : 0;
  return std::chrono::microseconds(static_cast<int64_t>(us));
}

std::string Plan::split_text() const {
  std::string text;
  for (const PlannedStage& stage : stages) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", stage.range.count());
  }
  return text;
}

Status check_plan(const Plan& plan, const ModelProfile& model) {
  if (plan.stages.empty()) return internal_error("the plan has no stages");
  std::set<uint32_t> nodes;
  int32_t next = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlannedStage& stage = plan.stages[i];
    const bool first = i == 0;
    const bool last = i + 1 == plan.stages.size();
    if (stage.range.begin != next || stage.range.end < stage.range.begin) {
      return internal_error(
          fmt::format("stage {} begins at layer {}, not {}", i, stage.range.begin, next));
    }
    if (stage.range.has_embedding != first || stage.range.has_head != last) {
      return internal_error(fmt::format("stage {} has the wrong ends of the model", i));
    }
    if (stage.range.count() == 0 && !last) {
      return internal_error(fmt::format("stage {} is empty", i));
    }
    if (!nodes.insert(stage.node).second) {
      return internal_error(fmt::format("{} has two stages", stage.node_name));
    }
    if (stage.need.total() > stage.have_bytes) {
      return internal_error(fmt::format("{} has too little memory", stage.node_name));
    }
    next = stage.range.end;
  }
  if (next != static_cast<int32_t>(model.layer_count())) {
    return internal_error(
        fmt::format("the plan ends at layer {} of {}", next, model.layer_count()));
  }
  return ok_status();
}

std::string plan_table(const Plan& plan) {
  std::vector<std::vector<std::string>> rows = {
      {"node", "device", "layers", "weights", "KV cache", "compute", "need", "have", "step"}};
  const double sum = sum_us(plan);
  for (const PlannedStage& stage : plan.stages) {
    rows.push_back({stage.node_name, stage.device, layers_text(stage.range),
                    human_bytes(stage.need.weights_bytes), human_bytes(stage.need.kv_bytes),
                    human_bytes(stage.need.compute_bytes), human_bytes(stage.need.total()),
                    human_bytes(stage.have_bytes),
                    fmt::format("{:.2f} ms {:3.0f}%", stage.step_us / 1e3,
                                sum > 0 ? stage.step_us / sum * 100 : 0)});
  }
  std::string text = table_text(rows, {3, 4, 5, 6, 7, 8});
  for (const LeftOut& node : plan.left_out) {
    text += fmt::format("{}  spare: {}\n", node.node, node.why);
  }
  text += fmt::format(
      "context {} tokens, KV cache for {} of them at once; predicted {:.1f} tokens/s for one "
      "sequence",
      human_count(plan.context), plan.sequences, plan.predicted_tokens_per_s());
  if (plan.stages.size() > 1) {
    text += fmt::format(", {:.1f} for {} or more", plan.predicted_pipelined_tokens_per_s(),
                        plan.stages.size());
  }
  text += "\n";
  for (const std::string& remark : plan.remarks) text += fmt::format("note: {}\n", remark);
  return text;
}

std::string plan_json(const Plan& plan) {
  nlohmann::json stages = nlohmann::json::array();
  const double sum = sum_us(plan);
  for (const PlannedStage& stage : plan.stages) {
    stages.push_back({{"node", stage.node_name},
                      {"device", stage.device},
                      {"layer_begin", stage.range.begin},
                      {"layer_end", stage.range.end},
                      {"has_embedding", stage.range.has_embedding},
                      {"has_head", stage.range.has_head},
                      {"weights_bytes", stage.need.weights_bytes},
                      {"kv_bytes", stage.need.kv_bytes},
                      {"compute_bytes", stage.need.compute_bytes},
                      {"need_bytes", stage.need.total()},
                      {"have_bytes", stage.have_bytes},
                      {"step_us", stage.step_us},
                      {"share", sum > 0 ? stage.step_us / sum : 0}});
  }
  nlohmann::json spares = nlohmann::json::array();
  nlohmann::json left_out = nlohmann::json::array();
  for (const LeftOut& node : plan.left_out) {
    spares.push_back(node.node);
    left_out.push_back({{"node", node.node}, {"why", node.why}});
  }
  const nlohmann::json object = {
      {"model", plan.model},
      {"plan_for", plan.goal == PlanGoal::one ? "one" : "many"},
      {"context", plan.context},
      {"sequences", plan.sequences},
      {"group_blocks", plan.group_blocks},
      {"split", plan.split_text()},
      {"stages", stages},
      {"spares", spares},
      {"left_out", left_out},
      {"remarks", plan.remarks},
      {"predicted_tokens_per_s", plan.predicted_tokens_per_s()},
      {"predicted_pipelined_tokens_per_s", plan.predicted_pipelined_tokens_per_s()}};
  return dump_json(object);
}

}  // namespace strata::coordinator
