#include "backends/cpu/elementwise_steps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"

namespace strata::cpu {
namespace {

// Rows of dense tensors are cut to at most this many elements, so that one long row (a prompt's
// activations seen as one) can be shared by threads.
constexpr int64_t kSpan = 4096;

// Calls function(kernels, row pieces...) over all rows; the derived classes say what a row is.
class RowStep : public Step {
 public:
  RowStep(int64_t rows, int64_t row_work, int threads)
      : rows_(rows), pieces_(piece_count(rows, row_work, threads)) {}

  Status run(const RunContext& context) override {
    for_each_item(context.pool, rows_, pieces_,
                  [&](int64_t row, int) { run_row(context.kernels, row); });
    return ok_status();
  }

 protected:
  virtual void run_row(const KernelTable& kernels, int64_t row) const = 0;

 private:
  int64_t rows_;
  int64_t pieces_;
};

// The span of elements that a row of the step covers: rows of the shape, or, where all tensors are
// dense and of one shape, runs of kSpan elements of the whole.
struct Spans {
  Dims shape;
  int64_t rows;
  bool flat;
  int64_t total;

  static Spans of(const Tensor& node, bool may_flatten) {
    Spans spans{node.ne, node.row_count(), may_flatten, node.element_count()};
    if (may_flatten) spans.rows = (spans.total + kSpan - 1) / kSpan;
    return spans;
  }
  int64_t length(int64_t row) const {
    return flat ? std::min(kSpan, total - row * kSpan) : shape[0];
  }
  int64_t work() const { return flat ? std::min(kSpan, total) : shape[0]; }
  float* at(const RowAddress& address, int64_t row) const {
    return flat ? address.floats(0) + row * kSpan : address.floats(row);
  }
};

bool all_dense(const Tensor& node) {
  if (!node.is_contiguous()) return false;
  return std::all_of(node.sources.begin(), node.sources.end(), [&](const Tensor* source) {
    return source->is_contiguous() && source->same_shape(node);
  });
}

using UnaryKernel = void (*KernelTable::*)(const float*, int64_t, float*);
using FactorKernel = void (*KernelTable::*)(const float*, float, int64_t, float*);
using BinaryKernel = void (*KernelTable::*)(const float*, const float*, int64_t, float*);

class UnaryStep final : public RowStep {
 public:
  UnaryStep(const Tensor& node, UnaryKernel kernel, int threads)
      : UnaryStep(node, kernel, Spans::of(node, all_dense(node)), threads) {}

 private:
  UnaryStep(const Tensor& node, UnaryKernel kernel, const Spans& spans, int threads)
      : RowStep(spans.rows, spans.work() * 8, threads),
        spans_(spans),
        kernel_(kernel),
        x_(*node.sources[0], node.ne),
        y_(node, node.ne) {}
  void run_row(const KernelTable& kernels, int64_t row) const override {
    (kernels.*kernel_)(spans_.at(x_, row), spans_.length(row), spans_.at(y_, row));
  }

  Spans spans_;
  UnaryKernel kernel_;
  RowAddress x_;
  RowAddress y_;
};

class FactorStep final : public RowStep {
 public:
  FactorStep(const Tensor& node, FactorKernel kernel, int work, int threads)
      : FactorStep(node, kernel, Spans::of(node, all_dense(node)), work, threads) {}

 private:
  FactorStep(const Tensor& node, FactorKernel kernel, const Spans& spans, int work, int threads)
      : RowStep(spans.rows, spans.work() * work, threads),
        spans_(spans),
        kernel_(kernel),
        factor_(std::get<ScaleParams>(node.params).factor),
        x_(*node.sources[0], node.ne),
        y_(node, node.ne) {}
  void run_row(const KernelTable& kernels, int64_t row) const override {
    (kernels.*kernel_)(spans_.at(x_, row), factor_, spans_.length(row), spans_.at(y_, row));
  }

  Spans spans_;
  FactorKernel kernel_;
  float factor_;
  RowAddress x_;
  RowAddress y_;
};

// Two operands, the second of the first's shape or repeated over it.
class BinaryStep final : public RowStep {
 public:
  BinaryStep(const Tensor& node, BinaryKernel kernel, int work, int threads)
      : BinaryStep(node, kernel, Spans::of(node, all_dense(node)), work, threads) {}

 private:
  BinaryStep(const Tensor& node, BinaryKernel kernel, const Spans& spans, int work, int threads)
      : RowStep(spans.rows, spans.work() * work, threads),
        spans_(spans),
        kernel_(kernel),
        a_(*node.sources[0], node.ne),
        b_(*node.sources[1], node.ne),
        y_(node, node.ne) {}
  void run_row(const KernelTable& kernels, int64_t row) const override {
    (kernels.*kernel_)(spans_.at(a_, row), spans_.at(b_, row), spans_.length(row),
                       spans_.at(y_, row));
  }

  Spans spans_;
  BinaryKernel kernel_;
  RowAddress a_;
  RowAddress b_;
  RowAddress y_;
};

// The second operand is one number for each row.
class ScalarStep final : public RowStep {
 public:
  ScalarStep(const Tensor& node, FactorKernel kernel, int threads)
      : RowStep(node.row_count(), node.ne[0], threads),
        kernel_(kernel),
        n_(node.ne[0]),
        a_(*node.sources[0], node.ne),
        b_(*node.sources[1], node.ne),
        y_(node, node.ne) {}

 private:
  void run_row(const KernelTable& kernels, int64_t row) const override {
    (kernels.*kernel_)(a_.floats(row), *b_.floats(row), n_, y_.floats(row));
  }

  FactorKernel kernel_;
  int64_t n_;
  RowAddress a_;
  RowAddress b_;
  RowAddress y_;
};

class SumStep final : public RowStep {
 public:
  SumStep(const Tensor& node, int threads)
      : RowStep(node.row_count(), node.ne[0] * static_cast<int64_t>(node.sources.size()), threads),
        n_(node.ne[0]),
        y_(node, node.ne) {
    for (const Tensor* term : node.sources) terms_.emplace_back(*term, node.ne);
  }

 private:
  void run_row(const KernelTable& kernels, int64_t row) const override {
    float* y = y_.floats(row);
    const float* first = terms_[0].floats(row);
    if (terms_.size() == 1 && y != first) {
      std::memcpy(y, first, static_cast<size_t>(n_) * sizeof(float));
    }
    for (size_t i = 1; i < terms_.size(); ++i) {
      kernels.add(i == 1 ? first : y, terms_[i].floats(row), n_, y);
    }
  }

  int64_t n_;
  std::vector<RowAddress> terms_;
  RowAddress y_;
};

class NormStep final : public RowStep {
 public:
  NormStep(const Tensor& node, int threads)
      : RowStep(node.row_count(), node.ne[0] * 3, threads),
        n_(node.ne[0]),
        eps_(std::get<NormParams>(node.params).eps),
        weight_(reinterpret_cast<const float*>(node.sources[1]->data)),
        bias_(node.op == Op::layer_norm ? reinterpret_cast<const float*>(node.sources[2]->data)
                                        : nullptr),
        x_(*node.sources[0], node.ne),
        y_(node, node.ne) {}

 private:
  void run_row(const KernelTable& kernels, int64_t row) const override {
    if (bias_ == nullptr) {
      kernels.rms_norm(x_.floats(row), weight_, eps_, n_, y_.floats(row));
    } else {
      kernels.layer_norm(x_.floats(row), weight_, bias_, eps_, n_, y_.floats(row));
    }
  }

  int64_t n_;
  float eps_;
  const float* weight_;
  const float* bias_;
  RowAddress x_;
  RowAddress y_;
};

// Copies elements (or blocks of a quant type) of any strides into dense order.
class CopyStep final : public RowStep {
 public:
  CopyStep(const Tensor& node, int threads)
      : RowStep(node.row_count(), node.ne[0], threads),
        element_bytes_(dtype_traits(node.dtype).block_bytes),
        elements_(node.ne[0] / dtype_traits(node.dtype).block_elements),
        stride_(node.sources[0]->nb[0]),
        x_(*node.sources[0], node.ne),
        y_(node, node.ne) {}

 private:
  void run_row(const KernelTable&, int64_t row) const override {
    const std::byte* from = x_.bytes(row);
    std::byte* to = y_.bytes(row);
    if (stride_ == element_bytes_) {
      std::memcpy(to, from, static_cast<size_t>(elements_) * element_bytes_);
      return;
    }
    for (int64_t i = 0; i < elements_; ++i) {
      std::memcpy(to, from, element_bytes_);
      to += element_bytes_;
      from += stride_;
    }
  }

  uint64_t element_bytes_;
  int64_t elements_;
  uint64_t stride_;
  RowAddress x_;
  RowAddress y_;
};

UnaryKernel activation_kernel(const Tensor& node) {
  switch (std::get<ActivationParams>(node.params).activation) {
    case Activation::silu:
      return &KernelTable::silu;
    case Activation::gelu_tanh:
      return &KernelTable::gelu_tanh;
    case Activation::relu:
      return &KernelTable::relu;
  }
  return nullptr;
}

BinaryKernel gated_kernel(const Tensor& node) {
  switch (std::get<ActivationParams>(node.params).activation) {
    case Activation::silu:
      return &KernelTable::silu_gated;
    case Activation::gelu_tanh:
      return &KernelTable::gelu_tanh_gated;
    case Activation::relu:
      return &KernelTable::relu_gated;
  }
  return nullptr;
}

std::unique_ptr<Step> make_add_or_multiply(const Tensor& node, int threads) {
  const bool adds = node.op == Op::add;
  if (node.sources[1]->ne[0] == 1 && node.ne[0] != 1) {
    return std::make_unique<ScalarStep>(node, adds ? &KernelTable::add_scalar : &KernelTable::scale,
                                        threads);
  }
  return std::make_unique<BinaryStep>(node, adds ? &KernelTable::add : &KernelTable::multiply, 1,
                                      threads);
}

}  // namespace

bool supports_row_step(const Tensor& node) {
  const auto& sources = node.sources;
  switch (node.op) {
    case Op::contiguous:
      return node.dtype == sources[0]->dtype;
    case Op::rms_norm:
    case Op::layer_norm:
    case Op::add:
    case Op::multiply:
    case Op::scale:
    case Op::sum:
    case Op::activate:
    case Op::gated:
    case Op::soft_cap:
      return has_float_rows(node) &&
             std::all_of(sources.begin(), sources.end(),
                         [](const Tensor* source) { return has_float_rows(*source); });
    default:
      return false;
  }
}

std::unique_ptr<Step> make_row_step(const Tensor& node, int threads) {
  switch (node.op) {
    case Op::contiguous:
      return std::make_unique<CopyStep>(node, threads);
    case Op::rms_norm:
    case Op::layer_norm:
      return std::make_unique<NormStep>(node, threads);
    case Op::add:
    case Op::multiply:
      return make_add_or_multiply(node, threads);
    case Op::scale:
      return std::make_unique<FactorStep>(node, &KernelTable::scale, 1, threads);
    case Op::soft_cap:
      return std::make_unique<FactorStep>(node, &KernelTable::soft_cap, 16, threads);
    case Op::sum:
      return std::make_unique<SumStep>(node, threads);
    case Op::activate:
      return std::make_unique<UnaryStep>(node, activation_kernel(node), threads);
    case Op::gated:
      return std::make_unique<BinaryStep>(node, gated_kernel(node), 8, threads);
    default:
      STRATA_CHECK(false, op_name(node.op));
  }
}

}  // namespace strata::cpu
