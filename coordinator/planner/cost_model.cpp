#include "coordinator/planner/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/base/check.h"
#include "runtime/graph/ops.h"

namespace strata::coordinator {
namespace {

// Of a plain desktop machine; only the ratio between nodes matters, and these make them equal.
constexpr double kPlainReadBytesPerS = 10e9;
constexpr double kPlainInt8OpsPerS = 200e9;
// A weight is about 5 bits in the quant types that matter, and costs a multiply and an add.
constexpr double kOpsPerByte = 8.0 / 5.0 * 2.0;
// gRPC on loopback, where nothing was measured.
constexpr double kPlainHopUs = 150;

constexpr uint64_t kBlockPositionsOfKv = ops::kKvBlockPositions;

bool known(double value) { return std::isfinite(value) && value > 0; }

struct Fallback {
  double value = 0;
  bool is_mean = false;  // of nodes that are known
};

Fallback fallback_of(const std::vector<PlannerNode>& nodes, double PlannerNode::*field,
                     double plain) {
  double sum = 0;
  double count = 0;
  for (const PlannerNode& node : nodes) {
    if (!known(node.*field)) continue;
    sum += node.*field;
    count += 1;
  }
  return count > 0 ? Fallback{sum / count, true} : Fallback{plain, false};
}

void fill_unknown(std::vector<PlannerNode>& nodes, double PlannerNode::*field, double plain) {
  const Fallback fallback = fallback_of(nodes, field, plain);
  for (PlannerNode& node : nodes) {
    if (!known(node.*field)) node.*field = fallback.value;
  }
}

// "a, b and c", the first few of many.
std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 8;
  std::string text;
  const size_t shown = names.size() > kNamed + 1 ? kNamed : names.size();
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == names.size();
    text += (i == 0 ? "" : is_last ? " and " : ", ") + names[i];
  }
  if (shown < names.size()) text += fmt::format(" and {} others", names.size() - shown);
  return text;
}

}  // namespace

std::vector<PlannerNode> with_known_speeds(std::vector<PlannerNode> nodes) {
  fill_unknown(nodes, &PlannerNode::read_bytes_per_s, kPlainReadBytesPerS);
  fill_unknown(nodes, &PlannerNode::int8_ops_per_s, kPlainInt8OpsPerS);
  fill_unknown(nodes, &PlannerNode::hop_us, kPlainHopUs);
  return nodes;
}

std::vector<std::string> assumed_speeds(const std::vector<PlannerNode>& nodes) {
  std::vector<std::string> sentences;
  const std::vector<PlannerNode> complete = with_known_speeds(nodes);
  const auto say = [&](double PlannerNode::*field, double plain, const char* what,
                       const auto& number, const auto& matters) {
    std::vector<std::string> names;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!known(nodes[i].*field) && matters(complete[i])) names.push_back(nodes[i].name);
    }
    if (names.empty()) return;
    const Fallback fallback = fallback_of(nodes, field, plain);
    sentences.push_back(fmt::format("{} of {} is not known; assumed is {}{}", what,
                                    names_text(names), number(fallback.value),
                                    fallback.is_mean ? ", the mean of the others" : ""));
  };
  say(
      &PlannerNode::read_bytes_per_s, kPlainReadBytesPerS, "the speed",
      [](double value) { return fmt::format("{:.1f} GB/s", value / 1e9); },
      [](const PlannerNode&) { return true; });
  say(
      &PlannerNode::int8_ops_per_s, kPlainInt8OpsPerS, "the 8-bit rate",
      [](double value) { return fmt::format("{:.0f} GOP/s", value / 1e9); },
      [](const PlannerNode& node) {
        return node.int8_ops_per_s < node.read_bytes_per_s * kOpsPerByte;
      });
  say(
      &PlannerNode::hop_us, kPlainHopUs, "the time of a hop",
      [](double value) { return fmt::format("{:.0f} µs", value); },
      [&](const PlannerNode&) { return nodes.size() > 1; });
  return sentences;
}

std::vector<PlannerNode> with_shared_hosts(std::vector<PlannerNode> nodes) {
  struct Host {
    uint64_t bytes = 0;   // the most that any node saw: later ones see what earlier ones left
    uint64_t stated = 0;  // of it, for nodes with a stated memory
    uint64_t sharers = 0;
  };
  std::map<std::string, Host> hosts;
  for (const PlannerNode& node : nodes) {
    Host& host = hosts[node.host];
    host.bytes = std::max(host.bytes, node.host_bytes);
    if (node.memory_is_stated) {
      host.stated += std::min(node.memory_bytes, UINT64_MAX - host.stated);
    } else {
      ++host.sharers;
    }
  }
  for (PlannerNode& node : nodes) {
    const Host& host = hosts[node.host];
    if (node.host.empty() || node.memory_is_stated || node.host_bytes == 0) continue;
    const uint64_t rest = host.bytes - std::min(host.bytes, host.stated);
    node.memory_bytes = std::min(node.memory_bytes, rest / host.sharers);
  }
  return nodes;
}

LayerRange layers_of(const ModelProfile& model, UnitRange units) {
  const uint32_t layers = model.layer_count();
  return {.begin = static_cast<int32_t>(std::min(units.begin, layers)),
          .end = static_cast<int32_t>(std::min(units.end, layers)),
          .has_embedding = units.begin == 0,
          .has_head = units.end == model.unit_count()};
}

CostModel::CostModel(const ModelProfile& model, const std::vector<uint32_t>& group_blocks)
    : model_(model), weights_(1, 0), kv_(1, 0) {
  STRATA_CHECK(group_blocks.size() == model.group_windows.size(), "one block count per KV group");
  for (const LayerProfile& layer : model.layers) {
    weights_.push_back(weights_.back() + layer.weights_bytes);
    kv_.push_back(kv_.back() + layer.kv_block_bytes * group_blocks[layer.group]);
  }
}

StageMemoryNeed CostModel::memory(UnitRange units) const {
  const LayerRange range = layers_of(model_, units);
  StageMemoryNeed need;
  need.weights_bytes =
      weights_[static_cast<size_t>(range.end)] - weights_[static_cast<size_t>(range.begin)];
  need.kv_bytes = kv_[static_cast<size_t>(range.end)] - kv_[static_cast<size_t>(range.begin)];
  if (range.has_embedding) need.weights_bytes += model_.input_bytes;
  if (range.has_head) need.weights_bytes += model_.output_bytes;
  // A tied head is the embedding itself: a stage with both holds it once.
  if (range.has_embedding && range.has_head) need.weights_bytes -= model_.output_shared_bytes;
  const uint64_t ends = (range.has_embedding ? 1U : 0U) + (range.has_head ? 1U : 0U);
  need.compute_bytes = model_.compute_bytes[range.has_embedding ? 1 : 0][range.has_head ? 1 : 0] +
                       static_cast<uint64_t>(range.count()) * model_.layer_graph_bytes +
                       ends * model_.end_graph_bytes;
  return need;
}

uint64_t CostModel::bytes_read(UnitRange units) const {
  const LayerRange range = layers_of(model_, units);
  const uint64_t layers =
      weights_[static_cast<size_t>(range.end)] - weights_[static_cast<size_t>(range.begin)];
  return layers + (range.has_head ? model_.output_bytes : 0);
}

StepForecast CostModel::forecast(const PlannerNode& node, UnitRange units) const {
  const double bytes = static_cast<double>(bytes_read(units));
  const double operations = bytes * kOpsPerByte;
  double position_bytes = 0;
  const LayerRange range = layers_of(model_, units);
  for (int32_t layer = range.begin; layer < range.end; ++layer) {
    position_bytes += static_cast<double>(model_.layers[static_cast<size_t>(layer)].kv_block_bytes);
  }
  position_bytes /= static_cast<double>(kBlockPositionsOfKv);
  return {.read_us = bytes / node.read_bytes_per_s * 1e6,
          .token_us = operations / node.int8_ops_per_s * 1e6,
          .position_us = position_bytes / node.read_bytes_per_s * 1e6};
}

double CostModel::step_us(const PlannerNode& node, UnitRange units) const {
  const bool hands_on = units.end != model_.unit_count() || units.begin != 0;
  const StepForecast steps = forecast(node, units);
  return std::max(steps.read_us, steps.token_us) + (hands_on ? node.hop_us : 0);
}

std::vector<uint32_t> blocks_for(const ModelProfile& model, uint32_t context, uint32_t sequences,
                                 uint32_t step_tokens) {
  std::vector<uint32_t> blocks;
  for (const uint32_t window : model.group_windows) {
    uint64_t one = (context + kBlockPositionsOfKv - 1) / kBlockPositionsOfKv;
    if (window != 0) {
      const uint64_t seen = static_cast<uint64_t>(window) - 1 + step_tokens;
      one = std::min(one, (seen + kBlockPositionsOfKv - 1) / kBlockPositionsOfKv + 1);
    }
    blocks.push_back(static_cast<uint32_t>(std::min<uint64_t>(one * sequences, 1U << 30)));
  }
  return blocks;
}

}  // namespace strata::coordinator
