#include "runtime/model/weights.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_start.h"
#include "runtime/graph/ops.h"
#include "runtime/memory/linear_allocator.h"

namespace strata {
namespace {

// Read and repacked at a time: large against a disk's or a system call's latency, small enough for
// a second-level cache.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
// Rows are handed to a buffer in multiples of this, so that memory which interleaves rows gets
// whole groups.
constexpr uint64_t kPieceRows = 64;
constexpr int kLoadThreadsMax = 16;
// Unused bytes between two tensors that are mapped along: a norm, padding.
constexpr uint64_t kMappedGapMax = uint64_t{64} << 10;

class FileSource final : public TensorSource {
 public:
  explicit FileSource(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}

  Status read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out,
              std::stop_token stop) override {
    if (stop.stop_requested()) return cancelled("the load was cancelled");
    return file_->file(tensor.file_index).read(tensor.offset + offset, out);
  }
  void release(const TensorInfo&) override {}

 private:
  std::shared_ptr<const GgufFile> file_;
};

Device* device_of(const TensorPart& part, const LayerRange& range, const Placement& placement) {
  switch (part.kind) {
    case TensorPart::input:
      return placement.input;
    case TensorPart::output:
      return placement.output;
    case TensorPart::all_layers:
      return placement.layers.front();
    case TensorPart::layer:
      return placement.layers[static_cast<size_t>(part.index - range.begin)];
  }
  return nullptr;
}

// A node that reads the tensor as the model will, to ask a device whether it can.
Tensor* probe_node(Graph& graph, Tensor& tensor, TensorUse use) {
  if (use == TensorUse::table) {
    return ops::get_rows(graph, &tensor, graph.new_input("ids", DType::i32, {1, 1, 1, 1}));
  }
  if (tensor.ne[2] == 1) {
    return ops::mul_mat(graph, &tensor, graph.new_input("x", DType::f32, {tensor.ne[0], 1, 1, 1}));
  }
  return ops::mul_mat_id(graph, &tensor, graph.new_input("x", DType::f32, {tensor.ne[0], 1, 1, 1}),
                         graph.new_input("ids", DType::i32, {1, 1, 1, 1}));
}

Status check_supported(const GgufFile& file, const PlannedTensor& planned) {
  if (planned.source.use == TensorUse::vector) return ok_status();
  Graph graph;
  Tensor tensor = planned.tensor;
  if (planned.device->supports(*probe_node(graph, tensor, planned.source.use))) return ok_status();
  return unimplemented(
      fmt::format("{}: tensor '{}' is {}, which {} does not compute with", file.path(), tensor.name,
                  dtype_name(tensor.dtype), planned.device->name()),
      "quantise the model to another type, such as Q8_0 or Q4_K_M");
}

int load_threads(const LoadOptions& options, size_t tensors) {
  int threads = options.threads;
  if (threads <= 0) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    threads = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
  }
  return std::clamp(threads, 1, std::min(kLoadThreadsMax, std::max(1, static_cast<int>(tensors))));
}

struct LoadItem {
  const TensorInfo* info;
  Tensor* tensor;
};

// Fills placed tensors from a source, on several threads. The first error stops all.
class ParallelLoader {
 public:
  ParallelLoader(TensorSource& source, std::span<const LoadItem> items, const LoadOptions& options)
      : source_(source), items_(items), options_(options) {
    for (const LoadItem& item : items_) progress_.total_bytes += item.info->size_bytes;
  }

  Status run() {
    const int threads = load_threads(options_, items_.size());
    {
      const std::stop_callback forward(options_.stop, [this] { stop_.request_stop(); });
      const HelperThreads helpers(threads - 1, [this] { work(); });
      work();
    }
    const MutexLock lock(mutex_);
    return status_;
  }

 private:
  void work() noexcept {
    std::vector<std::byte> piece;
    for (size_t i = next_.fetch_add(1); i < items_.size(); i = next_.fetch_add(1)) {
      const Status status =
          stop_.stop_requested() ? cancelled("the load was cancelled") : load(items_[i], piece);
      const MutexLock lock(mutex_);
      if (!status.ok()) {
        if (status_.ok()) {
          status_ = status.code() == StatusCode::cancelled
                        ? status
                        : status.with_context(fmt::format("tensor '{}'", items_[i].info->name));
        }
        stop_.request_stop();
        return;
      }
      progress_.loaded_bytes += items_[i].info->size_bytes;
      progress_.tensor = items_[i].info->name;
      if (options_.progress) options_.progress(progress_);
    }
  }

  // Matrix by matrix (an expert's weights are one each), in pieces of whole groups of rows.
  Status load(const LoadItem& item, std::vector<std::byte>& piece) {
    const Tensor& tensor = *item.tensor;
    const uint64_t matrix_bytes = static_cast<uint64_t>(tensor.ne[1]) * tensor.nb[1];
    const uint64_t groups = std::max<uint64_t>(kPieceBytes / (tensor.nb[1] * kPieceRows), 1);
    const uint64_t step = groups * kPieceRows * tensor.nb[1];
    for (uint64_t begin = 0; begin < item.info->size_bytes; begin += matrix_bytes) {
      for (uint64_t offset = 0; offset < matrix_bytes; offset += step) {
        piece.resize(static_cast<size_t>(std::min(step, matrix_bytes - offset)));
        TRY(source_.read(*item.info, begin + offset, piece, stop_.get_token()));
        TRY(tensor.buffer->write(tensor, begin + offset, piece));
      }
    }
    source_.release(*item.info);
    return ok_status();
  }

  TensorSource& source_;
  std::span<const LoadItem> items_;
  const LoadOptions& options_;
  std::stop_source stop_;
  std::atomic<size_t> next_{0};
  Mutex mutex_;
  Status status_ STRATA_GUARDED_BY(mutex_);
  LoadProgress progress_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<TensorSource> make_file_source(std::shared_ptr<const GgufFile> file) {
  STRATA_CHECK(file->has_data(), "a header has no tensor data");
  return std::make_unique<FileSource>(std::move(file));
}

Result<std::vector<PlannedTensor>> plan_weights(const GgufFile& file, const Hparams& hparams,
                                                const LayerRange& range, const Placement& placement,
                                                bool mapped) {
  const TensorTable table = TRY(make_tensor_table(hparams));
  TRY(table.check(file));
  std::vector<PlannedTensor> plan;
  for (const StageTensor& source : table.select(file, range)) {
    PlannedTensor& planned = plan.emplace_back();
    planned.source = source;
    planned.device = device_of(source.part, range, placement);
    planned.tensor.name = source.info->name;
    planned.tensor.dtype = source.info->dtype;
    planned.tensor.ne = source.info->ne;
    planned.tensor.nb = dense_strides(source.info->dtype, source.info->ne).value();
    // A single row is a vector to a device: there is nothing to rearrange.
    planned.memory = source.use == TensorUse::vector || planned.tensor.ne[1] == 1
                         ? &planned.device->compute_buffer_type()
                         : planned.device->weight_buffer_types().front();
    if (mapped && source.use != TensorUse::vector && file.has_data()) {
      const auto buffer = TRY(planned.device->wrap_host({}, nullptr));
      planned.is_mapped = buffer != nullptr;
      if (buffer != nullptr) planned.memory = &buffer->type();
    }
    TRY(check_supported(file, planned));
    if (planned.is_mapped) continue;
    planned.size_bytes =
        align_up(planned.memory->allocation_size(planned.tensor), planned.memory->alignment());
  }
  return plan;
}

Result<std::shared_ptr<Weights>> Weights::load(std::shared_ptr<const GgufFile> file,
                                               const Hparams& hparams, const LayerRange& range,
                                               const Placement& placement, TensorSource* source,
                                               const LoadOptions& options) {
  std::unique_ptr<TensorSource> file_source;
  if (source == nullptr) {
    if (!file->has_data()) {
      return failed_precondition(file->path() + ": only the header is here, not the weights");
    }
    TRY(file->check_unchanged());
    file_source = make_file_source(file);
    source = file_source.get();
  }
  std::vector<PlannedTensor> plan =
      TRY(plan_weights(*file, hparams, range, placement, options.mapped));
  std::shared_ptr<Weights> weights(new Weights());
  weights->file_ = file;
  TRY(weights->map(plan));
  std::map<const BufferType*, LinearAllocator> pools;
  std::vector<LoadItem> items;
  for (PlannedTensor& planned : plan) {
    Tensor& tensor = weights->tensors_.emplace_back(std::move(planned.tensor));
    weights->by_name_.emplace(tensor.name, &tensor);
    if (planned.is_mapped) {
      const auto bytes = weights->mapped_bytes_of(*planned.source.info);
      std::unique_ptr<Buffer> buffer = TRY(planned.device->wrap_host(bytes, file));
      buffer->usage = BufferUsage::weights;
      place(tensor, *buffer, 0);
      weights->buffers_.push_back(std::move(buffer));
      continue;
    }
    pools.try_emplace(planned.memory, *planned.memory).first->second.add(tensor);
    items.push_back({planned.source.info, &tensor});
  }
  for (auto& [type, allocator] : pools) {
    weights->size_bytes_ += allocator.total_bytes();
    std::vector<std::unique_ptr<Buffer>> buffers =
        TRY(allocator.allocate(BufferUsage::weights).with_context("weights"));
    std::move(buffers.begin(), buffers.end(), std::back_inserter(weights->buffers_));
  }
  TRY(ParallelLoader(*source, items, options).run());
  return weights;
}

// Ranges of tensors that touch or nearly do are one mapping.
Status Weights::map(std::span<const PlannedTensor> plan) {
  for (const PlannedTensor& planned : plan) {  // in file order
    if (!planned.is_mapped) continue;
    const TensorInfo& tensor = *planned.source.info;
    if (!mapped_.empty() && mapped_.back().file_index == tensor.file_index &&
        tensor.offset - (mapped_.back().offset + mapped_.back().size) < kMappedGapMax) {
      mapped_.back().size = tensor.offset + tensor.size_bytes - mapped_.back().offset;
    } else {
      mapped_.push_back({tensor.file_index, tensor.offset, tensor.size_bytes, nullptr});
    }
  }
  for (MappedPart& part : mapped_) {
    part.mapping = TRY(file_->file(part.file_index).map(part.offset, part.size));
  }
  return ok_status();
}

std::span<const std::byte> Weights::mapped_bytes_of(const TensorInfo& tensor) const {
  const auto after =
      std::upper_bound(mapped_.begin(), mapped_.end(), std::pair(tensor.file_index, tensor.offset),
                       [](const auto& at, const auto& part) {
                         return at < std::pair(part.file_index, part.offset);
                       });
  const MappedPart& part = *std::prev(after);
  return part.mapping->bytes().subspan(static_cast<size_t>(tensor.offset - part.offset),
                                       static_cast<size_t>(tensor.size_bytes));
}

uint64_t Weights::mapped_bytes() const {
  uint64_t sum = 0;
  for (const MappedPart& part : mapped_) sum += part.mapping->mapped_bytes();
  return sum;
}

Status Weights::check_unchanged() const {
  if (mapped_.empty()) return ok_status();
  TRY(file_->check_unchanged());
  for (const MappedPart& part : mapped_) {
    if (!part.mapping->has_faulted()) continue;
    return data_loss(fmt::format("{}: a part of the file could not be read", file_->path()),
                     "check that disk, or run without --mapped");
  }
  return ok_status();
}

Tensor* Weights::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Result<std::vector<const TensorInfo*>> stage_tensors(const GgufFile& file, const Hparams& hparams,
                                                     const LayerRange& range) {
  const TensorTable table = TRY(make_tensor_table(hparams));
  TRY(table.check(file));
  std::vector<const TensorInfo*> infos;
  for (const StageTensor& tensor : table.select(file, range)) infos.push_back(tensor.info);
  return infos;
}

}  // namespace strata
