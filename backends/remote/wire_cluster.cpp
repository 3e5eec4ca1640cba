// Join's records: cluster_records.h to messages and back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/remote/channel.h"
#include "backends/remote/wire.h"
#include "backends/remote/wire_fields.h"
#include "runtime/model/kv_cache.h"

namespace strata::remote {
namespace {

constexpr int kDevicesMax = 32;
// Of all devices of a worker together: they stand in one line.
constexpr size_t kDeviceTextBytesMax = 512;
constexpr int kGroupsMax = 1024;

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // clang 14 does not find it itself

void put(const Hello& hello, v1::Hello& out) {
  out.set_name(hello.name);
  out.set_identity(hello.identity);
  put_version(hello.version, *out.mutable_version());
  out.set_listen_address(hello.listen_address);
  for (const DeviceReport& device : hello.devices) put_device(device, *out.add_devices());
  out.set_host_id(hello.host_id);
  out.set_memory_limit_bytes(hello.memory_limit_bytes);
  out.set_memory_is_stated(hello.memory_is_stated);
  out.set_last_epoch(hello.last_epoch);
  out.set_threads(hello.threads);
  out.set_process_id(hello.process_id);
  out.set_held_model_digest(hello.held_model_digest);
  put_range(hello.held_range, *out.mutable_held_range());
  out.set_cluster_id(hello.cluster_id);
  out.set_hop_us(hello.hop_us);
}

Status check_identity(const std::string& identity, std::string_view what) {
  const bool good =
      identity.size() == 32 && std::all_of(identity.begin(), identity.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
      });
  return good ? ok_status()
              : invalid_argument(fmt::format("{} is not 32 lower-case hex digits", what));
}

Result<FromWorker> take(const v1::Hello& in) {
  Hello hello;
  hello.version = take_version(in.version());
  hello.name = in.name();
  // The name of a peer of another major version may follow other rules: its version is what the
  // coordinator should refuse it for.
  if (hello.version.major == kProtocolVersion.major) TRY(check_node_name(hello.name));
  hello.name = peer_text(hello.name);
  hello.identity = in.identity();
  TRY(check_identity(hello.identity, "hello: the identity"));
  hello.host_id = in.host_id();
  if (!hello.host_id.empty()) TRY(check_identity(hello.host_id, "hello: the host id"));
  const Address listen = TRY(parse_address(in.listen_address(), AddressUse::listening)
                                 .with_context("hello: listen_address"));
  hello.listen_address = listen.text();
  if (in.devices_size() > kDevicesMax) {
    return invalid_argument(
        fmt::format("hello: {} devices are more than {}", in.devices_size(), kDevicesMax));
  }
  size_t text_bytes = 0;
  for (const v1::Device& message : in.devices()) {
    DeviceReport device = TRY(take_device(message));
    text_bytes += device.name.size() + device.description.size();
    if (text_bytes > kDeviceTextBytesMax) {
      return invalid_argument(fmt::format("hello: the names of {} devices are more than {} bytes",
                                          in.devices_size(), kDeviceTextBytesMax));
    }
    hello.devices.push_back(std::move(device));
  }
  hello.memory_limit_bytes = in.memory_limit_bytes();
  hello.memory_is_stated = in.memory_is_stated();
  hello.last_epoch = in.last_epoch();
  hello.threads = in.threads();
  hello.process_id = in.process_id();
  hello.held_model_digest = in.held_model_digest();
  if (!hello.held_model_digest.empty()) TRY(check_digest(hello.held_model_digest));
  hello.held_range = TRY(take_range(in.held_range()));
  hello.cluster_id = peer_text(in.cluster_id());
  hello.hop_us = in.hop_us();
  if (!std::isfinite(hello.hop_us) || hello.hop_us < 0) {
    return invalid_argument(fmt::format("hello: hop_us {} is no time", hello.hop_us));
  }
  return FromWorker(std::move(hello));
}

Result<FromWorker> take(const v1::Heartbeat& in) {
  if (in.activity() > static_cast<uint32_t>(StageActivity::awaiting_token)) {
    return invalid_argument(fmt::format("heartbeat: activity {} is not in 0..2", in.activity()));
  }
  Heartbeat beat;
  beat.epoch = in.epoch();
  beat.progress = in.progress();
  beat.steps_done = in.steps_done();
  beat.used_bytes = in.used_bytes();
  beat.free_bytes = in.free_bytes();
  if (in.has_load()) beat.load = take_load(in.load());
  beat.activity = static_cast<StageActivity>(in.activity());
  beat.step = in.step();
  beat.step_tokens = in.step_tokens();
  beat.busy_ns = in.busy_ns();
  beat.tokens_done = in.tokens_done();
  beat.positions_read = in.positions_read();
  return FromWorker(std::move(beat));
}

void put(const Heartbeat& beat, v1::Heartbeat& out) {
  out.set_epoch(beat.epoch);
  out.set_progress(beat.progress);
  out.set_steps_done(beat.steps_done);
  out.set_used_bytes(beat.used_bytes);
  out.set_free_bytes(beat.free_bytes);
  if (beat.load) put_load(*beat.load, *out.mutable_load());
  out.set_activity(static_cast<uint32_t>(beat.activity));
  out.set_step(beat.step);
  out.set_step_tokens(beat.step_tokens);
  out.set_busy_ns(beat.busy_ns);
  out.set_tokens_done(beat.tokens_done);
  out.set_positions_read(beat.positions_read);
}

void put(const LoadStage& load, v1::LoadStage& out) {
  out.set_epoch(load.epoch);
  *out.mutable_model() = to_proto(load.model);
  put_range(load.range, *out.mutable_range());
  out.set_kv_type(load.kv_type);
  out.set_context_tokens(load.context_tokens);
  out.mutable_blocks_per_group()->Assign(load.blocks_per_group.begin(),
                                         load.blocks_per_group.end());
  out.set_max_step_tokens(load.max_step_tokens);
  out.set_max_sequences(load.max_sequences);
  out.set_threads(load.threads);
  out.set_max_outputs(load.max_outputs);
  out.set_stream_key(load.stream_key);
  out.set_steps_from(load.steps_from);
  out.set_results_from(load.results_from);
}

Result<LoadStage> take(const v1::LoadStage& in) {
  LoadStage load;
  load.epoch = in.epoch();
  load.model = TRY(from_proto(in.model()).with_context("load_stage"));
  load.range = TRY(take_range(in.range()).with_context("load_stage"));
  load.kv_type = in.kv_type();
  if (const auto type = kv_type_from_name(peer_text(load.kv_type)); !type.ok()) {
    return type.status().with_context("load_stage");
  }
  if (in.blocks_per_group_size() > kGroupsMax) {
    return invalid_argument(fmt::format("load_stage: {} KV groups are more than {}",
                                        in.blocks_per_group_size(), kGroupsMax));
  }
  load.context_tokens = in.context_tokens();
  load.blocks_per_group.assign(in.blocks_per_group().begin(), in.blocks_per_group().end());
  load.max_step_tokens = in.max_step_tokens();
  load.max_sequences = in.max_sequences();
  if (load.context_tokens == 0 || load.max_step_tokens == 0 || load.max_sequences == 0) {
    return invalid_argument(fmt::format(
        "load_stage: context_tokens {}, max_step_tokens {} and max_sequences {} must be positive",
        load.context_tokens, load.max_step_tokens, load.max_sequences));
  }
  load.max_outputs = in.max_outputs();
  if (load.max_outputs > load.max_step_tokens) {
    return invalid_argument(fmt::format("load_stage: {} outputs of steps of {} tokens",
                                        load.max_outputs, load.max_step_tokens));
  }
  load.threads = in.threads();
  if (load.threads > 4096) {
    return invalid_argument(fmt::format("load_stage: {} threads are more than 4096", load.threads));
  }
  load.stream_key = in.stream_key();
  TRY(check_identity(load.stream_key, "load_stage: the stream key"));
  load.steps_from = in.steps_from();
  TRY(check_node_name(load.steps_from).with_context("load_stage: steps_from"));
  load.results_from = in.results_from();
  if (!load.results_from.empty()) {
    TRY(check_node_name(load.results_from).with_context("load_stage: results_from"));
  }
  return load;
}

void put(const Peer& peer, v1::Peer& out) {
  out.set_node(peer.node);
  out.set_address(peer.address);
}

Result<Peer> take(const v1::Peer& in, std::string_view what) {
  if (in.address().empty()) return Peer{};
  TRY(check_node_name(in.node()).with_context(what));
  const Address address = TRY(parse_address(in.address(), AddressUse::dial).with_context(what));
  return Peer{in.node(), address.text()};
}

Result<StartEpoch> take(const v1::StartEpoch& in) {
  StartEpoch start;
  start.epoch = in.epoch();
  start.stage_index = in.stage_index();
  start.stage_count = in.stage_count();
  if (start.stage_index >= start.stage_count) {
    return invalid_argument(
        fmt::format("start_epoch: stage {} of {}", start.stage_index, start.stage_count));
  }
  start.next = TRY(take(in.next(), "start_epoch: next"));
  start.head = TRY(take(in.head(), "start_epoch: head"));
  return start;
}

Result<Welcome> take(const v1::Welcome& in) {
  Welcome welcome;
  welcome.cluster_id = peer_text(in.cluster_id());
  welcome.version = take_version(in.version());
  welcome.epoch = in.epoch();
  welcome.heartbeat_ms = in.heartbeat_ms();
  if (welcome.heartbeat_ms < 10 || welcome.heartbeat_ms > 60'000) {
    return invalid_argument(
        fmt::format("welcome: heartbeat_ms {} is not in 10..60000", welcome.heartbeat_ms));
  }
  return welcome;
}

}  // namespace

v1::ModelName to_proto(const ModelName& record) {
  v1::ModelName out;
  out.set_base_name(record.base_name);
  out.set_digest(record.digest);
  return out;
}

Result<ModelName> from_proto(const v1::ModelName& message) {
  ModelName model{message.base_name(), message.digest()};
  TRY(check_model_name(model));
  return model;
}

v1::FromWorker to_proto(const FromWorker& record) {
  v1::FromWorker out;
  std::visit(Overloaded{
                 [&](const Hello& hello) { put(hello, *out.mutable_hello()); },
                 [&](const Heartbeat& beat) { put(beat, *out.mutable_heartbeat()); },
                 [&](const CommandDone& done) {
                   out.mutable_done()->set_command_id(done.command_id);
                   out.mutable_done()->set_epoch(done.epoch);
                   put_failure(done.status, *out.mutable_done()->mutable_status());
                   put_memory(done.memory, *out.mutable_done()->mutable_memory());
                 },
                 [&](const PeerLost& lost) {
                   out.mutable_peer_lost()->set_epoch(lost.epoch);
                   out.mutable_peer_lost()->set_peer(lost.peer);
                   put_failure(lost.status, *out.mutable_peer_lost()->mutable_status());
                 },
                 [&](const Leaving& leaving) { out.mutable_leaving()->set_reason(leaving.reason); },
             },
             record);
  return out;
}

Result<FromWorker> from_proto(const v1::FromWorker& message) {
  switch (message.message_case()) {
    case v1::FromWorker::kHello:
      return take(message.hello());
    case v1::FromWorker::kHeartbeat:
      return take(message.heartbeat());
    case v1::FromWorker::kDone:
      return FromWorker(CommandDone{message.done().command_id(), message.done().epoch(),
                                    take_failure(message.done().status()),
                                    take_memory(message.done().memory())});
    case v1::FromWorker::kPeerLost:
      return FromWorker(PeerLost{message.peer_lost().epoch(), peer_text(message.peer_lost().peer()),
                                 take_failure(message.peer_lost().status())});
    case v1::FromWorker::kLeaving:
      return FromWorker(Leaving{peer_text(message.leaving().reason())});
    case v1::FromWorker::MESSAGE_NOT_SET:
      break;
  }
  return invalid_argument("a worker's message that this coordinator does not know");
}

v1::ToWorker to_proto(const ToWorker& record) {
  v1::ToWorker out;
  out.set_command_id(record.command_id);
  std::visit(Overloaded{
                 [&](const Welcome& welcome) {
                   v1::Welcome& message = *out.mutable_welcome();
                   message.set_cluster_id(welcome.cluster_id);
                   put_version(welcome.version, *message.mutable_version());
                   message.set_epoch(welcome.epoch);
                   message.set_heartbeat_ms(welcome.heartbeat_ms);
                 },
                 [&](const LoadStage& load) { put(load, *out.mutable_load_stage()); },
                 [&](const StartEpoch& start) {
                   v1::StartEpoch& message = *out.mutable_start_epoch();
                   message.set_epoch(start.epoch);
                   message.set_stage_index(start.stage_index);
                   message.set_stage_count(start.stage_count);
                   put(start.next, *message.mutable_next());
                   put(start.head, *message.mutable_head());
                 },
                 [&](const Unload& unload) { out.mutable_unload()->set_epoch(unload.epoch); },
             },
             record.command);
  return out;
}

Result<ToWorker> from_proto(const v1::ToWorker& message) {
  const uint64_t id = message.command_id();
  switch (message.message_case()) {
    case v1::ToWorker::kWelcome: {
      auto welcome = TRY(take(message.welcome()));
      return ToWorker{id, std::move(welcome)};
    }
    case v1::ToWorker::kLoadStage: {
      auto load_stage = TRY(take(message.load_stage()));
      return ToWorker{id, std::move(load_stage)};
    }
    case v1::ToWorker::kStartEpoch: {
      auto start_epoch = TRY(take(message.start_epoch()));
      return ToWorker{id, std::move(start_epoch)};
    }
    case v1::ToWorker::kUnload:
      return ToWorker{id, Unload{message.unload().epoch()}};
    case v1::ToWorker::MESSAGE_NOT_SET:
      break;
  }
  return unimplemented("the coordinator sent a command that this worker does not know",
                       "run the same release of strata on both sides");
}

}  // namespace strata::remote
