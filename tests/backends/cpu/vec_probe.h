// The vector interface behind function pointers, compiled once per path for vec_test.cpp.
#pragma once

#include <cstdint>

namespace strata::cpu {

// Each function works on 16 lanes.
struct VecProbe {
  // Unary operations by name, in the order of kUnaryNames.
  void (*unary)(int operation, const float* x, float* y);
  // Two or three operands, in the order of kTernaryNames.
  void (*ternary)(int operation, const float* a, const float* b, const float* c, float* y);
  float (*reduce_tree)(const float* x);
  float (*reduce_max)(const float* x);
  void (*from_f16)(const uint16_t* x, float* y);
  void (*to_f16)(const float* x, uint16_t* y);
  void (*from_bf16)(const uint16_t* x, float* y);
  void (*copy_n)(const float* x, float* y, int n);
  void (*copy_f16_n)(const uint16_t* x, uint16_t* y, int n);
  void (*round_to_i8)(const float* x, int8_t* y);
  void (*widen)(const int8_t* x, int32_t* y_signed, int32_t* y_unsigned);
  void (*nibbles)(const int32_t* x, float* y);
  void (*select_range)(const float* a, const float* b, int begin, int end, float* y);
};

inline constexpr const char* kUnaryNames[] = {
    "sqrt", "neg", "abs", "exp", "sigmoid", "silu", "gelu_tanh", "tanh", "relu", "round", "swap"};
inline constexpr const char* kTernaryNames[] = {"add",  "sub", "mul", "div",       "fma",
                                                "fnma", "min", "max", "copy_sign", "less"};

const VecProbe& vec_probe_scalar();
const VecProbe& vec_probe_avx2();
const VecProbe& vec_probe_avx512();

}  // namespace strata::cpu
