#include "backends/cpu/expert_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace strata::cpu {
namespace {

class TopKStep final : public ItemStep {
 public:
  explicit TopKStep(const Tensor& node)
      : ItemStep(node.ne[1], node.sources[0]->ne[0] * node.ne[0]),
        n_(node.sources[0]->ne[0]),
        k_(node.ne[0]),
        x_(read_rows(*node.sources[0], node.sources[0]->ne)),
        y_(written_rows(node, node.ne)) {}

  void run_items(const RunContext&, int64_t begin, int64_t end) const override {
    for (int64_t token = begin; token < end; ++token) {
      choose(x_.floats(token), reinterpret_cast<int32_t*>(y_.bytes(token)));
    }
  }

 private:
  // Largest first, ties by lower id; a NaN comes after all numbers. Each round finds the first in
  // that order which stands behind the one chosen before.
  void choose(const float* x, int32_t* ids) const {
    for (int64_t j = 0; j < k_; ++j) {
      int64_t best = -1;
      for (int64_t i = 0; i < n_; ++i) {
        if (j > 0 && !comes_before(x, ids[j - 1], i)) continue;
        if (best < 0 || comes_before(x, i, best)) best = i;
      }
      ids[j] = static_cast<int32_t>(best);
    }
  }
  static bool comes_before(const float* x, int64_t a, int64_t b) {
    const bool a_is_nan = x[a] != x[a];
    const bool b_is_nan = x[b] != x[b];
    if (a_is_nan != b_is_nan) return b_is_nan;
    if (!a_is_nan && x[a] != x[b]) return x[a] > x[b];
    return a < b;
  }

  int64_t n_;
  int64_t k_;
  RowAddress x_;
  RowAddress y_;
};

class RouteStep final : public Step {
 public:
  explicit RouteStep(const Tensor& node)
      : params_(std::get<RouteParams>(node.params)),
        experts_(node.sources[0]->ne[0]),
        k_(node.ne[0]),
        tokens_(node.ne[1]),
        logits_(*node.sources[0], node.sources[0]->ne),
        ids_(*node.sources[1], node.sources[1]->ne),
        y_(node, node.ne) {}

  uint64_t thread_scratch_bytes() const override {
    return static_cast<uint64_t>(experts_) * sizeof(float);
  }

  Status run(const RunContext& context) override {
    float* gates = reinterpret_cast<float*>(context.scratch(0));
    for (int64_t token = 0; token < tokens_; ++token) {
      if (params_.gating == Gating::softmax) {
        context.kernels.softmax(logits_.floats(token), experts_, gates);
      } else {
        context.kernels.sigmoid(logits_.floats(token), experts_, gates);
      }
      const int32_t* ids = reinterpret_cast<const int32_t*>(ids_.bytes(token));
      float* y = y_.floats(token);
      float sum = 0.0f;
      for (int64_t j = 0; j < k_; ++j) {
        if (ids[j] < 0 || ids[j] >= experts_) {
          return invalid_argument(
              fmt::format("route_weights: expert {} is outside [0, {})", ids[j], experts_));
        }
        y[j] = gates[ids[j]];
        sum += y[j];
      }
      for (int64_t j = 0; j < k_; ++j) {
        if (params_.normalise) y[j] /= sum;
        y[j] *= params_.scale;
      }
    }
    return ok_status();
  }

 private:
  RouteParams params_;
  int64_t experts_;
  int64_t k_;
  int64_t tokens_;
  RowAddress logits_;
  RowAddress ids_;
  RowAddress y_;
};

// One fma chain over the slots in order.
class CombineStep final : public ItemStep {
 public:
  explicit CombineStep(const Tensor& node)
      : ItemStep(node.ne[1], node.ne[0] * node.sources[0]->ne[1]),
        n_(node.ne[0]),
        slots_(node.sources[0]->ne[1]),
        x_(read_rows(*node.sources[0], node.sources[0]->ne)),
        weights_(read_rows(*node.sources[1], node.sources[1]->ne)),
        y_(written_rows(node, node.ne)) {}

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    for (int64_t token = begin; token < end; ++token) {
      float* y = y_.floats(token);
      const float* weights = weights_.floats(token);
      std::memset(y, 0, static_cast<size_t>(n_) * sizeof(float));
      for (int64_t slot = 0; slot < slots_; ++slot) {
        context.kernels.multiply_add(x_.floats(token * slots_ + slot), weights[slot], n_, y);
      }
    }
  }

 private:
  int64_t n_;
  int64_t slots_;
  RowAddress x_;
  RowAddress weights_;
  RowAddress y_;
};

}  // namespace

bool supports_expert_step(const Tensor& node) {
  const Tensor& x = *node.sources[0];
  switch (node.op) {
    case Op::top_k:
      return has_float_rows(x) && x.ne[2] == 1 && x.ne[3] == 1 && node.dtype == DType::i32;
    case Op::route_weights:
      return has_float_rows(x) && node.sources[1]->nb[0] == sizeof(int32_t);
    case Op::combine:
      // Tokens are x's third dimension and the weights' second.
      return has_float_rows(x) && x.ne[3] == 1 && has_float_rows(*node.sources[1]) &&
             node.sources[1]->ne[2] == 1 && node.sources[1]->ne[3] == 1;
    default:
      return false;
  }
}

std::unique_ptr<ItemStep> make_top_k_step(const Tensor& node) {
  return std::make_unique<TopKStep>(node);
}

std::unique_ptr<Step> make_route_step(const Tensor& node) {
  return std::make_unique<RouteStep>(node);
}

std::unique_ptr<ItemStep> make_combine_step(const Tensor& node) {
  return std::make_unique<CombineStep>(node);
}

}  // namespace strata::cpu
