#include "backends/cpu/plan.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/attention_steps.h"
#include "backends/cpu/elementwise_steps.h"
#include "backends/cpu/expert_steps.h"
#include "backends/cpu/item_chain.h"
#include "backends/cpu/matmul_steps.h"
#include "backends/cpu/rope_steps.h"

namespace strata::cpu {
namespace {

constexpr uint64_t kLine = 64;

uint64_t round_to_line(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

bool is_product(const Tensor& node) { return node.op == Op::mul_mat || node.op == Op::mul_mat_id; }

bool does_nothing(const Tensor& node) {
  return node.op == Op::view || node.op == Op::none || node.element_count() == 0;
}

}  // namespace

bool can_run(const Tensor& node) {
  switch (node.op) {
    case Op::none:
    case Op::view:
      return true;
    case Op::get_rows:
      return supports_get_rows(node);
    case Op::mul_mat:
      return supports_mul_mat(node);
    case Op::mul_mat_id:
      return supports_mul_mat_id(node);
    case Op::rope:
      return supports_rope(node);
    case Op::kv_write:
      return supports_kv_write(node);
    case Op::attention:
      return supports_attention(node);
    case Op::top_k:
    case Op::route_weights:
    case Op::combine:
      return supports_expert_step(node);
    default:
      return supports_row_step(node);
  }
}

// Walks the nodes once. Pieces of workspace live from one node to another and are then reused.
class PlanBuilder {
 public:
  PlanBuilder(const GraphView& graph, int threads) : nodes_(graph.nodes), threads_(threads) {}

  Result<std::unique_ptr<Plan>> build() {
    for (index_ = 0; index_ < nodes_.size(); ++index_) {
      const Tensor& node = *nodes_[index_];
      if (does_nothing(node)) continue;
      if (!can_run(node)) {
        return unimplemented("the CPU cannot run " + std::string(op_name(node.op)) + " for " +
                             describe(node));
      }
      add_node(node);
    }
    return std::move(plan_);
  }

 private:
  // A piece of workspace that is in use up to and including node `last_use`.
  struct Slot {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    size_t last_use = 0;
  };
  struct Blocks {
    const Tensor* x = nullptr;
    uint64_t offset = 0;
  };
  struct Table {
    RopeTableKey key;
    uint64_t offset = 0;
  };

  void add_node(const Tensor& node) {
    switch (node.op) {
      case Op::get_rows:
        return add_items(make_get_rows_step(node));
      case Op::mul_mat:
        return add_products(node);
      case Op::mul_mat_id:
        return add_step(make_mul_mat_id_step(node, blocks_of(node), threads_));
      case Op::rope:
        return add_items(make_rope_step(node, rope_table(node)));
      case Op::kv_write:
        return add_items(make_kv_write_step(node));
      case Op::attention:
        return add_step(make_attention_step(node, threads_));
      case Op::top_k:
        return add_items(make_top_k_step(node));
      case Op::route_weights:
        return add_step(make_route_step(node));
      case Op::combine:
        return add_items(make_combine_step(node));
      default:
        return add_items(make_row_step(node));
    }
  }

  void add_step(std::unique_ptr<Step> step) {
    if (const uint64_t bytes = step->temporary_bytes(); bytes > 0) {
      step->temporary_offset = reserve(bytes, index_);
    }
    plan_->thread_scratch_bytes_ =
        std::max(plan_->thread_scratch_bytes_, round_to_line(step->thread_scratch_bytes()));
    plan_->steps_.push_back(std::move(step));
    chain_ = nullptr;
  }

  // To the chain of the steps just before, if it fits.
  void add_items(std::unique_ptr<ItemStep> step) {
    if (chain_ != nullptr && chain_->join(step)) return;
    auto chain = std::make_unique<ItemChain>(std::move(step), threads_);
    ItemChain* const added = chain.get();
    add_step(std::move(chain));
    chain_ = added;
  }

  // First fit among the pieces that are free again, else at the end.
  uint64_t reserve(uint64_t bytes, size_t last_use) {
    bytes = round_to_line(bytes);
    for (Slot& slot : slots_) {
      if (slot.last_use < index_ && slot.bytes >= bytes) {
        slot.last_use = last_use;
        return slot.offset;
      }
    }
    const uint64_t offset = plan_->workspace_bytes_;
    slots_.push_back({offset, bytes, last_use});
    plan_->workspace_bytes_ += bytes;
    return offset;
  }

  // The product and those that follow it (views aside) with the same activations.
  void add_products(const Tensor& node) {
    const uint64_t blocks = blocks_of(node);
    std::vector<const Tensor*> group = {&node};
    size_t last = index_;
    for (size_t i = index_ + 1; i < nodes_.size(); ++i) {
      const Tensor& next = *nodes_[i];
      if (does_nothing(next)) continue;
      if (next.op != Op::mul_mat || next.sources[1] != node.sources[1] || !can_run(next) ||
          needs_activation_blocks(next) != needs_activation_blocks(node)) {
        break;
      }
      group.push_back(&next);
      last = i;
    }
    add_step(make_mul_mat_step(group, blocks, threads_));
    index_ = last;
  }

  uint64_t blocks_of(const Tensor& product) {
    if (!needs_activation_blocks(product)) return kNoBlocks;
    const Tensor* x = product.sources[1];
    for (const Blocks& known : blocks_) {
      if (known.x == x) return known.offset;
    }
    size_t last_use = index_;
    for (size_t i = index_; i < nodes_.size(); ++i) {
      if (is_product(*nodes_[i]) && nodes_[i]->sources[1] == x) last_use = i;
    }
    const uint64_t offset = reserve(activation_blocks_bytes(*x), last_use);
    blocks_.push_back({x, offset});
    add_items(make_quantise_step(*x, offset));
    return offset;
  }

  uint64_t rope_table(const Tensor& rope) {
    const RopeTableKey key = rope_table_key(rope);
    for (const Table& known : tables_) {
      if (known.key == key) return known.offset;
    }
    const uint64_t offset = reserve(rope_table_bytes(key), nodes_.size());
    tables_.push_back({key, offset});
    add_items(make_rope_table_step(key, offset));
    return offset;
  }

  std::span<Tensor* const> nodes_;
  int threads_;
  std::unique_ptr<Plan> plan_ = std::make_unique<Plan>();
  ItemChain* chain_ = nullptr;  // the plan's last step, if it is one
  size_t index_ = 0;
  std::vector<Slot> slots_;
  std::vector<Blocks> blocks_;
  std::vector<Table> tables_;
};

Result<std::unique_ptr<Plan>> Plan::compile(const GraphView& graph, int threads) {
  return PlanBuilder(graph, threads).build();
}

Status Plan::run(const RunContext& context) const {
  for (const std::unique_ptr<Step>& step : steps_) TRY(step->run(context));
  return ok_status();
}

}  // namespace strata::cpu
