// The operations a graph can hold, with their typed parameters.
//
// Sits below Tensor: a tensor names the op that makes it. Shapes and meaning of each op stand at
// its builder in runtime/graph/ops.h; what a backend supports it says itself (Device::supports).
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace strata {

enum class Op : uint8_t {
  none,           // a leaf: weight, cache or input
  view,           // reshape, slice, permute, transpose: other strides on the same bytes, no work
  contiguous,     // the same elements in dense order
  get_rows,       // rows of a table by id
  add,            // a + b, b repeated over a's outer dimensions
  multiply,       // a * b, likewise
  scale,          // a * s
  sum,            // elementwise sum of any number of tensors, from left to right
  rms_norm,       // x / rms(x) * weight over ne[0]
  layer_norm,     // (x - mean) / deviation * weight + bias over ne[0]
  mul_mat,        // weights times activations
  mul_mat_id,     // the same with a weight matrix per (slot, token): experts
  rope,           // rotary position embedding
  activate,       // one-argument activation
  gated,          // activation(gate) * up
  soft_cap,       // cap * tanh(x / cap)
  kv_write,       // keys and values into the block cache
  attention,      // flash-style attention over the block cache
  top_k,          // ids of the k largest of ne[0]
  route_weights,  // the weights of the experts that top_k chose
  combine,        // weighted sum over experts
};

std::string_view op_name(Op op);

// True if the op may write its result over its first source, when nobody else needs it.
bool op_can_work_in_place(Op op);

enum class Activation : uint8_t {
  silu,       // x * sigmoid(x)
  gelu_tanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  relu,
};

enum class RopeStyle : uint8_t {
  interleaved,  // pairs (2i, 2i+1): llama
  halves,       // pairs (i, i + n_rot/2): GPT-NeoX, qwen, gemma
};

struct NormParams {
  float eps = 1e-5f;
};

struct ScaleParams {
  float factor = 1.0f;
};

struct ActivationParams {
  Activation activation = Activation::silu;
};

// Source: RoFormer (arXiv 2104.09864); YaRN (arXiv 2309.00071) where ext_factor is not 0.
struct RopeParams {
  int32_t n_rot = 0;  // leading dimensions of a head that turn; even
  RopeStyle style = RopeStyle::halves;
  float freq_base = 10000.0f;
  float freq_scale = 1.0f;     // 1 / linear scaling factor
  float ext_factor = 0.0f;     // yarn: how much of the extrapolated angle is mixed in
  float attn_factor = 1.0f;    // multiplies cos and sin, besides yarn's own 1 + 0.1 ln(1 / scale)
  float beta_fast = 32.0f;     // yarn: rotations at which interpolation ends
  float beta_slow = 1.0f;      // yarn: rotations at which it is complete
  int32_t n_ctx_original = 0;  // context the model was trained on, for yarn
};

struct AttentionParams {
  float scale = 1.0f;     // multiplies q·k
  float soft_cap = 0.0f;  // 0: off; cap * tanh(score / cap)
  int32_t window = 0;     // 0: all; else a token sees itself and window - 1 before it
  int32_t n_head_kv = 1;
  int32_t head_dim_v = 0;
  bool causal = true;
};

struct TopKParams {
  int32_t k = 1;
};

enum class Gating : uint8_t { softmax, sigmoid };

struct RouteParams {
  Gating gating = Gating::softmax;
  bool normalise = true;  // chosen weights divided by their sum
  float scale = 1.0f;     // multiplies the weights afterwards
};

using OpParams = std::variant<std::monostate, NormParams, ScaleParams, ActivationParams, RopeParams,
                              AttentionParams, TopKParams, RouteParams>;

}  // namespace strata
