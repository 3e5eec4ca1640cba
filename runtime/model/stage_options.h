// What StageModel and its estimate derive from StageOptions alike. Threads: any.
#pragma once

#include <vector>

#include "runtime/base/status.h"
#include "runtime/model/stage_graph.h"
#include "runtime/model/stage_model.h"

namespace strata {

// Errors: INVALID_ARGUMENT for a range outside the model, no device, or limits out of bounds.
Status check_stage_options(const Hparams& hparams, const StageOptions& options);

// The first device that computes in host memory; 0 without one. What is kept beside tensors, on the
// host whatever computes, is counted there. Requires: check_stage_options() passed.
size_t host_device_index(const StageOptions& options);

// Layers as the options say, else on the first device; the embedding on the CPU; the head with the
// last layer. Requires: check_stage_options() passed.
Placement stage_placement(const StageOptions& options);

// What may be taken of device `index`. Requires: check_stage_options() passed.
DeviceMemory device_memory(const StageOptions& options, size_t index);

// Entries of a block table for max_context positions.
int32_t table_blocks_max(const StageOptions& options);

// The largest prompt chunk, the largest batch of single tokens, a few tokens, and one.
std::vector<BatchShape> worst_shapes(const StageOptions& options);

}  // namespace strata
