// Accounting: which bytes lie where, per layer and per device, and the sentence for when they do
// not fit.
//
// The numbers are made before anything is loaded (runtime/model/layer_assignment.h) from the same
// allocators that later take the memory, so that plan and load agree.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace strata {

struct LayerMemory {
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes = 0;
};

// What one device is to hold.
struct DeviceAccount {
  std::string device;
  // Devices with the same non-empty name here share one memory, such as a GPU that two workers on
  // its host offer: they report the same free bytes.
  std::string memory_id;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;  // before any of this is taken

  std::vector<LayerMemory> layers;  // by layer of the model; zero where the layer is elsewhere
  uint64_t input_bytes = 0;         // embeddings
  uint64_t output_bytes = 0;        // final norm and head
  uint64_t shared_bytes = 0;        // what every device with layers has: rope factors
  uint64_t compute_bytes = 0;       // activations, inputs and outputs of the largest graph

  uint64_t weights_bytes() const;  // layers, input, output and shared together
  uint64_t kv_bytes() const;
  uint64_t needed_bytes() const { return weights_bytes() + kv_bytes() + compute_bytes; }
  // Bytes that are missing; 0 if it fits.
  uint64_t short_bytes() const;
};

// One line of the report on memory. The parts add up to the whole: total = ours + others + left;
// none is above total, whatever the device reports.
struct MemoryShare {
  uint64_t total_bytes = 0;
  uint64_t ours_bytes = 0;    // as far as it fits
  uint64_t others_bytes = 0;  // taken before, or by another account of the same memory
  uint64_t left_bytes = 0;
};
MemoryShare memory_share(const DeviceAccount& account, std::span<const DeviceAccount> all);

// A table for people: one line per device, with weights, KV, compute, others and left.
std::string memory_table(std::span<const DeviceAccount> accounts);

// "device X is short by N: needs weights A + KV B + compute C = D, has E free of F".
// RESOURCE_EXHAUSTED, with `would_fit` as the hint. Requires: account.short_bytes() > 0.
Status out_of_memory(const DeviceAccount& account, std::string would_fit);

}  // namespace strata
