// Weights: a stage's tensors, loaded into memory where its devices can use them.
//
// Which tensors a layer range needs, and their shapes, the architecture declares (tensor_table.h).
// Two-dimensional weights go to the device's best weight memory that takes them (the CPU's repacks
// them), vectors to its compute memory, or all of them stay in the mapped file. Several threads
// read and repack; a tensor's file pages are given back once it is loaded, so a load needs little
// more than its result. Tied embeddings are held once.
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

namespace strata {

// Where tensors' bytes come from: the mapped file, or the wire.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // The tensor's bytes as in the file. The span lives until release() of the same tensor.
  // Threads: any, several at once. May block (a transfer), and must return CANCELLED soon after
  // `stop` was asked for. Errors: any; the loader adds the tensor's name.
  virtual Result<std::span<const std::byte>> fetch(const TensorInfo& tensor,
                                                   std::stop_token stop) = 0;
  virtual void release(const TensorInfo& tensor) = 0;
};

// The file's own bytes: checked unchanged before, pages dropped after. Requires: has_data().
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

class Weights {
 public:
  // `source` null: the file itself. layer_devices {range.count()}, then `input_device` for the
  // embedding and `output_device` for the head.
  // Errors: INVALID_ARGUMENT with tensor, wanted and found; RESOURCE_EXHAUSTED with need and have;
  // CANCELLED; FAILED_PRECONDITION "model changed on disk".
  struct Placement {
    std::vector<Device*> layers;
    Device* input = nullptr;
    Device* output = nullptr;
  };
  static Result<std::shared_ptr<Weights>> load(std::shared_ptr<const GgufFile> file,
                                               const Hparams& hparams, const LayerRange& range,
                                               const Placement& placement, TensorSource* source,
                                               const LoadOptions& options);

  // Null if the stage has no such tensor (an optional bias, another stage's layer).
  Tensor* find(std::string_view name) const;
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  friend class WeightsLoader;
  Weights() = default;

  std::shared_ptr<const GgufFile> file_;  // mapped buffers point into it
  std::deque<Tensor> tensors_;
  std::unordered_map<std::string_view, Tensor*> by_name_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  uint64_t size_bytes_ = 0;
};

// The tensors that a stage of that range reads, in file order: what a worker asks the coordinator
// for. Errors: as Weights::load for missing, misshapen and unknown tensors.
Result<std::vector<const TensorInfo*>> stage_tensors(const GgufFile& file, const Hparams& hparams,
                                                     const LayerRange& range);

}  // namespace strata
