// assign_devices(): a stage's estimate handed to the layer assignment, and its answer to the stage.
#include <algorithm>

#include "runtime/model/layer_assignment.h"
#include "runtime/model/stage_model.h"
#include "runtime/model/stage_options.h"

namespace strata {
namespace {

// Each attempt takes what was short off a device, so that at least a layer moves.
constexpr int kAttemptsMax = 16;

// Counted with every layer on the first device and the embedding on the host.
ModelMemory memory_of(const GgufFile& file, const StageOptions& options,
                      const StageEstimate& estimate) {
  ModelMemory memory;
  for (size_t i = 0; i < estimate.layer_weights.size(); ++i) {
    memory.layers.push_back(
        {.weights_bytes = estimate.layer_weights[i], .kv_bytes = estimate.layer_kv[i]});
  }
  memory.has_embedding = options.range.has_embedding;
  memory.has_head = options.range.has_head;
  memory.tied = file.find_tensor("output.weight") == nullptr;
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  memory.embedding_bytes = memory.has_embedding ? estimate.input_weights : embedding->size_bytes;
  (memory.tied ? memory.output_norm_bytes : memory.head_bytes) = estimate.output_weights;
  if (memory.tied && memory.has_head && !memory.has_embedding) {
    memory.embedding_bytes = estimate.output_weights;  // the table is the head here
    memory.output_norm_bytes = 0;
  }
  memory.compute_bytes = estimate.devices.front().compute_bytes;
  if (estimate.devices.size() > 1) {
    memory.input_compute_bytes = estimate.devices.back().compute_bytes;
  }
  memory.context_positions = options.max_context;
  return memory;
}

LayerAssignmentRequest request_of(const StageOptions& options, ModelMemory model) {
  LayerAssignmentRequest request;
  request.model = std::move(model);
  for (size_t i = 0; i < options.devices.size(); ++i) {
    const DeviceMemory memory = device_memory(options, i);
    const bool is_host = i + 1 == options.devices.size();
    request.devices.push_back({.name = std::string(options.devices[i]->name()),
                               .kind = is_host ? DeviceKind::cpu : options.devices[i]->kind(),
                               .free_bytes = memory.free_bytes,
                               .total_bytes = memory.total_bytes,
                               .memory_id = {}});
  }
  return request;
}

void apply(const LayerAssignment& assignment, StageOptions& options) {
  options.layer_devices.clear();
  for (const int index : assignment.layer_devices) {
    options.layer_devices.push_back(options.devices[static_cast<size_t>(index)]);
  }
  if (assignment.head_device >= 0) {
    options.head_device = options.devices[static_cast<size_t>(assignment.head_device)];
  }
}

// The device that is short, by its place; the number of devices if all fit.
size_t first_short(const StageEstimate& estimate) {
  const auto found = std::find_if(estimate.devices.begin(), estimate.devices.end(),
                                  [](const auto& account) { return account.short_bytes() > 0; });
  return static_cast<size_t>(found - estimate.devices.begin());
}

}  // namespace

Status assign_devices(const GgufFile& file, StageOptions& options) {
  if (options.devices.size() == 1 && device_memory(options, 0).total_bytes == 0) return ok_status();
  const bool is_set = !options.layer_devices.empty() || options.head_device != nullptr;
  StageEstimate estimate = TRY(StageModel::estimate(file, options));
  if (is_set) {
    const size_t device = first_short(estimate);
    if (device == options.devices.size()) return ok_status();
    return out_of_memory(estimate.devices[device], "leave the choice of devices to the worker");
  }
  LayerAssignmentRequest request = request_of(options, memory_of(file, options, estimate));
  std::string would_fit;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const Result<LayerAssignment> assignment = assign_layers(request);
    if (!assignment.ok() && attempt == 0) return assignment.status();
    if (!assignment.ok()) {
      would_fit = assignment.status().hint();
      break;
    }
    apply(*assignment, options);
    // The request knew of one kind of memory only; this is what will be taken.
    estimate = TRY(StageModel::estimate(file, options));
    const size_t device = first_short(estimate);
    if (device == options.devices.size()) return ok_status();
    uint64_t& free = request.devices[device].free_bytes;
    free -= std::min(free, estimate.devices[device].short_bytes());
  }
  options.layer_devices.clear();
  options.head_device = nullptr;
  return out_of_memory(estimate.devices[first_short(estimate)], std::move(would_fit));
}

}  // namespace strata
