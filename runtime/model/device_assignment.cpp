// assign_devices(): a stage's estimate handed to the layer assignment, and its answer to the stage.
#include <algorithm>

#include "runtime/model/layer_assignment.h"
#include "runtime/model/stage_model.h"
#include "runtime/model/stage_options.h"

namespace strata {
namespace {

// Counted on the first device; what another kind of memory adds in padding is within its slack.
Result<ModelMemory> memory_of(const GgufFile& file, const StageOptions& options) {
  const StageEstimate estimate = TRY(StageModel::estimate(file, options));
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
  memory.compute_bytes = estimate.compute;
  memory.context_positions = options.max_context;
  return memory;
}

}  // namespace

Status assign_devices(const GgufFile& file, StageOptions& options) {
  if (options.devices.size() < 2 || !options.layer_devices.empty()) return ok_status();
  LayerAssignmentRequest request;
  request.model = TRY(memory_of(file, options));
  for (const Device* device : options.devices) {
    const DeviceMemory memory = device->memory();
    request.devices.push_back({.name = std::string(device->name()),
                               .kind = device->kind(),
                               .free_bytes = memory.free_bytes,
                               .total_bytes = memory.total_bytes,
                               .memory_id = {}});
  }
  const LayerAssignment assignment = TRY(assign_layers(request));
  for (const int index : assignment.layer_devices) {
    options.layer_devices.push_back(options.devices[static_cast<size_t>(index)]);
  }
  if (assignment.head_device >= 0) {
    options.head_device = options.devices[static_cast<size_t>(assignment.head_device)];
  }
  return ok_status();
}

}  // namespace strata
