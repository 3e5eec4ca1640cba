// Layer assignment: a stage's layers over the devices of one node, with exact accounting, before
// anything is loaded.
//
//   host   | inputs |  (layers that no accelerator has room for)  |
//   GPU 0                                                         | layers … |
//   GPU 1                                                                    | layers … | head |
//
// Layers stay in order. Embeddings are read on the host (a row per token: no bandwidth to gain).
// The head counts as one more layer after the last; tied to the embeddings, it costs a second copy
// of the table on any device but the host. What is shared by all layers (rope factors) and compute
// memory is counted on every device that has a layer.
//
// Without ratios, every accelerator is filled to the same part of its free memory, as far as whole
// layers allow: the least part at which all fits is searched. What fits nowhere goes to the host,
// first layers first. With ratios the layers are counted out by them and nothing is moved.
//
// Pure functions. Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/memory/accounting.h"

namespace strata {

// Bytes of the layers that this node holds, and of what goes with them.
struct ModelMemory {
  std::vector<LayerMemory> layers;
  bool has_embedding = true;
  bool has_head = true;
  bool tied = false;             // the head is the embedding table
  uint64_t embedding_bytes = 0;  // the table, needed for a tied head even without inputs here
  uint64_t output_norm_bytes = 0;
  uint64_t head_bytes = 0;  // 0 if tied
  uint64_t shared_bytes = 0;
  uint64_t compute_bytes = 0;         // on each device with a layer
  uint64_t input_compute_bytes = 0;   // on the host, if has_embedding
  uint64_t output_compute_bytes = 0;  // where the head is, besides
  int64_t context_positions = 0;      // that kv_bytes was counted for; 0: not known
};

struct AssignableDevice {
  std::string name;
  DeviceKind kind = DeviceKind::cpu;
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  std::string memory_id;  // see DeviceAccount
};

struct LayerAssignmentRequest {
  ModelMemory model;
  std::vector<AssignableDevice> devices;  // accelerators in order, the host last
  // Shares of the layers, one for each accelerator (for the host, if there is none); empty: by
  // free memory.
  std::vector<double> ratios;
  bool may_use_host = true;  // for layers, beside accelerators
};

struct LayerAssignment {
  std::vector<int> layer_devices;       // by layer
  int head_device = -1;                 // -1: no head here
  std::vector<DeviceAccount> accounts;  // by device
};

// Errors: INVALID_ARGUMENT for ratios (see split_by_ratios), or without a host as the last device;
// RESOURCE_EXHAUSTED with device, need and have, and as hint how many layers or which context
// would fit.
Result<LayerAssignment> assign_layers(const LayerAssignmentRequest& request);

// Counts that add up to `count`, none further than one from its share.
// Errors: INVALID_ARGUMENT for no values, a negative, infinite or NaN one, or a sum of 0.
Result<std::vector<int>> split_by_ratios(int count, std::span<const double> ratios);

}  // namespace strata
