// Rotary position embedding: one table of cosines and sines per run, read by all layers.
#pragma once

#include <memory>

#include "backends/cpu/item_step.h"

namespace strata::cpu {

// What decides the table's contents: ropes that agree in these share one.
struct RopeTableKey {
  const Tensor* positions = nullptr;     // I32 {n_tokens}
  const Tensor* freq_factors = nullptr;  // F32 {n_rot / 2}, or null
  RopeParams params;
  bool operator==(const RopeTableKey& other) const;
};

bool supports_rope(const Tensor& node);
RopeTableKey rope_table_key(const Tensor& node);
uint64_t rope_table_bytes(const RopeTableKey& key);
// Fills the table, `offset` bytes into the workspace, from this run's positions: angles in double
// by portable math, so that position 2^17 is as exact as 0.
std::unique_ptr<ItemStep> make_rope_table_step(const RopeTableKey& key, uint64_t offset);
// Turns the heads of the node by the table at `table_offset`.
std::unique_ptr<ItemStep> make_rope_step(const Tensor& node, uint64_t table_offset);

}  // namespace strata::cpu
