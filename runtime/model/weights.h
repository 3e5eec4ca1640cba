// Weights: a stage's tensors, loaded into memory where its devices can use them.
//
// Which tensors a layer range needs, and their shapes, the architecture declares (tensor_table.h).
// Two-dimensional weights go to the device's best weight memory that takes them (the CPU's repacks
// them), vectors to its compute memory; or two-dimensional ones stay in the file, of which just
// those ranges are then mapped. Several threads read and repack piece by piece, so a load needs
// little more than its result. Tied embeddings are held once.
//
// Threads: load() from any thread; the result is immutable and shared.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/hparams.h"
#include "runtime/model/layer_range.h"
#include "runtime/model/tensor_table.h"

namespace strata {

// Where tensors' bytes come from: the file, or the wire.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Copies the tensor's bytes [offset, offset + out.size()), as they are in the file. A tensor is
  // read by one thread, from its first byte to its last, each once; several tensors at a time,
  // begun in file order. May block (a transfer), and must return CANCELLED soon after `stop` was
  // asked for. Errors: any; the loader adds the tensor's name.
  virtual Status read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out,
                      std::stop_token stop) = 0;
  // The tensor is loaded: its pages or pieces are not wanted any more.
  virtual void release(const TensorInfo& tensor) = 0;
};

// The file's own bytes, by reading and not through the mapping, so that a file that is truncated
// meanwhile gives "model changed on disk" and no signal. Requires: has_data().
std::unique_ptr<TensorSource> make_file_source(std::shared_ptr<const GgufFile> file);

struct LoadProgress {
  uint64_t loaded_bytes = 0;  // of the file
  uint64_t total_bytes = 0;
  std::string_view tensor;  // the one that was just loaded
};

struct LoadOptions {
  // Use the file's mapping where the device can, instead of a copy. Slower, equal bits.
  bool mapped = false;
  int threads = 0;  // 0: one for each core that this process may use
  std::function<void(const LoadProgress&)> progress;  // one caller at a time
  std::stop_token stop;
};

// Which device each part of a stage runs on.
struct Placement {
  std::vector<Device*> layers;  // {range.count()}
  Device* input = nullptr;      // the embedding's
  Device* output = nullptr;     // the head's
};

// One tensor of a stage and where it will be, before anything is allocated.
struct PlannedTensor {
  StageTensor source;
  Device* device = nullptr;
  const BufferType* memory = nullptr;
  bool is_mapped = false;   // stays in the file, and costs no memory of ours
  Tensor tensor;            // not placed
  uint64_t size_bytes = 0;  // in that memory, padding included
};

// Errors: INVALID_ARGUMENT with tensor, shape wanted and shape found, for missing, misshapen and
// unknown tensors of the whole model; UNIMPLEMENTED for a type that the device does not compute
// with.
Result<std::vector<PlannedTensor>> plan_weights(const GgufFile& file, const Hparams& hparams,
                                                const LayerRange& range, const Placement& placement,
                                                bool mapped = false);

class Weights {
 public:
  // `source` null: the file itself. Errors: as plan_weights(); RESOURCE_EXHAUSTED with need and
  // have; CANCELLED; FAILED_PRECONDITION "model changed on disk"; those of the source.
  static Result<std::shared_ptr<Weights>> load(std::shared_ptr<const GgufFile> file,
                                               const Hparams& hparams, const LayerRange& range,
                                               const Placement& placement, TensorSource* source,
                                               const LoadOptions& options);

  // Null if the stage has no such tensor (an optional bias, another stage's layer).
  Tensor* find(std::string_view name) const;
  // Memory taken; what stays in the file is not counted.
  uint64_t size_bytes() const { return size_bytes_; }
  // Address space of the file's ranges that are mapped: whole pages.
  uint64_t mapped_bytes() const;
  // FAILED_PRECONDITION "model changed on disk" if weights are mapped and the file is not what it
  // was: asked after each use, since what is gone is read as zeros.
  Status check_unchanged() const;

 private:
  Weights() = default;

  Status map(std::span<const PlannedTensor> plan);
  std::span<const std::byte> mapped_bytes_of(const TensorInfo& tensor) const;

  // A part of a file; sorted by file and offset.
  struct MappedPart {
    uint32_t file_index = 0;
    uint64_t offset = 0;
    uint64_t size = 0;
    std::unique_ptr<GuardedMapping> mapping;
  };

  std::shared_ptr<const GgufFile> file_;
  std::vector<MappedPart> mapped_;  // before the buffers that point into it
  std::deque<Tensor> tensors_;
  std::unordered_map<std::string_view, Tensor*> by_name_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  uint64_t size_bytes_ = 0;
};

// The tensors that a stage of that range reads, in file order: what a worker asks the coordinator
// for. Errors: as plan_weights(), but for UNIMPLEMENTED.
Result<std::vector<const TensorInfo*>> stage_tensors(const GgufFile& file, const Hparams& hparams,
                                                     const LayerRange& range);

}  // namespace strata
