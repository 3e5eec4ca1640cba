// Fills a KernelTable with this path's kernels.
#pragma once

#include "backends/cpu/kernel_table.h"
//
#include "backends/cpu/kernels/math.h"
//
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/kv_block.h"
#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/rope.h"
//
#include "backends/cpu/kernels/attention_tiles.h"
//
#include "backends/cpu/kernels/attention.h"

namespace strata::cpu::STRATA_CPU_ISA {

inline KernelTable make_kernel_table(const char* name) {
  KernelTable table{};
  table.name = name;
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.add = add_spans;
  table.add_scalar = add_scalar;
  table.multiply = multiply_spans;
  table.scale = scale_span;
  table.silu = silu_span;
  table.gelu_tanh = gelu_tanh_span;
  table.relu = relu_span;
  table.silu_gated = silu_gated;
  table.gelu_tanh_gated = gelu_tanh_gated;
  table.relu_gated = relu_gated;
  table.soft_cap = soft_cap_span;
  table.multiply_add = multiply_add_span;
  table.softmax = softmax;
  table.sigmoid = sigmoid_span;
  table.rope_interleaved = rope_interleaved;
  table.rope_halves = rope_halves;
  table.write_k = write_k;
  table.write_v = write_v;
  table.attention_scratch_floats = attention_scratch_floats;
  table.attention = attention;
  table.attention_segment = attention_segment;
  table.attention_merge = attention_merge;
  return table;
}

}  // namespace strata::cpu::STRATA_CPU_ISA
