// Generate and Status: client_records.h to messages and back.
#include <fmt/format.h>

#include "backends/remote/wire.h"
#include "backends/remote/wire_fields.h"

namespace strata::remote {
namespace {

constexpr int kStopsMax = 64;
constexpr int kNodesMax = 65'536;

// Sets or reads one optional number of GenerateRequest; `Set` is the message's setter.
template <typename T>
std::optional<T> take_optional(bool has, T value) {
  return has ? std::optional<T>(value) : std::nullopt;
}

void put_numbers(const GenerateRequest& record, v1::GenerateRequest& out) {
  if (record.temperature) out.set_temperature(*record.temperature);
  if (record.top_k) out.set_top_k(*record.top_k);
  if (record.top_p) out.set_top_p(*record.top_p);
  if (record.min_p) out.set_min_p(*record.min_p);
  if (record.repetition_penalty) out.set_repetition_penalty(*record.repetition_penalty);
  if (record.frequency_penalty) out.set_frequency_penalty(*record.frequency_penalty);
  if (record.presence_penalty) out.set_presence_penalty(*record.presence_penalty);
  if (record.seed) out.set_seed(*record.seed);
}

void take_numbers(const v1::GenerateRequest& in, GenerateRequest& record) {
  record.temperature = take_optional(in.has_temperature(), in.temperature());
  record.top_k = take_optional(in.has_top_k(), in.top_k());
  record.top_p = take_optional(in.has_top_p(), in.top_p());
  record.min_p = take_optional(in.has_min_p(), in.min_p());
  record.repetition_penalty = take_optional(in.has_repetition_penalty(), in.repetition_penalty());
  record.frequency_penalty = take_optional(in.has_frequency_penalty(), in.frequency_penalty());
  record.presence_penalty = take_optional(in.has_presence_penalty(), in.presence_penalty());
  record.seed = take_optional(in.has_seed(), in.seed());
}

void put(const NodeStatus& node, v1::NodeStatus& out) {
  out.set_name(node.name);
  out.set_address(node.address);
  out.set_state(node.state);
  for (const DeviceReport& device : node.devices) put_device(device, *out.add_devices());
  out.set_memory_limit_bytes(node.memory_limit_bytes);
  out.set_used_bytes(node.used_bytes);
  out.set_has_stage(node.range.has_value());
  if (node.range) put_range(*node.range, *out.mutable_range());
  out.set_stage_index(node.stage_index);
  out.set_steps_done(node.steps_done);
  if (node.load) put_load(*node.load, *out.mutable_load());
  out.set_last_heartbeat_ms(node.last_heartbeat_ms);
  put_memory(node.memory, *out.mutable_memory());
  out.set_process_id(node.process_id);
  out.set_detail(node.detail);
  out.set_step_us(node.step_us);
  out.set_forecast_us(node.forecast_us);
  out.set_hop_us(node.hop_us);
}

Result<NodeStatus> take(const v1::NodeStatus& in) {
  NodeStatus node;
  node.name = peer_text(in.name());
  node.address = peer_text(in.address());
  node.state = peer_text(in.state());
  for (const v1::Device& device : in.devices()) node.devices.push_back(TRY(take_device(device)));
  node.memory_limit_bytes = in.memory_limit_bytes();
  node.used_bytes = in.used_bytes();
  if (in.has_stage()) node.range = TRY(take_range(in.range()));
  node.stage_index = in.stage_index();
  node.steps_done = in.steps_done();
  if (in.has_load()) node.load = take_load(in.load());
  node.last_heartbeat_ms = in.last_heartbeat_ms();
  node.memory = take_memory(in.memory());
  node.process_id = in.process_id();
  node.detail = peer_text(in.detail());
  node.step_us = in.step_us();
  node.forecast_us = in.forecast_us();
  node.hop_us = in.hop_us();
  return node;
}

void put(const GenerateToken& token, v1::GenerateToken& out) {
  out.set_id(token.id);
  out.set_text(token.text);
  out.set_logprob(token.logprob);
  for (const auto& [id, logprob] : token.top) {
    out.add_top_tokens(id);
    out.add_top_logprobs(logprob);
  }
  for (const AnswerDelta& delta : token.deltas) {
    v1::AnswerDelta* entry = out.add_deltas();
    entry->set_kind(static_cast<uint32_t>(delta.kind));
    entry->set_text(delta.text);
    entry->set_index(delta.index);
  }
}

Result<GenerateToken> take(const v1::GenerateToken& in) {
  if (in.top_tokens_size() != in.top_logprobs_size()) {
    return invalid_argument(fmt::format("token: {} alternatives with {} logprobs",
                                        in.top_tokens_size(), in.top_logprobs_size()));
  }
  GenerateToken token{.id = in.id(), .text = in.text(), .logprob = in.logprob(), .top = {}};
  for (int i = 0; i < in.top_tokens_size(); ++i) {
    token.top.emplace_back(in.top_tokens(i), in.top_logprobs(i));
  }
  for (const v1::AnswerDelta& entry : in.deltas()) {
    if (entry.kind() > static_cast<uint32_t>(AnswerDelta::Kind::arguments)) {
      return invalid_argument(fmt::format("token: a delta of kind {}", entry.kind()));
    }
    token.deltas.push_back(
        {static_cast<AnswerDelta::Kind>(entry.kind()), entry.text(), entry.index()});
  }
  return token;
}

}  // namespace

v1::GenerateRequest to_proto(const GenerateRequest& record) {
  v1::GenerateRequest out;
  if (const auto* text = std::get_if<std::string>(&record.prompt)) {
    out.set_text(*text);
  } else if (const auto* chat = std::get_if<ChatPrompt>(&record.prompt)) {
    out.mutable_chat()->set_messages(chat->messages);
    out.mutable_chat()->set_tools(chat->tools);
    out.mutable_chat()->set_tool_choice(chat->tool_choice);
  } else {
    const auto& ids = std::get<TokenPrompt>(record.prompt);
    out.mutable_tokens()->mutable_ids()->Assign(ids.begin(), ids.end());
  }
  out.set_max_tokens(record.max_tokens);
  for (const std::string& stop : record.stop) out.add_stop(stop);
  put_numbers(record, out);
  out.set_ignore_end(record.ignore_end);
  out.set_logprobs(record.logprobs);
  out.set_top_logprobs(record.top_logprobs);
  out.set_timeout_ms(record.timeout_ms);
  for (const auto& [token, bias] : record.logit_bias) {
    v1::LogitBias* entry = out.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  if (record.grammar.kind != GrammarSpec::Kind::none) {
    put_grammar(record.grammar, *out.mutable_grammar());
  }
  return out;
}

Result<GenerateRequest> from_proto(const v1::GenerateRequest& message) {
  GenerateRequest record;
  switch (message.prompt_case()) {
    case v1::GenerateRequest::kText:
      record.prompt = message.text();
      break;
    case v1::GenerateRequest::kChat:
      if (message.chat().messages().empty()) {
        return invalid_argument("chat: there is no message");
      }
      record.prompt = ChatPrompt{.messages = message.chat().messages(),
                                 .tools = message.chat().tools(),
                                 .tool_choice = message.chat().tool_choice()};
      break;
    case v1::GenerateRequest::kTokens:
      record.prompt = TokenPrompt(message.tokens().ids().begin(), message.tokens().ids().end());
      break;
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return invalid_argument("the request has no prompt");
  }
  if (message.stop_size() > kStopsMax) {
    return invalid_argument(
        fmt::format("{} stop strings are more than {}", message.stop_size(), kStopsMax));
  }
  record.max_tokens = message.max_tokens();
  for (const std::string& stop : message.stop()) {
    if (stop.empty()) return invalid_argument("stop: an empty string would stop at once");
    record.stop.push_back(stop);
  }
  take_numbers(message, record);
  record.ignore_end = message.ignore_end();
  record.logprobs = message.logprobs();
  record.top_logprobs = message.top_logprobs();
  record.timeout_ms = message.timeout_ms();
  for (const v1::LogitBias& entry : message.logit_bias()) {
    record.logit_bias.emplace_back(entry.token(), entry.bias());
  }
  if (message.has_grammar()) record.grammar = TRY(take_grammar(message.grammar()));
  return record;
}

v1::GenerateEvent to_proto(const GenerateEvent& record) {
  v1::GenerateEvent out;
  if (const auto* started = std::get_if<GenerateStarted>(&record)) {
    out.mutable_started()->set_prompt_tokens(started->prompt_tokens);
    out.mutable_started()->set_seed(started->seed);
    out.mutable_started()->set_model(started->model);
    out.mutable_started()->set_is_split(started->is_split);
  } else if (const auto* token = std::get_if<GenerateToken>(&record)) {
    put(*token, *out.mutable_token());
  } else {
    const auto& finished = std::get<GenerateFinished>(record);
    v1::GenerateFinished& message = *out.mutable_finished();
    message.set_reason(finished.reason);
    message.set_prompt_tokens(finished.prompt_tokens);
    message.set_generated_tokens(finished.generated_tokens);
    message.set_prefill_ms(finished.prefill_ms);
    message.set_decode_ms(finished.decode_ms);
  }
  return out;
}

Result<GenerateEvent> from_proto(const v1::GenerateEvent& message) {
  switch (message.event_case()) {
    case v1::GenerateEvent::kStarted:
      return GenerateEvent(
          GenerateStarted{message.started().prompt_tokens(), message.started().seed(),
                          peer_text(message.started().model()), message.started().is_split()});
    case v1::GenerateEvent::kToken:
      return GenerateEvent(TRY(take(message.token())));
    case v1::GenerateEvent::kFinished: {
      const v1::GenerateFinished& in = message.finished();
      return GenerateEvent(GenerateFinished{peer_text(in.reason()), in.prompt_tokens(),
                                            in.generated_tokens(), in.prefill_ms(),
                                            in.decode_ms()});
    }
    case v1::GenerateEvent::EVENT_NOT_SET:
      break;
  }
  return invalid_argument("an event that this client does not know",
                          "run the same release of strata on both sides");
}

v1::ClusterStatus to_proto(const ClusterStatus& record) {
  v1::ClusterStatus out;
  out.set_state(record.state);
  out.set_detail(record.detail);
  out.set_epoch(record.epoch);
  out.mutable_model()->set_base_name(record.model.base_name);
  out.mutable_model()->set_digest(record.model.digest);
  for (const NodeStatus& node : record.nodes) put(node, *out.add_nodes());
  out.set_live_sequences(record.live_sequences);
  out.set_waiting_sequences(record.waiting_sequences);
  out.set_predicted_tokens_per_s(record.predicted_tokens_per_s);
  out.set_measured_tokens_per_s(record.measured_tokens_per_s);
  put_version(record.version, *out.mutable_version());
  out.set_cluster_id(record.cluster_id);
  return out;
}

Result<ClusterStatus> from_proto(const v1::ClusterStatus& message) {
  if (message.nodes_size() > kNodesMax) {
    return invalid_argument(
        fmt::format("{} nodes are more than {}", message.nodes_size(), kNodesMax));
  }
  ClusterStatus record;
  record.state = peer_text(message.state());
  record.detail = peer_text(message.detail());
  record.epoch = message.epoch();
  record.model = {peer_text(message.model().base_name()), peer_text(message.model().digest())};
  for (const v1::NodeStatus& node : message.nodes()) record.nodes.push_back(TRY(take(node)));
  record.live_sequences = message.live_sequences();
  record.waiting_sequences = message.waiting_sequences();
  record.predicted_tokens_per_s = message.predicted_tokens_per_s();
  record.measured_tokens_per_s = message.measured_tokens_per_s();
  record.version = take_version(message.version());
  record.cluster_id = peer_text(message.cluster_id());
  return record;
}

}  // namespace strata::remote
