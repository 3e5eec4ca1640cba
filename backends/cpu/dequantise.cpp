#include "backends/cpu/dequantise.h"

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/tensor/quant_blocks.h"

namespace strata::cpu {
namespace {

void dequantise(const BlockQ4_0& block, float* out) {
  const float d = half_to_float(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 15) - 8);
    out[16 + i] = d * static_cast<float>((block.qs[i] >> 4) - 8);
  }
}

void dequantise(const BlockQ4_1& block, float* out) {
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block.qs[i] & 15) + m;
    out[16 + i] = d * static_cast<float>(block.qs[i] >> 4) + m;
  }
}

// Element e of the 32: its low nibble and its bit of qh.
template <typename Block>
int five_bits(const Block& block, int e) {
  const int low = e < 16 ? block.qs[e] & 15 : block.qs[e - 16] >> 4;
  const int high = block.qh[e / 8] >> (e % 8) & 1;
  return low | high << 4;
}

void dequantise(const BlockQ5_0& block, float* out) {
  const float d = half_to_float(block.d);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(five_bits(block, e) - 16);
}

void dequantise(const BlockQ5_1& block, float* out) {
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(five_bits(block, e)) + m;
}

void dequantise(const BlockQ8_0& block, float* out) {
  const float d = half_to_float(block.d);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(block.qs[e]);
}

int nibble_of_sub_block(const uint8_t* qs, int sub_block, int l) {
  return qs[32 * (sub_block / 2) + l] >> (sub_block % 2 * 4) & 15;
}

void dequantise(const BlockQ4_K& block, float* out) {
  const float d = half_to_float(block.d);
  const float dmin = half_to_float(block.dmin);
  const KScales scales = unpack_k_scales(block.scales);
  for (int s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(scales.sc[s]);
    const float minimum = dmin * static_cast<float>(scales.m[s]);
    for (int l = 0; l < 32; ++l) {
      out[32 * s + l] = scale * static_cast<float>(nibble_of_sub_block(block.qs, s, l)) - minimum;
    }
  }
}

void dequantise(const BlockQ5_K& block, float* out) {
  const float d = half_to_float(block.d);
  const float dmin = half_to_float(block.dmin);
  const KScales scales = unpack_k_scales(block.scales);
  for (int s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(scales.sc[s]);
    const float minimum = dmin * static_cast<float>(scales.m[s]);
    for (int l = 0; l < 32; ++l) {
      const int q = nibble_of_sub_block(block.qs, s, l) | (block.qh[l] >> s & 1) << 4;
      out[32 * s + l] = scale * static_cast<float>(q) - minimum;
    }
  }
}

void dequantise(const BlockQ6_K& block, float* out) {
  const float d = half_to_float(block.d);
  for (int e = 0; e < 256; ++e) {
    const int half = e / 128;
    const int quarter = e % 128 / 32;
    const int l = e % 32;
    const int low = block.ql[64 * half + 32 * (quarter % 2) + l] >> (quarter / 2 * 4) & 15;
    const int high = block.qh[32 * half + l] >> (2 * quarter) & 3;
    const float scale = d * static_cast<float>(block.scales[e / 16]);
    out[e] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

template <typename Block>
void dequantise_blocks(const std::byte* row, int64_t k, int elements, float* out) {
  for (int64_t b = 0; b < k / elements; ++b) {
    Block block;
    std::memcpy(&block, row + b * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
    dequantise(block, out + b * elements);
  }
}

template <typename Convert>
void widen(const std::byte* row, int64_t k, float* out, Convert convert) {
  for (int64_t i = 0; i < k; ++i) {
    uint16_t value;
    std::memcpy(&value, row + 2 * i, 2);
    out[i] = convert(value);
  }
}

}  // namespace

void dequantise_row(DType dtype, const std::byte* row, int64_t k, float* out) {
  switch (dtype) {
    case DType::f32:
      if (k > 0) std::memcpy(out, row, static_cast<size_t>(k) * 4);
      return;
    case DType::f16:
      return widen(row, k, out, half_to_float);
    case DType::bf16:
      return widen(row, k, out, bfloat16_to_float);
    case DType::q4_0:
      return dequantise_blocks<BlockQ4_0>(row, k, 32, out);
    case DType::q4_1:
      return dequantise_blocks<BlockQ4_1>(row, k, 32, out);
    case DType::q5_0:
      return dequantise_blocks<BlockQ5_0>(row, k, 32, out);
    case DType::q5_1:
      return dequantise_blocks<BlockQ5_1>(row, k, 32, out);
    case DType::q8_0:
      return dequantise_blocks<BlockQ8_0>(row, k, 32, out);
    case DType::q4_k:
      return dequantise_blocks<BlockQ4_K>(row, k, 256, out);
    case DType::q5_k:
      return dequantise_blocks<BlockQ5_K>(row, k, 256, out);
    case DType::q6_k:
      return dequantise_blocks<BlockQ6_K>(row, k, 256, out);
    default:
      break;
  }
  STRATA_CHECK(false, dtype_name(dtype));
}

}  // namespace strata::cpu
