#include "backends/remote/wire.h"
#include "tests/fuzz/corpus.h"

namespace strata::fuzz {
namespace {

using namespace remote;

constexpr const char* kDigest =
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

std::string stream_of(char reader, const Frame& frame) {
  const FramePiece piece = cut_piece(frame, 0);
  std::string message(reinterpret_cast<const char*>(piece.header.data()), piece.header.size());
  message.append(reinterpret_cast<const char*>(piece.record.data()), piece.record.size());
  message.append(reinterpret_cast<const char*>(piece.rows.data()), piece.rows.size());
  std::string input(1, reader);
  for (int i = 0; i < 2; ++i) {
    input += static_cast<char>(message.size() & 0xff);
    input += static_cast<char>(message.size() >> 8);
    input += message;
  }
  return input;
}

StepFrame step() {
  StepFrame frame;
  frame.plan.epoch = 3;
  frame.plan.step_id = 9;
  OpenSequence open;
  open.slot = 1;
  open.sequence_id = 5;
  open.sampling.logit_bias = {{3, 1.0f}};
  open.end_ids = {2};
  open.history = {7, 8};
  frame.plan.opens = {open};
  frame.plan.closes = {1};
  frame.plan.block_changes = {{1, 0, 0, 4}};
  frame.plan.block_copies = {{0, 1, 2}};
  frame.plan.rows = {{1, 0, 2, StepRow::sample},
                     {2, 9, 1, StepRow::input_from_tail | StepRow::want_logits}};
  frame.plan.tokens = {10, 11};
  frame.activations.assign(3 * 4, 0.5f);
  return frame;
}

StepResult result() {
  StepResult made;
  made.epoch = 3;
  TokenRecord record;
  record.token = 4;
  record.top = {{4, -0.5f}, {5, -1.0f}};
  record.logits = {1, 2, 3};
  record.error = data_loss("non-finite logits", "a hint");
  made.records = {record, TokenRecord{}};
  return made;
}

Hello hello() {
  Hello made;
  made.name = "worker-1";
  made.identity = std::string(32, 'a');
  made.listen_address = "[::1]:5000";
  made.devices.resize(1);
  made.devices[0].name = "CPU";
  made.host_id = std::string(32, 'b');
  made.held_model_digest = kDigest;
  made.held_range = {0, 4, true, false};
  return made;
}

}  // namespace

std::vector<std::string> corpus() {
  const Frame step_frame = to_frame(step()).value();
  const Frame result_frame = to_frame(result()).value();
  std::vector<std::string> inputs;
  inputs.push_back(stream_of(0, step_frame));
  inputs.push_back(stream_of(1, result_frame));
  inputs.push_back('\2' + step_frame.record);
  TokenRecord without_logits;
  StepResult small;
  small.records = {without_logits};
  inputs.push_back('\3' + to_frame(small).value().record);
  inputs.push_back('\4' + to_proto(FromWorker(hello())).SerializeAsString());
  Heartbeat beat;
  beat.load = LoadProgress{1, 2, 3};
  inputs.push_back('\4' + to_proto(FromWorker(beat)).SerializeAsString());
  inputs.push_back(
      '\4' + to_proto(FromWorker(CommandDone{1, 2, internal_error("x"), {}})).SerializeAsString());
  LoadStage load;
  load.model = {"m.gguf", kDigest};
  load.range = {0, 4, true, false};
  load.blocks_per_group = {8};
  load.stream_key = std::string(32, 'a');
  load.steps_from = "a";
  load.context_tokens = load.max_step_tokens = load.max_sequences = 8;
  inputs.push_back('\5' + to_proto(ToWorker{1, load}).SerializeAsString());
  inputs.push_back(
      '\5' + to_proto(ToWorker{2, StartEpoch{1, 0, 2, {"b", "[::1]:5"}, {}}}).SerializeAsString());
  inputs.push_back('\5' + to_proto(ToWorker{0, Welcome{}}).SerializeAsString());
  GenerateRequest request;
  request.prompt = ChatPrompt{.messages = R"([{"role": "user", "content": "hi"}])", .tools = "[]"};
  request.stop = {"x"};
  request.temperature = 0.5f;
  request.logit_bias = {{1, 2.0f}};
  inputs.push_back('\6' + to_proto(request).SerializeAsString());
  inputs.push_back(
      '\7' +
      to_proto(GenerateEvent(GenerateToken{1, "a", -1.0f, {{2, -3.0f}}})).SerializeAsString());
  ClusterStatus status;
  status.nodes.resize(1);
  status.nodes[0].range = LayerRange{0, 4, true, false};
  inputs.push_back('\x8' + to_proto(status).SerializeAsString());
  for (const char* address : {"127.0.0.1:50051", "[fe80::1%lo]:5", "::1", ":7000", "node-1.lab"}) {
    inputs.push_back('\x9' + std::string(address));
  }
  return inputs;
}

}  // namespace strata::fuzz
