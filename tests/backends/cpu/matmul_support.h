// Random weights and activations for the tests of matrix products, the same on every machine.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"
#include "backends/cpu/matmul.h"
#include "backends/cpu/packed_buffer_type.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/tensor/tensor.h"

namespace strata::cpu::test {

inline constexpr DType kWeightTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,
                                         DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                                         DType::q4_k, DType::q5_k, DType::q6_k};

// SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Uniform in [-4, 4), exact.
  float value() {
    return static_cast<float>(static_cast<int32_t>(next() >> 40) - 0x800000) * 0x1p-21f;
  }
  // A finite half of moderate size, either sign.
  uint16_t half() {
    const uint64_t bits = next();
    return static_cast<uint16_t>((bits & 0x83ff) | (8 + (bits >> 16) % 6) << 10);
  }

 private:
  uint64_t state_;
};

// Where the halves of a block are: byte offsets; the rest is any bits.
inline std::vector<size_t> half_offsets(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0:
      return {0};
    case DType::q6_k:
      return {208};
    default:
      return {0, 2};
  }
}

// `rows` plain rows of k random weights.
inline std::vector<std::byte> random_rows(DType dtype, int64_t k, int64_t rows, uint64_t seed) {
  Random random(seed);
  const DTypeTraits& traits = dtype_traits(dtype);
  std::vector<std::byte> bytes(*row_bytes(dtype, k) * static_cast<uint64_t>(rows));
  for (size_t at = 0; at < bytes.size(); at += traits.block_bytes) {
    std::byte* block = bytes.data() + at;
    if (dtype == DType::f32) {
      const float value = random.value();
      std::memcpy(block, &value, 4);
    } else if (dtype == DType::f16) {
      const uint16_t value = random.half();
      std::memcpy(block, &value, 2);
    } else if (dtype == DType::bf16) {
      const float value = random.value();
      std::memcpy(block, reinterpret_cast<const char*>(&value) + 2, 2);
    } else {
      for (size_t i = 0; i < traits.block_bytes; ++i) {
        block[i] = static_cast<std::byte>(random.next() >> 56);
      }
      for (const size_t offset : half_offsets(dtype)) {
        const uint16_t value = random.half();
        std::memcpy(block + offset, &value, 2);
      }
    }
  }
  return bytes;
}

// Rows {k, columns} of random activations.
inline std::vector<float> random_activations(int64_t k, int64_t columns, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(static_cast<size_t>(k * columns));
  for (float& value : x) value = random.value();
  return x;
}

// A weight tensor with its memory.
struct Weights {
  Tensor tensor;
  std::unique_ptr<Buffer> buffer;

  WeightMatrix matrix() const { return weight_matrix(tensor); }
};

inline std::unique_ptr<Weights> make_weights(DType dtype, const Dims& ne,
                                             const std::vector<std::byte>& bytes, bool packed) {
  auto weights = std::make_unique<Weights>();
  Tensor& tensor = weights->tensor;
  tensor.name = "w";
  tensor.dtype = dtype;
  tensor.ne = ne;
  tensor.nb = *dense_strides(dtype, ne);
  const BufferType& type = packed ? packed_buffer_type() : host_buffer_type();
  weights->buffer = std::move(type.allocate(type.allocation_size(tensor))).value();
  place(tensor, *weights->buffer, 0);
  const Status status = weights->buffer->write(tensor, 0, bytes);
  STRATA_CHECK(status.ok(), status.to_string());
  return weights;
}

// 64-byte aligned memory.
struct alignas(64) Line {
  std::byte bytes[64];
};
using Lines = std::vector<Line>;

// Its bytes; null if there are none.
inline std::byte* bytes_of(Lines& lines) { return reinterpret_cast<std::byte*>(lines.data()); }
inline const std::byte* bytes_of(const Lines& lines) {
  return reinterpret_cast<const std::byte*>(lines.data());
}

// Activations as the weights want them: F32, or rounded by `kernels`.
struct Activations {
  Lines memory;
  uint64_t stride = 0;
  const std::byte* data() const { return bytes_of(memory); }
};

inline Activations make_activations(const MatmulKernels& kernels, DType weights,
                                    const std::vector<float>& x, int64_t k, int64_t columns) {
  Activations out;
  const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
  const uint64_t plain_stride = static_cast<uint64_t>(k) * 4;
  out.stride = uses_activation_blocks(weights) ? activation_row_bytes(k) : plain_stride;
  out.memory.resize(out.stride * static_cast<uint64_t>(columns) / 64 + 1);
  if (uses_activation_blocks(weights)) {
    quantise_rows(kernels, {bytes, plain_stride, k, bytes_of(out.memory)}, 0, columns);
  } else {
    std::memcpy(out.memory.data(), bytes, x.size() * 4);
  }
  return out;
}

// The whole product y {rows, columns} by pieces of the given grid.
inline std::vector<float> multiply(const MatmulKernels& kernels, const WeightMatrix& weights,
                                   const Activations& x, int64_t columns, const PieceGrid& grid) {
  std::vector<float> y(static_cast<size_t>(weights.rows * columns), -1.0f);
  Lines scratch(matmul_scratch_bytes(weights) / 64);
  const MatmulArgs args{weights, x.data(), x.stride, reinterpret_cast<std::byte*>(y.data()),
                        static_cast<uint64_t>(weights.rows) * 4};
  for (int64_t i = 0; i < grid.count; ++i) {
    run_matmul_piece(kernels, args, grid.piece(i),
                     {bytes_of(scratch), scratch.size() * sizeof(Line)});
  }
  return y;
}

// Every path that this processor has.
inline std::vector<Isa> isas() { return available_isas(); }

}  // namespace strata::cpu::test
