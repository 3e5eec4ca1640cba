// Cost model: how long a stage takes for a step, and how much memory it needs.
//
// Decoding reads every weight of the stage once, whatever the batch: t = bytes / bandwidth, or the
// products' operations / rate if that is longer. A hop to the next stage costs its latency.
// The time is for one decoding token; it is what the planner balances, and its prediction stands
// beside the measured value in `strata bench`.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/planner/model_profile.h"

namespace strata::coordinator {

// A node as the planner sees it. Zero, negative and non-finite speeds count as unknown.
struct PlannerNode {
  std::string name;
  std::string device;         // for people
  uint64_t memory_bytes = 0;  // that a stage may use
  // Nodes with the same non-empty host share its memory, of which so much was free for them.
  std::string host = {};
  uint64_t host_bytes = 0;
  bool memory_is_stated = false;  // memory_bytes, by a person: not shared out
  double read_bytes_per_s = 0;    // weights from memory
  double int8_ops_per_s = 0;      // multiply and add count as two
  double hop_us = 0;              // to hand a step on; 0: unknown
};

// Replaces unknown speeds by the mean of the known ones, or by a plain machine's where nobody
// knows: unmeasured nodes then count as equal.
std::vector<PlannerNode> with_known_speeds(std::vector<PlannerNode> nodes);
// What that assumes, as sentences that name the nodes; nothing where all is known.
std::vector<std::string> assumed_speeds(const std::vector<PlannerNode>& nodes);

// Several nodes on one host each report what is free there. What a person stated for some of them
// is theirs; the others get equal parts of the rest.
std::vector<PlannerNode> with_shared_hosts(std::vector<PlannerNode> nodes);

// Units [begin, end) of the model; see ModelProfile.
struct UnitRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t count() const { return end - begin; }
  bool operator==(const UnitRange&) const = default;
};
LayerRange layers_of(const ModelProfile& model, UnitRange units);

struct StageMemoryNeed {
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t compute_bytes = 0;
  uint64_t total() const { return weights_bytes + kv_bytes + compute_bytes; }
};

// What a stage takes for a step: reading the weights, or if that is longer the products of the
// tokens; and reading what the tokens' rows see of the KV cache.
struct StepForecast {
  double read_us = 0;
  double token_us = 0;     // for each token
  double position_us = 0;  // for each position of the cache that a row reads
};

// Prefix sums over a model's units, so that a range costs a subtraction.
class CostModel {
 public:
  // `group_blocks`: KV blocks by group. Requires: one per group of the model.
  CostModel(const ModelProfile& model, const std::vector<uint32_t>& group_blocks);

  StageMemoryNeed memory(UnitRange units) const;
  // Bytes of weights that one decoding step reads.
  uint64_t bytes_read(UnitRange units) const;
  // Microseconds, the hop to the next stage included if there is one. Requires: known speeds.
  double step_us(const PlannerNode& node, UnitRange units) const;
  // Without the hop.
  StepForecast forecast(const PlannerNode& node, UnitRange units) const;

  const ModelProfile& model() const { return model_; }

 private:
  const ModelProfile& model_;
  std::vector<uint64_t> weights_;  // [i]: of layers before i
  std::vector<uint64_t> kv_;
};

// KV blocks by group that `sequences` sequences of `context` positions need, fed `step_tokens` at a
// time.
std::vector<uint32_t> blocks_for(const ModelProfile& model, uint32_t context, uint32_t sequences,
                                 uint32_t step_tokens);

}  // namespace strata::coordinator
