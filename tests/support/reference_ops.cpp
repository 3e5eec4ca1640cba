#include "tests/support/reference_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "runtime/graph/ops.h"

namespace strata::testing {
namespace {

using ops::kKvBlockPositions;

// Elements of a strided tensor by index.
class Elements {
 public:
  Elements(const Tensor& tensor, const HostAddress& address)
      : tensor_(tensor), base_(tensor.element_count() > 0 ? address(tensor) : nullptr) {}

  const Dims& ne() const { return tensor_.ne; }
  float& f32(int64_t i0, int64_t i1 = 0, int64_t i2 = 0, int64_t i3 = 0) const {
    return *reinterpret_cast<float*>(at(i0, i1, i2, i3));
  }
  int32_t& i32(int64_t i0, int64_t i1 = 0, int64_t i2 = 0, int64_t i3 = 0) const {
    return *reinterpret_cast<int32_t*>(at(i0, i1, i2, i3));
  }
  std::byte* at(int64_t i0, int64_t i1 = 0, int64_t i2 = 0, int64_t i3 = 0) const {
    return base_ + static_cast<uint64_t>(i0) * tensor_.nb[0] +
           static_cast<uint64_t>(i1) * tensor_.nb[1] + static_cast<uint64_t>(i2) * tensor_.nb[2] +
           static_cast<uint64_t>(i3) * tensor_.nb[3];
  }
  // Element i in ne order.
  std::byte* flat(int64_t i) const {
    const Dims& n = tensor_.ne;
    return at(i % n[0], i / n[0] % n[1], i / (n[0] * n[1]) % n[2], i / (n[0] * n[1] * n[2]));
  }

 private:
  const Tensor& tensor_;
  std::byte* base_;
};

// One node with its sources at hand.
struct Call {
  const Tensor& node;
  const HostAddress& address;

  Elements out() const { return Elements(node, address); }
  Elements source(size_t i) const { return Elements(*node.sources[i], address); }
  size_t source_count() const { return node.sources.size(); }
  template <typename P>
  const P& params() const {
    return std::get<P>(node.params);
  }
};

template <typename F>
void for_each_row(const Dims& ne, F f) {
  for (int64_t i3 = 0; i3 < ne[3]; ++i3) {
    for (int64_t i2 = 0; i2 < ne[2]; ++i2) {
      for (int64_t i1 = 0; i1 < ne[1]; ++i1) f(i1, i2, i3);
    }
  }
}

Status outside(const Call& call, std::string_view what, int64_t value, int64_t limit) {
  return Status(StatusCode::out_of_range, fmt::format("{}: {} {} is outside [0, {})",
                                                      describe(call.node), what, value, limit));
}

float activation_of(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return static_cast<float>(x / (1 + std::exp(-x)));
    case Activation::gelu_tanh:
      return static_cast<float>(0.5 * x *
                                (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))));
    case Activation::relu:
      return static_cast<float>(std::max(x, 0.0));
  }
  return 0;
}

Status contiguous(const Call& call) {
  const Elements x = call.source(0), out = call.out();
  for (int64_t i = 0; i < call.node.element_count(); ++i) {
    std::memcpy(out.flat(i), x.flat(i), call.node.nb[0]);
  }
  return ok_status();
}

Status get_rows(const Call& call) {
  const Elements table = call.source(0), ids = call.source(1), out = call.out();
  for (int64_t r = 0; r < out.ne()[1]; ++r) {
    const int32_t id = ids.i32(r);
    if (id < 0 || id >= table.ne()[1]) return outside(call, "row", id, table.ne()[1]);
    for (int64_t i = 0; i < out.ne()[0]; ++i) out.f32(i, r) = table.f32(i, id);
  }
  return ok_status();
}

// b is repeated over the dimensions in which it has one entry.
template <typename F>
Status with_repeats(const Call& call, F f) {
  const Elements a = call.source(0), b = call.source(1), out = call.out();
  for_each_row(out.ne(), [&](int64_t i1, int64_t i2, int64_t i3) {
    for (int64_t i = 0; i < out.ne()[0]; ++i) {
      const Dims& n = b.ne();
      out.f32(i, i1, i2, i3) =
          f(a.f32(i, i1, i2, i3),
            b.f32(n[0] == 1 ? 0 : i, n[1] == 1 ? 0 : i1, n[2] == 1 ? 0 : i2, n[3] == 1 ? 0 : i3));
    }
  });
  return ok_status();
}

template <typename F>
Status elementwise(const Call& call, F f) {
  const Elements x = call.source(0), out = call.out();
  for_each_row(out.ne(), [&](int64_t i1, int64_t i2, int64_t i3) {
    for (int64_t i = 0; i < out.ne()[0]; ++i) {
      out.f32(i, i1, i2, i3) = f(x.f32(i, i1, i2, i3));
    }
  });
  return ok_status();
}

Status sum(const Call& call) {
  const Elements out = call.out();
  std::vector<Elements> terms;
  for (size_t t = 0; t < call.source_count(); ++t) terms.push_back(call.source(t));
  for_each_row(out.ne(), [&](int64_t i1, int64_t i2, int64_t i3) {
    for (int64_t i = 0; i < out.ne()[0]; ++i) {
      float total = terms[0].f32(i, i1, i2, i3);
      for (size_t t = 1; t < terms.size(); ++t) total += terms[t].f32(i, i1, i2, i3);
      out.f32(i, i1, i2, i3) = total;
    }
  });
  return ok_status();
}

Status norm(const Call& call, bool centred) {
  const Elements x = call.source(0), weight = call.source(1), out = call.out();
  const int64_t n = out.ne()[0];
  const double eps = call.params<NormParams>().eps;
  for_each_row(out.ne(), [&](int64_t i1, int64_t i2, int64_t i3) {
    double mean = 0, square = 0;
    for (int64_t i = 0; centred && i < n; ++i) mean += x.f32(i, i1, i2, i3);
    mean /= static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) square += std::pow(x.f32(i, i1, i2, i3) - mean, 2);
    const double factor = 1 / std::sqrt(square / static_cast<double>(n) + eps);
    for (int64_t i = 0; i < n; ++i) {
      double y = (x.f32(i, i1, i2, i3) - mean) * factor * weight.f32(i);
      if (centred) y += call.source(2).f32(i);
      out.f32(i, i1, i2, i3) = static_cast<float>(y);
    }
  });
  return ok_status();
}

Status mul_mat(const Call& call) {
  const Elements weight = call.source(0), x = call.source(1), out = call.out();
  for (int64_t t = 0; t < out.ne()[1]; ++t) {
    for (int64_t o = 0; o < out.ne()[0]; ++o) {
      double total = 0;
      for (int64_t i = 0; i < x.ne()[0]; ++i) total += double{weight.f32(i, o)} * x.f32(i, t);
      out.f32(o, t) = static_cast<float>(total);
    }
  }
  return ok_status();
}

Status mul_mat_id(const Call& call) {
  const Elements weight = call.source(0), x = call.source(1), ids = call.source(2);
  const Elements out = call.out();
  for (int64_t t = 0; t < out.ne()[2]; ++t) {
    for (int64_t s = 0; s < out.ne()[1]; ++s) {
      const int32_t expert = ids.i32(s, t);
      if (expert < 0 || expert >= weight.ne()[2]) {
        return outside(call, "expert", expert, weight.ne()[2]);
      }
      for (int64_t o = 0; o < out.ne()[0]; ++o) {
        double total = 0;
        for (int64_t i = 0; i < x.ne()[0]; ++i) {
          total += double{weight.f32(i, o, expert)} * x.f32(i, x.ne()[1] == 1 ? 0 : s, t);
        }
        out.f32(o, s, t) = static_cast<float>(total);
      }
    }
  }
  return ok_status();
}

// Angle per position of pair `pair`, with yarn's mix of interpolated and extrapolated frequency,
// and the factor on cos and sin.
struct RopeAngles {
  double frequency = 0;
  double magnitude = 1;
};

RopeAngles rope_angles(const RopeParams& p, int64_t pair, double factor) {
  const double plain = std::pow(p.freq_base, -2.0 * static_cast<double>(pair) / p.n_rot) / factor;
  RopeAngles angles = {plain * p.freq_scale, p.attn_factor};
  if (p.ext_factor == 0) return angles;
  const double pi = 3.14159265358979323846;
  const auto pair_of = [&](double rotations) {
    return p.n_rot * std::log(p.n_ctx_original / (rotations * 2 * pi)) /
           (2 * std::log(double{p.freq_base}));
  };
  const double low = std::max(0.0, std::floor(pair_of(p.beta_fast)));
  const double high = std::min(p.n_rot - 1.0, std::ceil(pair_of(p.beta_slow)));
  const double at = (static_cast<double>(pair) - low) / std::max(0.001, high - low);
  const double mix = (1 - std::clamp(at, 0.0, 1.0)) * p.ext_factor;
  angles.frequency = plain * p.freq_scale * (1 - mix) + plain * mix;
  angles.magnitude *= 1 + 0.1 * std::log(1 / double{p.freq_scale});
  return angles;
}

Status rope(const Call& call) {
  const Elements x = call.source(0), positions = call.source(1), out = call.out();
  const RopeParams& p = call.params<RopeParams>();
  const bool halves = p.style == RopeStyle::halves;
  for_each_row(out.ne(), [&](int64_t head, int64_t token, int64_t i3) {
    for (int64_t pair = 0; pair < p.n_rot / 2; ++pair) {
      const double factor = call.source_count() > 2 ? call.source(2).f32(pair) : 1.0;
      const RopeAngles angles = rope_angles(p, pair, factor);
      const double theta = positions.i32(token) * angles.frequency;
      const double cosine = std::cos(theta) * angles.magnitude;
      const double sine = std::sin(theta) * angles.magnitude;
      const int64_t first = halves ? pair : 2 * pair;
      const int64_t second = halves ? pair + p.n_rot / 2 : 2 * pair + 1;
      const double a = x.f32(first, head, token, i3), b = x.f32(second, head, token, i3);
      out.f32(first, head, token, i3) = static_cast<float>(a * cosine - b * sine);
      out.f32(second, head, token, i3) = static_cast<float>(a * sine + b * cosine);
    }
    for (int64_t i = p.n_rot; i < out.ne()[0]; ++i) {
      out.f32(i, head, token, i3) = x.f32(i, head, token, i3);
    }
  });
  return ok_status();
}

Status gated(const Call& call) {
  const Elements gate = call.source(0), up = call.source(1), out = call.out();
  const Activation activation = call.params<ActivationParams>().activation;
  for_each_row(out.ne(), [&](int64_t i1, int64_t i2, int64_t i3) {
    for (int64_t i = 0; i < out.ne()[0]; ++i) {
      out.f32(i, i1, i2, i3) =
          activation_of(activation, gate.f32(i, i1, i2, i3)) * up.f32(i, i1, i2, i3);
    }
  });
  return ok_status();
}

// The cache's element (dim, head, position) of a block.
float& cached(const Elements& cache, int64_t head_dim, int64_t heads, int64_t block,
              int64_t position, int64_t head, int64_t dim) {
  return cache.f32((position * heads + head) * head_dim + dim, block);
}

Status kv_write(const Call& call) {
  const Elements k_cache = call.source(0), k = call.source(1), v = call.source(2);
  const Elements v_cache = call.source(3), cells = call.source(4);
  for (int64_t t = 0; t < k.ne()[2]; ++t) {
    const int32_t cell = cells.i32(t);
    if (cell == -1) continue;
    const int64_t block = cell / kKvBlockPositions, position = cell % kKvBlockPositions;
    if (cell < 0 || block >= k_cache.ne()[1]) {
      return outside(call, "cell", cell, k_cache.ne()[1] * kKvBlockPositions);
    }
    for (int64_t h = 0; h < k.ne()[1]; ++h) {
      for (int64_t i = 0; i < k.ne()[0]; ++i) {
        cached(k_cache, k.ne()[0], k.ne()[1], block, position, h, i) = k.f32(i, h, t);
      }
      for (int64_t i = 0; i < v.ne()[0]; ++i) {
        cached(v_cache, v.ne()[0], v.ne()[1], block, position, h, i) = v.f32(i, h, t);
      }
    }
  }
  return ok_status();
}

// One head of one token over the positions [first, last].
Status attend(const Call& call, int64_t head, int64_t token, int32_t row) {
  const AttentionParams& p = call.params<AttentionParams>();
  const Elements q = call.source(0), k_cache = call.source(1), v_cache = call.source(2);
  const Elements table = call.source(3), positions = call.source(5), out = call.out();
  const int64_t head_dim = q.ne()[0], kv_head = head / (q.ne()[1] / p.n_head_kv);
  const int64_t last = positions.i32(token);
  const int64_t first = p.window > 0 ? std::max<int64_t>(0, last - p.window + 1) : 0;
  std::vector<double> scores;
  for (int64_t at = first; at <= last; ++at) {
    const int32_t block = table.i32(at / kKvBlockPositions, row);
    if (block < 0 || block >= k_cache.ne()[1])
      return outside(call, "block", block, k_cache.ne()[1]);
    double dot = 0;
    for (int64_t i = 0; i < head_dim; ++i) {
      dot += double{q.f32(i, head, token)} *
             cached(k_cache, head_dim, p.n_head_kv, block, at % kKvBlockPositions, kv_head, i);
    }
    dot *= p.scale;
    scores.push_back(p.soft_cap > 0 ? p.soft_cap * std::tanh(dot / p.soft_cap) : dot);
  }
  double largest = *std::max_element(scores.begin(), scores.end());
  const bool sink = call.source_count() > 6;
  if (sink) largest = std::max<double>(largest, call.source(6).f32(head));
  double total = sink ? std::exp(call.source(6).f32(head) - largest) : 0;
  for (double& score : scores) total += score = std::exp(score - largest);
  for (int64_t i = 0; i < p.head_dim_v; ++i) {
    double value = 0;
    for (int64_t at = first; at <= last; ++at) {
      const int32_t block = table.i32(at / kKvBlockPositions, row);
      value +=
          scores[static_cast<size_t>(at - first)] *
          cached(v_cache, p.head_dim_v, p.n_head_kv, block, at % kKvBlockPositions, kv_head, i);
    }
    out.f32(i, head, token) = static_cast<float>(value / total);
  }
  return ok_status();
}

Status attention(const Call& call) {
  const Elements table = call.source(3), seq = call.source(4), out = call.out();
  for (int64_t token = 0; token < out.ne()[2]; ++token) {
    const int32_t row = seq.i32(token);
    if (row >= table.ne()[1] || row < -1) return outside(call, "sequence", row, table.ne()[1]);
    for (int64_t head = 0; head < out.ne()[1]; ++head) {
      if (row >= 0) {
        TRY(attend(call, head, token, row));
        continue;
      }
      for (int64_t i = 0; i < out.ne()[0]; ++i) out.f32(i, head, token) = 0;
    }
  }
  return ok_status();
}

Status top_k(const Call& call) {
  const Elements x = call.source(0), out = call.out();
  std::vector<int32_t> order(static_cast<size_t>(x.ne()[0]));
  for (int64_t t = 0; t < out.ne()[1]; ++t) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return x.f32(a, t) > x.f32(b, t); });
    for (int64_t i = 0; i < out.ne()[0]; ++i) out.i32(i, t) = order[static_cast<size_t>(i)];
  }
  return ok_status();
}

Status route_weights(const Call& call) {
  const Elements logits = call.source(0), ids = call.source(1), out = call.out();
  const RouteParams& p = call.params<RouteParams>();
  const int64_t n = logits.ne()[0], k = out.ne()[0];
  for (int64_t t = 0; t < out.ne()[1]; ++t) {
    double largest = logits.f32(0, t), total = 0, chosen = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max<double>(largest, logits.f32(i, t));
    for (int64_t i = 0; i < n; ++i) total += std::exp(logits.f32(i, t) - largest);
    std::vector<double> weights;
    for (int64_t i = 0; i < k; ++i) {
      const int32_t id = ids.i32(i, t);
      if (id < 0 || id >= n) return outside(call, "expert", id, n);
      const double x = logits.f32(id, t);
      const double w =
          p.gating == Gating::softmax ? std::exp(x - largest) / total : 1 / (1 + std::exp(-x));
      weights.push_back(w);
      chosen += w;
    }
    for (int64_t i = 0; i < k; ++i) {
      const double w = weights[static_cast<size_t>(i)] / (p.normalise ? chosen : 1) * p.scale;
      out.f32(i, t) = static_cast<float>(w);
    }
  }
  return ok_status();
}

Status combine(const Call& call) {
  const Elements x = call.source(0), weights = call.source(1), out = call.out();
  for (int64_t t = 0; t < out.ne()[1]; ++t) {
    for (int64_t i = 0; i < out.ne()[0]; ++i) {
      double total = 0;
      for (int64_t s = 0; s < x.ne()[1]; ++s) total += double{x.f32(i, s, t)} * weights.f32(s, t);
      out.f32(i, t) = static_cast<float>(total);
    }
  }
  return ok_status();
}

}  // namespace

bool reference_supports(const Tensor& node) {
  const auto plain = [](const Tensor& t) { return t.dtype == DType::f32 || t.dtype == DType::i32; };
  return plain(node) && std::all_of(node.sources.begin(), node.sources.end(),
                                    [&](const Tensor* source) { return plain(*source); });
}

Status run_reference(const Tensor& node, const HostAddress& address) {
  if (!reference_supports(node)) {
    return unimplemented("the reference ops know F32 and I32 only: " + describe(node));
  }
  const Call call = {node, address};
  switch (node.op) {
    case Op::none:
    case Op::view:
      return ok_status();
    case Op::contiguous:
      return contiguous(call);
    case Op::get_rows:
      return get_rows(call);
    case Op::add:
      return with_repeats(call, [](float a, float b) { return a + b; });
    case Op::multiply:
      return with_repeats(call, [](float a, float b) { return a * b; });
    case Op::scale:
      return elementwise(call, [&](float x) { return x * call.params<ScaleParams>().factor; });
    case Op::sum:
      return sum(call);
    case Op::rms_norm:
      return norm(call, false);
    case Op::layer_norm:
      return norm(call, true);
    case Op::mul_mat:
      return mul_mat(call);
    case Op::mul_mat_id:
      return mul_mat_id(call);
    case Op::rope:
      return rope(call);
    case Op::activate:
      return elementwise(call, [&](float x) {
        return activation_of(call.params<ActivationParams>().activation, x);
      });
    case Op::gated:
      return gated(call);
    case Op::soft_cap:
      return elementwise(call, [&](float x) {
        const float cap = call.params<ScaleParams>().factor;
        return static_cast<float>(cap * std::tanh(double{x} / cap));
      });
    case Op::kv_write:
      return kv_write(call);
    case Op::attention:
      return attention(call);
    case Op::top_k:
      return top_k(call);
    case Op::route_weights:
      return route_weights(call);
    case Op::combine:
      return combine(call);
  }
  return unimplemented(std::string(op_name(node.op)));
}

}  // namespace strata::testing
