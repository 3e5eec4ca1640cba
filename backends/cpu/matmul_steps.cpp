#include "backends/cpu/matmul_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backends/cpu/matmul.h"

namespace strata::cpu {
namespace {

uint64_t blocks_stride(const Tensor& x) { return activation_row_bytes(x.ne[0]); }

// Rows of x as one run: dimension 1 over dimension 2 without a gap.
bool rows_are_even(const Tensor& x) {
  return x.ne[2] == 1 || x.ne[1] == 1 || x.nb[2] == x.nb[1] * static_cast<uint64_t>(x.ne[1]);
}

class QuantiseStep final : public ItemStep {
 public:
  QuantiseStep(const Tensor& x, uint64_t offset) : QuantiseStep(x, offset, row_parts(x.ne[0])) {}

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    // Neighbouring parts of a row at once.
    for (int64_t item = begin; item < end;) {
      const int64_t row = item / parts_;
      const int64_t first = item % parts_;
      const int64_t count = std::min(parts_ - first, end - item);
      QuantiseArgs args;
      args.x = reinterpret_cast<const std::byte*>(x_.floats(row) + first * part_);
      args.k = count * part_;
      args.blocks =
          context.workspace + offset_ + static_cast<uint64_t>(item) * activation_row_bytes(part_);
      quantise_rows(context.matmul, args, 0, 1);
      item += count;
    }
  }

 private:
  QuantiseStep(const Tensor& x, uint64_t offset, int64_t parts)
      : ItemStep(x.ne[1] * x.ne[2] * parts, x.ne[0] / parts * 4),
        parts_(parts),
        part_(x.ne[0] / parts),
        offset_(offset),
        x_(read_rows(x, x.ne)) {
    touches(workspace_access(Access::Kind::write, offset, activation_row_bytes(part_)));
  }

  int64_t parts_;  // of a row
  int64_t part_;   // elements
  uint64_t offset_;
  RowAddress x_;
};

// Products with one x. Their pieces are numbered through, so that threads meet once for all.
class MulMatStep final : public Step {
 public:
  MulMatStep(std::span<const Tensor* const> nodes, uint64_t blocks, int threads) : blocks_(blocks) {
    for (const Tensor* node : nodes) {
      const Tensor& x = *node->sources[1];
      Product product;
      product.args.weights = weight_matrix(*node->sources[0]);
      product.args.x = x.data;
      product.args.x_stride = blocks == kNoBlocks ? x.nb[1] : blocks_stride(x);
      product.args.y = node->data;
      product.args.y_stride = node->nb[1];
      product.grid = plan_pieces(product.args.weights, node->ne[1], threads);
      product.first_piece = pieces_;
      pieces_ += product.grid.count;
      scratch_bytes_ = std::max(scratch_bytes_, matmul_scratch_bytes(product.args.weights));
      products_.push_back(product);
    }
  }

  uint64_t thread_scratch_bytes() const override { return scratch_bytes_; }

  Status run(const RunContext& context) override {
    if (blocks_ != kNoBlocks) {
      for (Product& product : products_) product.args.x = context.workspace + blocks_;
    }
    context.pool.run(pieces_, [&](int64_t piece, int thread) {
      const Product* product = &products_[0];
      while (piece >= product->first_piece + product->grid.count) ++product;
      run_matmul_piece(context.matmul, product->args,
                       product->grid.piece(piece - product->first_piece),
                       {context.scratch(thread), scratch_bytes_});
    });
    return ok_status();
  }

 private:
  struct Product {
    MatmulArgs args;
    PieceGrid grid;
    int64_t first_piece = 0;
  };

  uint64_t blocks_;
  std::vector<Product> products_;
  int64_t pieces_ = 0;
  uint64_t scratch_bytes_ = 0;
};

class MulMatIdStep final : public Step {
 public:
  MulMatIdStep(const Tensor& node, uint64_t blocks, int threads) : blocks_(blocks) {
    const Tensor& x = *node.sources[1];
    const Tensor& ids = *node.sources[2];
    args_.weights = weight_matrix(*node.sources[0]);
    args_.x = x.data;
    if (blocks == kNoBlocks) {
      args_.x_slot_stride = x.ne[1] == 1 ? 0 : x.nb[1];
      args_.x_token_stride = x.nb[2];
    } else {
      args_.x_slot_stride = x.ne[1] == 1 ? 0 : blocks_stride(x);
      args_.x_token_stride = blocks_stride(x) * static_cast<uint64_t>(x.ne[1]);
    }
    args_.y = node.data;
    args_.y_slot_stride = node.nb[1];
    args_.y_token_stride = node.nb[2];
    args_.ids = ids.data;
    args_.ids_token_stride = ids.nb[1];
    args_.n_slots = ids.ne[0];
    grid_ = plan_pieces(args_.weights, ids.ne[0] * ids.ne[1], threads);
    scratch_bytes_ = matmul_scratch_bytes(args_.weights);
  }

  uint64_t thread_scratch_bytes() const override { return scratch_bytes_; }

  Status run(const RunContext& context) override {
    if (blocks_ != kNoBlocks) args_.x = context.workspace + blocks_;
    context.pool.run(grid_.count, [&](int64_t piece, int thread) {
      run_matmul_id_piece(context.matmul, args_, grid_.piece(piece),
                          {context.scratch(thread), scratch_bytes_});
    });
    return ok_status();
  }

 private:
  uint64_t blocks_;
  MatmulIdArgs args_;
  PieceGrid grid_;
  uint64_t scratch_bytes_ = 0;
};

class GetRowsStep final : public ItemStep {
 public:
  explicit GetRowsStep(const Tensor& node)
      : ItemStep(node.ne[1], node.ne[0] * 2),
        table_(weight_matrix(*node.sources[0])),
        ids_(reinterpret_cast<const int32_t*>(node.sources[1]->data)),
        y_(written_rows(node, node.ne)) {
    reads_all(*node.sources[0]);
    reads_all(*node.sources[1], Access::Kind::read_ahead);
  }

  Status check() const override {
    for (int64_t i = 0; i < items(); ++i) {
      if (ids_[i] < 0 || ids_[i] >= table_.rows) {
        return invalid_argument(
            fmt::format("get_rows: id {} at index {} is outside [0, {})", ids_[i], i, table_.rows));
      }
    }
    return ok_status();
  }

  void run_items(const RunContext&, int64_t begin, int64_t end) const override {
    for (int64_t i = begin; i < end; ++i) get_weight_row(table_, ids_[i], y_.floats(i));
  }

 private:
  WeightMatrix table_;
  const int32_t* ids_;
  RowAddress y_;
};

}  // namespace

bool supports_mul_mat(const Tensor& node) {
  return is_weight_type(node.sources[0]->dtype) && has_float_rows(*node.sources[1]) &&
         has_float_rows(node);
}

bool supports_mul_mat_id(const Tensor& node) {
  return is_weight_type(node.sources[0]->dtype) && has_float_rows(*node.sources[1]) &&
         rows_are_even(*node.sources[1]) && has_float_rows(node) &&
         node.sources[2]->nb[0] == sizeof(int32_t);
}

bool supports_get_rows(const Tensor& node) {
  return is_weight_type(node.sources[0]->dtype) && has_float_rows(node);
}

bool needs_activation_blocks(const Tensor& node) {
  return uses_activation_blocks(node.sources[0]->dtype);
}

uint64_t activation_blocks_bytes(const Tensor& x) {
  return blocks_stride(x) * static_cast<uint64_t>(x.ne[1] * x.ne[2]);
}

std::unique_ptr<ItemStep> make_quantise_step(const Tensor& x, uint64_t offset) {
  return std::make_unique<QuantiseStep>(x, offset);
}

std::unique_ptr<Step> make_mul_mat_step(std::span<const Tensor* const> nodes, uint64_t blocks,
                                        int threads) {
  return std::make_unique<MulMatStep>(nodes, blocks, threads);
}

std::unique_ptr<Step> make_mul_mat_id_step(const Tensor& node, uint64_t blocks, int threads) {
  return std::make_unique<MulMatIdStep>(node, blocks, threads);
}

std::unique_ptr<ItemStep> make_get_rows_step(const Tensor& node) {
  return std::make_unique<GetRowsStep>(node);
}

}  // namespace strata::cpu
