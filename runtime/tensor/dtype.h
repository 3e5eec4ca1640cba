// Element types: plain numbers and GGUF's block quants, with one table of their traits.
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ("ggml_type"). The numbers are
// the file format's; 4, 5 (Q4_2, Q4_3) and 31 to 38 (removed repackings) are not accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace strata {

enum class DType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
};

struct DTypeTraits {
  std::string_view name;   // as in GGUF tools: "F32", "Q4_K"
  int64_t block_elements;  // elements per block; 1 for plain numbers
  uint64_t block_bytes;    // bytes per block
  bool quantised;          // needs dequantising before float arithmetic
};

// The type with the file format's number, or none for an unknown or removed one.
std::optional<DType> dtype_from_gguf(uint32_t number);
const DTypeTraits& dtype_traits(DType dtype);
std::string_view dtype_name(DType dtype);
// By name, any letter case. For --kv-type and tests.
std::optional<DType> dtype_from_name(std::string_view name);

// Bytes of a row of `elements`; none if they are no whole number of blocks, negative, or the size
// does not fit.
std::optional<uint64_t> row_bytes(DType dtype, int64_t elements);

}  // namespace strata
