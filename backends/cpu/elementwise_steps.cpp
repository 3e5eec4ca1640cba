#include "backends/cpu/elementwise_steps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"

namespace strata::cpu {
namespace {

// Item steps that go row by row.
class RowStep : public ItemStep {
 public:
  RowStep(const Tensor& node, int64_t row_work) : ItemStep(node.row_count(), row_work) {}

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    for (int64_t row = begin; row < end; ++row) run_row(context.kernels, row);
  }

 protected:
  virtual void run_row(const KernelTable& kernels, int64_t row) const = 0;
};

bool all_dense(const Tensor& node) {
  if (!node.is_contiguous()) return false;
  return std::all_of(node.sources.begin(), node.sources.end(), [&](const Tensor* source) {
    return source->is_contiguous() && source->same_shape(node);
  });
}

// What an item of an element-wise step covers: a row, or, where all tensors are dense and of one
// shape, a part of a row, so that one long row can be shared by threads. Neighbours of the latter
// are one run of elements.
struct Spans {
  bool are_dense;
  int64_t count;
  int64_t length;  // elements

  explicit Spans(const Tensor& node) : Spans(node, all_dense(node)) {}

  float* at(const RowAddress& address, int64_t item) const {
    return are_dense ? address.floats(0) + item * length : address.floats(item);
  }
  // Calls function(item, elements) for runs that cover items [begin, end).
  template <typename Function>
  void for_each_run(int64_t begin, int64_t end, const Function& function) const {
    if (are_dense) {
      function(begin, (end - begin) * length);
    } else {
      for (int64_t item = begin; item < end; ++item) function(item, length);
    }
  }

 private:
  Spans(const Tensor& node, bool dense) : Spans(node, dense, dense ? row_parts(node.ne[0]) : 1) {}
  Spans(const Tensor& node, bool dense, int64_t parts)
      : are_dense(dense), count(node.row_count() * parts), length(node.ne[0] / parts) {}
};

using UnaryKernel = void (*KernelTable::*)(const float*, int64_t, float*);
using FactorKernel = void (*KernelTable::*)(const float*, float, int64_t, float*);
using BinaryKernel = void (*KernelTable::*)(const float*, const float*, int64_t, float*);

// What all element-wise steps of one operand or two share.
class SpanStep : public ItemStep {
 protected:
  // `work`: operations of an element.
  SpanStep(const Tensor& node, int work) : SpanStep(node, Spans(node), work) {}

  Spans spans_;
  RowAddress x_;
  RowAddress y_;

 private:
  SpanStep(const Tensor& node, const Spans& spans, int work)
      : ItemStep(spans.count, spans.length * work),
        spans_(spans),
        x_(read_rows(*node.sources[0], node.ne)),
        y_(written_rows(node, node.ne)) {}
};

class UnaryStep final : public SpanStep {
 public:
  UnaryStep(const Tensor& node, UnaryKernel kernel) : SpanStep(node, 8), kernel_(kernel) {}

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    spans_.for_each_run(begin, end, [&](int64_t item, int64_t n) {
      (context.kernels.*kernel_)(spans_.at(x_, item), n, spans_.at(y_, item));
    });
  }

 private:
  UnaryKernel kernel_;
};

class FactorStep final : public SpanStep {
 public:
  FactorStep(const Tensor& node, FactorKernel kernel, int work)
      : SpanStep(node, work), kernel_(kernel), factor_(std::get<ScaleParams>(node.params).factor) {}

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    spans_.for_each_run(begin, end, [&](int64_t item, int64_t n) {
      (context.kernels.*kernel_)(spans_.at(x_, item), factor_, n, spans_.at(y_, item));
    });
  }

 private:
  FactorKernel kernel_;
  float factor_;
};

// Two operands, the second of the first's shape or repeated over it.
class BinaryStep final : public SpanStep {
 public:
  BinaryStep(const Tensor& node, BinaryKernel kernel, int work)
      : SpanStep(node, work), kernel_(kernel), b_(read_rows(*node.sources[1], node.ne)) {}

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    spans_.for_each_run(begin, end, [&](int64_t item, int64_t n) {
      (context.kernels.*kernel_)(spans_.at(x_, item), spans_.at(b_, item), n, spans_.at(y_, item));
    });
  }

 private:
  BinaryKernel kernel_;
  RowAddress b_;
};

// The second operand is one number for each row.
class ScalarStep final : public RowStep {
 public:
  ScalarStep(const Tensor& node, FactorKernel kernel)
      : RowStep(node, node.ne[0]),
        kernel_(kernel),
        n_(node.ne[0]),
        a_(read_rows(*node.sources[0], node.ne)),
        b_(read_rows(*node.sources[1], node.ne)),
        y_(written_rows(node, node.ne)) {}

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
  explicit SumStep(const Tensor& node)
      : RowStep(node, node.ne[0] * static_cast<int64_t>(node.sources.size())),
        n_(node.ne[0]),
        y_(written_rows(node, node.ne)) {
    for (const Tensor* term : node.sources) terms_.push_back(read_rows(*term, node.ne));
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
  explicit NormStep(const Tensor& node)
      : RowStep(node, node.ne[0] * 3),
        n_(node.ne[0]),
        eps_(std::get<NormParams>(node.params).eps),
        weight_(reinterpret_cast<const float*>(node.sources[1]->data)),
        bias_(node.op == Op::layer_norm ? reinterpret_cast<const float*>(node.sources[2]->data)
                                        : nullptr),
        x_(read_rows(*node.sources[0], node.ne)),
        y_(written_rows(node, node.ne)) {
    for (size_t i = 1; i < node.sources.size(); ++i) reads_all(*node.sources[i]);
  }

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
  explicit CopyStep(const Tensor& node)
      : RowStep(node, node.ne[0]),
        element_bytes_(dtype_traits(node.dtype).block_bytes),
        elements_(node.ne[0] / dtype_traits(node.dtype).block_elements),
        stride_(node.sources[0]->nb[0]),
        x_(read_rows(*node.sources[0], node.ne)),
        y_(written_rows(node, node.ne)) {}

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

std::unique_ptr<ItemStep> make_add_or_multiply(const Tensor& node) {
  const bool adds = node.op == Op::add;
  if (node.sources[1]->ne[0] == 1 && node.ne[0] != 1) {
    return std::make_unique<ScalarStep>(node,
                                        adds ? &KernelTable::add_scalar : &KernelTable::scale);
  }
  return std::make_unique<BinaryStep>(node, adds ? &KernelTable::add : &KernelTable::multiply, 1);
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

std::unique_ptr<ItemStep> make_row_step(const Tensor& node) {
  switch (node.op) {
    case Op::contiguous:
      return std::make_unique<CopyStep>(node);
    case Op::rms_norm:
    case Op::layer_norm:
      return std::make_unique<NormStep>(node);
    case Op::add:
    case Op::multiply:
      return make_add_or_multiply(node);
    case Op::scale:
      return std::make_unique<FactorStep>(node, &KernelTable::scale, 1);
    case Op::soft_cap:
      return std::make_unique<FactorStep>(node, &KernelTable::soft_cap, 16);
    case Op::sum:
      return std::make_unique<SumStep>(node);
    case Op::activate:
      return std::make_unique<UnaryStep>(node, activation_kernel(node));
    case Op::gated:
      return std::make_unique<BinaryStep>(node, gated_kernel(node), 8);
    default:
      STRATA_CHECK(false, op_name(node.op));
  }
}

}  // namespace strata::cpu
