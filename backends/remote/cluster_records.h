// What coordinator and worker tell each other over the Join stream, as plain values.
//
// proto/strata/v1/cluster.proto mirrors these records and wire.h converts, so that membership,
// planner and engine see no protobuf. docs/wire.md lists them.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/model/layer_range.h"

namespace strata::remote {

// Peers work together if `major` is equal; stages of one pipeline need equal numerics_version too.
struct Version {
  uint32_t major = 1;
  uint32_t minor = 0;
  uint32_t patch = 0;
  uint32_t numerics_version = 2;  // names the kernel contract (docs/kernels.md)

  bool operator==(const Version&) const = default;
};
// This build's protocol.
inline constexpr Version kProtocolVersion;

// FAILED_PRECONDITION "coordinator 2.x, worker 1.y: upgrade worker" if the majors differ, and one
// that names both contracts if the numerics do.
Status check_versions(const Version& coordinator, const Version& worker);

// A model by content, never by path.
struct ModelName {
  std::string base_name;  // the file's name without folders: for people, and to look for it
  std::string digest;     // "sha256:" and 64 lower-case hex digits

  bool operator==(const ModelName&) const = default;
};
// Errors: INVALID_ARGUMENT for a path, "..", a control character, an empty or a long name, and a
// digest that is not one.
Status check_model_name(const ModelName& model);
// INVALID_ARGUMENT unless `digest` is "sha256:" and 64 lower-case hex digits.
Status check_digest(const std::string& digest);

// 1 to 63 letters, digits, '.', '_' or '-', the first a letter or digit: what fits a host name, a
// file name and a log line. Errors: INVALID_ARGUMENT with the rule.
Status check_node_name(const std::string& name);

struct DeviceReport {
  std::string name;         // "CPU"
  std::string description;  // the processor's name
  DeviceKind kind = DeviceKind::cpu;
  DeviceMemory memory;
  DeviceSpeed speed;
};

struct LoadProgress {
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
  uint64_t received_bytes = 0;  // of done_bytes, over the network

  bool operator==(const LoadProgress&) const = default;
};

struct StageMemory {
  uint64_t weights_bytes = 0;
  uint64_t cache_bytes = 0;
  uint64_t compute_bytes = 0;
  uint64_t received_bytes = 0;  // of the model's file, that came over the network for it

  bool operator==(const StageMemory&) const = default;
};

// Worker to coordinator.

struct Hello {
  std::string name;
  std::string identity;  // random, made at each start of the process: 32 hex digits
  Version version;
  std::string listen_address;  // a wildcard host means: at the address the stream comes from
  std::vector<DeviceReport> devices;
  // Equal for workers whose CPU devices are the same memory: 32 hex digits, or empty if not known.
  std::string host_id;
  uint64_t memory_limit_bytes = 0;  // of weights, cache and activations together
  bool memory_is_stated = false;    // by a person; else it is most of what was free at the start
  uint64_t last_epoch = 0;          // the highest it has seen
  uint32_t threads = 0;
  uint64_t process_id = 0;
  std::string held_model_digest;  // of the stage it still holds; empty: none
  LayerRange held_range;
  std::string cluster_id;  // of the cluster that it was a member of; empty: of none yet
  double hop_us = 0;       // measured: half of the way to the coordinator and back; 0: unknown
};

// What a stage's thread does at the moment.
enum class StageActivity : uint8_t {
  idle = 0,            // there is no step for it
  computing = 1,       // a step is being computed
  awaiting_token = 2,  // the head: the tail's token for the step's first row is not here yet
};

struct Heartbeat {
  uint64_t epoch = 0;
  uint64_t progress = 0;  // grows whenever the stage thread finishes a step or a wait
  uint64_t steps_done = 0;
  uint64_t used_bytes = 0;           // of the stage: weights, cache, activations
  uint64_t free_bytes = 0;           // of the host
  std::optional<LoadProgress> load;  // while loading
  StageActivity activity = StageActivity::idle;
  uint64_t step = 0;         // that it is at, or the last one that it did in this epoch
  uint32_t step_tokens = 0;  // live tokens of that step
  uint64_t busy_ns = 0;      // computing, in this epoch
  uint64_t tokens_done = 0;  // live tokens of the steps that are done, in this epoch
  // Of the KV cache, by the rows of these steps: each row reads those before it, and its own.
  uint64_t positions_read = 0;
};

// The outcome of a command.
struct CommandDone {
  uint64_t command_id = 0;
  uint64_t epoch = 0;
  Status status;
  StageMemory memory;  // after LoadStage
};

// A stream of this worker to or from a peer broke.
struct PeerLost {
  uint64_t epoch = 0;
  std::string peer;  // node name
  Status status;
};

// The worker ends of its own accord.
struct Leaving {
  std::string reason;
};

using FromWorker = std::variant<Hello, Heartbeat, CommandDone, PeerLost, Leaving>;

// Coordinator to worker.

// The answer to Hello. A refusal is the status that ends the stream.
struct Welcome {
  std::string cluster_id;
  Version version;
  uint64_t epoch = 0;
  uint32_t heartbeat_ms = 500;
};

struct LoadStage {
  uint64_t epoch = 0;
  ModelName model;
  LayerRange range;
  std::string kv_type = "f16";             // f32, f16, q8_0, q4_0
  uint32_t context_tokens = 0;             // most tokens of one sequence
  std::vector<uint32_t> blocks_per_group;  // KV blocks, by group
  uint32_t max_step_tokens = 0;            // most live tokens of one step
  uint32_t max_sequences = 0;              // slots are below this
  uint32_t threads = 0;                    // 0: as the worker was started
  uint32_t max_outputs = 0;  // positions of one step whose logits are computed; 0: max_sequences
  // Who may open which stream to this stage, and what it has to show: see stream_gate.h.
  std::string stream_key;
  std::string steps_from;    // the stage before; the coordinator for the head
  std::string results_from;  // the tail, for the head; empty: nobody
};

struct Peer {
  std::string node;     // its name
  std::string address;  // HOST:PORT; empty: there is none

  bool operator==(const Peer&) const = default;
};

// All stages are loaded: open the streams and answer when they stand. Nothing older is accepted
// afterwards; the stage keeps its weights and begins with no sequence. The coordinator sends the
// first step once every stage has answered.
struct StartEpoch {
  uint64_t epoch = 0;
  uint32_t stage_index = 0;
  uint32_t stage_count = 1;
  Peer next;  // of all but the tail
  Peer head;  // of the tail, if the head is another node
};

// Drop the stage: the worker becomes a spare.
struct Unload {
  uint64_t epoch = 0;
};

using Command = std::variant<Welcome, LoadStage, StartEpoch, Unload>;

struct ToWorker {
  uint64_t command_id = 0;  // 0 for Welcome
  Command command;
};

}  // namespace strata::remote
