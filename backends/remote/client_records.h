// What a client asks of a coordinator, and what it gets back, as plain values.
//
// proto/strata/v1/cluster.proto mirrors these records and wire.h converts. docs/wire.md lists them.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backends/remote/cluster_records.h"
#include "runtime/sampling/grammar_spec.h"
#include "runtime/text/answer/answer_delta.h"

namespace strata::remote {

// A conversation: JSON texts as in OpenAI's chat API.
struct ChatPrompt {
  std::string messages;          // a list
  std::string tools = {};        // a list; empty: none
  std::string tool_choice = {};  // empty: "auto"
};
using TokenPrompt = std::vector<int32_t>;

// A number that is not set means: the model's or the project's default.
struct GenerateRequest {
  std::variant<std::string, ChatPrompt, TokenPrompt> prompt;
  uint32_t max_tokens = 0;  // 0: up to the context's end
  std::vector<std::string> stop;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> presence_penalty;
  std::optional<uint64_t> seed;
  bool ignore_end = false;  // goes on after an end token, for measuring
  bool logprobs = false;
  int32_t top_logprobs = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint32_t timeout_ms = 0;  // for the whole answer, waiting included; 0: the coordinator's default
  GrammarSpec grammar;      // kind none: any answer
};

struct GenerateStarted {
  uint32_t prompt_tokens = 0;
  uint64_t seed = 0;
  std::string model;
  bool is_split = false;  // tokens bring deltas; else all text is content
};

struct GenerateToken {
  int32_t id = -1;
  std::string text;  // as the model writes it; whole characters only; may be empty
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;
  std::vector<AnswerDelta> deltas = {};  // what of it is reasoning, content and calls
};

struct GenerateFinished {
  std::string reason;  // "stop", "length", or "tool_calls" if the answer has some
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
};

using GenerateEvent = std::variant<GenerateStarted, GenerateToken, GenerateFinished>;

struct NodeStatus {
  std::string name;
  std::string address;
  std::string state;  // joined, spare, loading, ready, lost
  std::vector<DeviceReport> devices;
  uint64_t memory_limit_bytes = 0;
  uint64_t used_bytes = 0;
  std::optional<LayerRange> range;
  uint32_t stage_index = 0;
  uint64_t steps_done = 0;
  std::optional<LoadProgress> load;
  uint32_t last_heartbeat_ms = 0;
  StageMemory memory;
  uint64_t process_id = 0;
  // What a step took lately, and what the plan foretold for such steps; 0: not known.
  double step_us = 0;
  double forecast_us = 0;
  double hop_us = 0;   // to hand a step on; 0: not known
  std::string detail;  // why it is a spare, or that it is far slower than foretold
};

struct ClusterStatus {
  std::string state;   // waiting, loading, ready, degraded, stopping
  std::string detail;  // one sentence: what it waits for or what went wrong
  uint64_t epoch = 0;
  ModelName model;
  std::vector<NodeStatus> nodes;
  uint32_t live_sequences = 0;
  uint32_t waiting_sequences = 0;
  double predicted_tokens_per_s = 0;  // 0: there is no plan
  double measured_tokens_per_s = 0;
  Version version;
  std::string cluster_id;
};

}  // namespace strata::remote
