// Tensor: a typed, strided block of at most four dimensions, and the op that makes it.
//
// ne[i] is the number of elements along dimension i, innermost first; nb[i] the distance in bytes
// between neighbours along it. For a dense F32 matrix of 2 rows of 3: ne = {3, 2, 1, 1},
// nb = {4, 12, 24, 24}. For block quants nb[0] is the bytes of a block and nb[1] those of a row.
// A view has other strides on the bytes of `view_source`, starting `view_offset` bytes into it;
// permute and transpose only exchange entries of ne and nb. Nothing here moves data.
//
// A Tensor is metadata. Its bytes live in a Buffer (runtime/memory/buffer.h); `data` is an address
// in that buffer's memory and may be dereferenced by the host only if the buffer's type says so.
//
// Owns: nothing. Graphs and weight sets own tensors, and hand out pointers that stay valid as long
// as they live. Threads: externally synchronised.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/tensor/dtype.h"
#include "runtime/tensor/op.h"

namespace strata {

class Buffer;

inline constexpr int kMaxDims = 4;
using Dims = std::array<int64_t, kMaxDims>;
using Strides = std::array<uint64_t, kMaxDims>;

struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  Dims ne = {1, 1, 1, 1};
  Strides nb = {0, 0, 0, 0};

  Op op = Op::none;
  OpParams params;
  std::vector<Tensor*> sources;  // any number; never null

  Tensor* view_source = nullptr;  // the tensor whose bytes these are; never itself a view
  uint64_t view_offset = 0;       // bytes from the start of view_source

  bool is_input = false;   // written by the caller before each run; keeps its own memory
  bool is_output = false;  // read by the caller after the run; its memory is never reused

  Buffer* buffer = nullptr;  // where the bytes are; null until allocated
  std::byte* data = nullptr;
  bool planned = false;  // placed by a graph allocator, which may place it elsewhere next time

  int64_t element_count() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
  int64_t row_count() const { return ne[1] * ne[2] * ne[3]; }
  // True if elements follow each other without gaps, in ne order.
  bool is_contiguous() const;
  // Bytes from the first to past the last element, strides included; 0 if any ne is 0.
  uint64_t size_bytes() const;
  bool same_shape(const Tensor& other) const { return ne == other.ne; }
};

// Dense strides for the shape. None if ne[0] is no whole number of blocks, an ne is negative, or a
// size does not fit: sizes from files and peers come through here.
std::optional<Strides> dense_strides(DType dtype, const Dims& ne);
// Bytes of a dense tensor of that shape, or none as above.
std::optional<uint64_t> dense_size_bytes(DType dtype, const Dims& ne);

// "{576, 49152}": trailing ones left out, as in every message and table of the project.
std::string shape_text(const Dims& ne);
// "blk.0.attn_q.weight Q4_1 {576, 576}".
std::string describe(const Tensor& tensor);

}  // namespace strata
