// StageModel: one stage's part of a model, ready to run batches of tokens.
//
// Owns the weights, the KV cache, the scheduler and the graphs of a layer range. run() takes token
// ids (a stage with the embedding) or the residual stream F32 {n_embd, n_tokens}, and gives the
// residual stream after the last layer, or logits for the chosen tokens (a stage with the head). A
// graph depends on (tokens, outputs, sequences, table width) only, the last two rounded up, and is
// kept: a decode step that looks like the one before builds and allocates nothing. Which sequence a
// token belongs to and where its blocks are comes with every batch; the slot table above this is
// worker/stage_runner.h's.
//
// Threads: externally synchronised; one thread after another.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/memory/accounting.h"
#include "runtime/model/hparams.h"
#include "runtime/model/kv_cache.h"
#include "runtime/model/layer_range.h"
#include "runtime/model/weights.h"

namespace strata {

struct StageOptions {
  LayerRange range;
  KvOptions kv;
  int32_t max_batch_tokens = 512;  // the most tokens of one run()
  int32_t max_sequences = 64;      // the most sequences of one run()
  int32_t max_context = 4096;      // the most positions of one sequence
  // Logits rows of one run() that memory is reserved for; more of them grow it. 0: max_sequences.
  int32_t max_outputs = 0;
  // Devices to run on, best first, the CPU last. Layers go where assign_devices() says, unless
  // layer_devices does.
  std::vector<Device*> devices;
  // What may be taken of each device; empty: all that it reports free.
  std::vector<DeviceMemory> device_memory;
  std::vector<Device*> layer_devices;  // empty or {range.count()}
  Device* head_device = nullptr;       // null: that of the last layer
  BackendOptions backend;
  LoadOptions load;
};

// One sequence of a batch: its block table of each KV group of the model. Entry i is the block of
// positions [16 i, 16 i + 16), or -1 where nothing is held. Requires: the tables reach past the
// batch's positions of that sequence.
struct BatchSequence {
  std::vector<std::span<const int32_t>> tables;  // {groups of the model}
};

struct StageBatch {
  std::span<const int32_t> tokens;     // {n_tokens}; for a stage with the embedding
  std::span<const float> activations;  // {n_embd, n_tokens}; for one without
  std::span<const int32_t> positions;  // {n_tokens}
  std::span<const int32_t> sequence;   // {n_tokens}: index into sequences
  std::span<const BatchSequence> sequences;
  // Indexes of the tokens whose logits are wanted, ascending; for a stage with the head.
  std::span<const int32_t> outputs;
};

// What planners need to know of a stage before anything is loaded. All in bytes.
struct StageEstimate {
  std::vector<uint64_t> layer_weights;  // {range.count()}
  std::vector<uint64_t> layer_kv;       // {range.count()}
  uint64_t input_weights = 0;           // token and position embedding, if the stage has them
  uint64_t output_weights = 0;          // final norm and head; 0 of a tied one that is input too
  // Activations of the largest batch, workspace, and the graphs that are kept.
  uint64_t compute = 0;
  uint64_t kept_graphs = 0;  // of compute: grows with the layers
  // The same by device, in the order of options.devices; layers by layer of the range.
  std::vector<DeviceAccount> devices;
  uint64_t total() const;
};

// Gives each layer of the range, and the head, one of options.devices by what fits: sets
// layer_devices and head_device, or checks them if they are set already. A device that does not
// know its memory (0 bytes in all) is believed to have enough if it is the only one.
// Errors: INVALID_ARGUMENT as StageModel::load; RESOURCE_EXHAUSTED with device, need and have, and
// what would fit as the hint.
Status assign_devices(const GgufFile& file, StageOptions& options);

class StageModel {
 public:
  // Loads the weights (from `source`, or the file if null) and reserves memory for the worst batch.
  // Errors: those of Weights::load, KvCache::create and the scheduler.
  static Result<std::unique_ptr<StageModel>> load(std::shared_ptr<const GgufFile> file,
                                                  const StageOptions& options,
                                                  TensorSource* source = nullptr);
  // The same over weights that are there already. Requires: they hold the range.
  static Result<std::unique_ptr<StageModel>> create(std::shared_ptr<const GgufFile> file,
                                                    std::shared_ptr<Weights> weights,
                                                    const StageOptions& options);
  // Exact bytes, nothing loaded.
  static Result<StageEstimate> estimate(const GgufFile& file, const StageOptions& options);

  ~StageModel();
  StageModel(const StageModel&) = delete;
  StageModel& operator=(const StageModel&) = delete;

  const Hparams& hparams() const;
  const StageOptions& options() const;
  KvCache& kv_cache();

  // -> {n_vocab, outputs} for a stage with the head, else {n_embd, n_tokens}; valid until the next
  // call. An empty batch gives an empty result.
  // Errors: INVALID_ARGUMENT for sizes, token ids, positions or blocks out of range (nothing has
  // run then); those of the device.
  Result<std::span<const float>> run(const StageBatch& batch);

  // Memory held, for comparison with estimate().
  uint64_t weights_bytes() const;
  uint64_t cache_bytes() const;
  uint64_t compute_bytes() const;
  // The part of compute_bytes() that is counted for the graphs of batches, which are kept.
  uint64_t kept_graphs_bytes() const;
  // Graphs built since creation: tests see that decoding builds none.
  uint64_t graphs_built() const;

 private:
  struct Impl;
  explicit StageModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
