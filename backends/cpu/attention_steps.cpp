#include "backends/cpu/attention_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "runtime/graph/ops.h"

namespace strata::cpu {
namespace {

constexpr int32_t kBlock = ops::kKvBlockPositions;

std::optional<KvType> kv_type(DType dtype, int64_t head_dim) {
  const bool can_quantise = head_dim >= 32 && head_dim % 2 == 0;
  switch (dtype) {
    case DType::f32:
      return KvType::f32;
    case DType::f16:
      return KvType::f16;
    case DType::q8_0:
      return can_quantise ? std::optional(KvType::q8_0) : std::nullopt;
    case DType::q4_0:
      return can_quantise ? std::optional(KvType::q4_0) : std::nullopt;
    default:
      return std::nullopt;
  }
}

KvCacheView cache_view(const Tensor& cache, int64_t head_dim) {
  KvCacheView view;
  view.data = cache.data;
  view.block_bytes = cache.nb[1];
  view.type = kv_type(cache.dtype, head_dim).value_or(KvType::f32);
  view.head_dim = static_cast<int32_t>(head_dim);
  return view;
}

const int32_t* ints(const Tensor& tensor) { return reinterpret_cast<const int32_t*>(tensor.data); }

class KvWriteStep final : public ItemStep {
 public:
  explicit KvWriteStep(const Tensor& node)
      : ItemStep(node.sources[1]->ne[2], node.sources[1]->ne[0] * node.sources[1]->ne[1] * 8),
        heads_(node.sources[1]->ne[1]),
        cell_count_(node.sources[0]->ne[1] * kBlock),
        k_(read_rows(*node.sources[1], node.sources[1]->ne)),
        v_(read_rows(*node.sources[2], node.sources[2]->ne)),
        k_cache_(cache_view(*node.sources[0], node.sources[1]->ne[0])),
        v_cache_(cache_view(*node.sources[3], node.sources[2]->ne[0])),
        cells_(ints(*node.sources[4])) {
    for (size_t i : {0, 3}) writes_all(*node.sources[i]);
    reads_all(*node.sources[4], Access::Kind::read_ahead);
  }

  Status check() const override {
    for (int64_t token = 0; token < items(); ++token) {
      if (cells_[token] < -1 || cells_[token] >= cell_count_) {
        return invalid_argument(
            fmt::format("kv_write: token {} has cell {}, the cache has {} cells", token,
                        cells_[token], cell_count_));
      }
    }
    return ok_status();
  }

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t cell = cells_[token];
      if (cell < 0) continue;
      for (int64_t head = 0; head < heads_; ++head) {
        const int64_t row = token * heads_ + head;
        context.kernels.write_k(k_cache_, cell, static_cast<int32_t>(head), k_.floats(row));
        context.kernels.write_v(v_cache_, cell, static_cast<int32_t>(head), v_.floats(row));
      }
    }
  }

 private:
  int64_t heads_;
  int64_t cell_count_;
  RowAddress k_;
  RowAddress v_;
  KvCacheView k_cache_;
  KvCacheView v_cache_;
  const int32_t* cells_;
};

class AttentionStep final : public Step {
 public:
  AttentionStep(const Tensor& node, int threads)
      : threads_(threads),
        params_(std::get<AttentionParams>(node.params)),
        tokens_(static_cast<int32_t>(node.ne[2])),
        block_count_(node.sources[1]->ne[1]),
        max_blocks_(node.sources[3]->ne[0]),
        sequences_(node.sources[3]->ne[1]),
        block_table_(ints(*node.sources[3])),
        block_table_stride_(node.sources[3]->nb[1] / sizeof(int32_t)),
        seq_(ints(*node.sources[4])) {
    const Tensor& q = *node.sources[0];
    args_.q = q.data;
    args_.q_head_stride = q.nb[1];
    args_.q_token_stride = q.nb[2];
    args_.y = reinterpret_cast<float*>(node.data);
    args_.k = cache_view(*node.sources[1], q.ne[0]);
    args_.v = cache_view(*node.sources[2], params_.head_dim_v);
    args_.n_head = static_cast<int32_t>(q.ne[1]);
    args_.n_head_kv = params_.n_head_kv;
    args_.positions = ints(*node.sources[5]);
    if (node.sources.size() > 6) {
      args_.sinks = reinterpret_cast<const float*>(node.sources[6]->data);
    }
    args_.scale = params_.scale;
    args_.soft_cap = params_.soft_cap;
    args_.window = params_.window;
    group_ = args_.n_head / args_.n_head_kv;
    heads_per_task_ = std::min(group_, kAttentionMaxRows);
    head_parts_ = (group_ + heads_per_task_ - 1) / heads_per_task_;
    scratch_bytes_ = static_cast<uint64_t>(
        kernels_scalar().attention_scratch_floats(args_.k.head_dim, args_.v.head_dim) *
        static_cast<int64_t>(sizeof(float)));
  }

  uint64_t thread_scratch_bytes() const override { return scratch_bytes_; }
  // The tasks, then what threads that share a row leave for one another. Nothing of it outlives a
  // run, so that a plan's size does not grow with its tokens.
  uint64_t temporary_bytes() const override { return tasks_bytes() + partials_bytes(); }

  Status run(const RunContext& context) override {
    auto* const room = reinterpret_cast<AttentionTask*>(context.workspace + temporary_offset);
    int64_t work = 0;
    int32_t longest = 0;
    for (int32_t token = 0; token < tokens_; ++token) {
      if (seq_[token] == -1) {
        zero_token(token);
        continue;
      }
      TRY(check_token(token));
      longest = std::max(longest, args_.positions[token]);
      work += int64_t{args_.positions[token] + 1} * args_.n_head * args_.k.head_dim / 8;
    }
    // Few threads' worth of rows over a long context: threads share it segment by segment.
    const bool split = may_split() && longest >= kAttentionSegment;
    tasks_ = make_tasks(room, work < kMinPieceWork, split);
    if (split) {
      run_split(context, longest / kAttentionSegment + 1);
    } else {
      const bool alone = work < kMinPieceWork;
      link_tasks(alone ? 1 : context.pool.thread_count());
      run_whole(context, alone);
    }
    return ok_status();
  }

 private:
  bool may_split() const { return threads_ > 1 && tokens_ <= 4; }

  // Room for one task for each token and part of its heads, in whole cache lines.
  uint64_t tasks_bytes() const {
    constexpr uint64_t kLine = 64;
    const uint64_t bytes = static_cast<uint64_t>(tokens_) *
                           static_cast<uint64_t>(args_.n_head_kv * head_parts_) *
                           sizeof(AttentionTask);
    return (bytes + kLine - 1) / kLine * kLine;
  }
  uint64_t partials_bytes() const {
    if (!may_split()) return 0;
    const int64_t segments = (max_blocks_ * kBlock + kAttentionSegment - 1) / kAttentionSegment;
    return static_cast<uint64_t>(segments * tokens_ * args_.n_head *
                                 partial_floats(args_.v.head_dim)) *
           sizeof(float);
  }

  void zero_token(int32_t token) {
    const int64_t floats = int64_t{args_.n_head} * args_.v.head_dim;
    std::fill_n(args_.y + token * floats, floats, 0.0f);
  }

  // What the kernels rely on: the sequence's row exists and every block that they read is there.
  Status check_token(int32_t token) const {
    const int32_t row = seq_[token];
    const int32_t position = args_.positions[token];
    if (row < 0 || row >= sequences_) {
      return invalid_argument(
          fmt::format("attention: token {} is of sequence row {}, the block table has {}", token,
                      row, sequences_));
    }
    if (position < 0 || position / kBlock >= max_blocks_) {
      return invalid_argument(
          fmt::format("attention: token {} is at position {}, the block table has room for {}",
                      token, position, max_blocks_ * kBlock));
    }
    const int32_t first = args_.window > 0 ? std::max(0, position + 1 - args_.window) / kBlock : 0;
    const int32_t* blocks = table_row(row);
    for (int32_t i = first; i <= position / kBlock; ++i) {
      if (blocks[i] < 0 || blocks[i] >= block_count_) {
        return invalid_argument(
            fmt::format("attention: block {} of sequence row {} is {}, the cache has {} blocks", i,
                        row, blocks[i], block_count_));
      }
    }
    return ok_status();
  }

  const int32_t* table_row(int32_t row) const {
    return block_table_ + static_cast<uint64_t>(row) * block_table_stride_;
  }

  // Cuts tokens and heads into tasks: neighbours of one sequence together, as many as fit, but
  // several tasks for each thread. Their positions follow one another, so that a task reads no
  // block that check_token() has not seen.
  std::span<AttentionTask> make_tasks(AttentionTask* room, bool alone, bool split) const {
    AttentionTask* end = room;
    int32_t tokens_per_task = std::max(1, kAttentionMaxRows / heads_per_task_);
    if (!alone && !split && threads_ > 1) {
      const int32_t pieces_wanted = 4 * threads_;
      const int32_t shares = args_.n_head_kv * head_parts_;
      const int32_t token_parts = std::max(1, (pieces_wanted + shares - 1) / shares);
      tokens_per_task = std::clamp((tokens_ + token_parts - 1) / token_parts, 1, tokens_per_task);
    }
    for (int32_t token = 0; token < tokens_;) {
      int32_t count = 1;
      while (token + count < tokens_ && count < tokens_per_task &&
             seq_[token + count] == seq_[token] &&
             args_.positions[token + count] == args_.positions[token] + count) {
        ++count;
      }
      if (seq_[token] >= 0) end = add_tasks(end, token, count);
      token += count;
    }
    return {room, end};
  }

  // Past the last one that it made.
  AttentionTask* add_tasks(AttentionTask* end, int32_t token, int32_t count) const {
    AttentionTask task;
    task.blocks = table_row(seq_[token]);
    task.token_begin = token;
    task.token_count = count;
    for (int32_t head_kv = 0; head_kv < args_.n_head_kv; ++head_kv) {
      task.head_kv = head_kv;
      for (int32_t part = 0; part < group_; part += heads_per_task_) {
        task.head_begin = head_kv * group_ + part;
        task.head_count = std::min(heads_per_task_, group_ - part);
        std::construct_at(end++, task);
      }
    }
    return end;
  }

  // Threads claim tasks in order: of n threads, each is likely to take every n-th.
  void link_tasks(int threads) const {
    const size_t apart = static_cast<size_t>(threads);
    for (size_t i = 0; i + apart < tasks_.size(); ++i) tasks_[i].next = &tasks_[i + apart];
  }

  // What the job captures fits a std::function without an allocation.
  void run_whole(const RunContext& context, bool alone) const {
    const auto run_task = [&](int64_t piece, int thread) {
      context.kernels.attention(args_, tasks_[static_cast<size_t>(piece)],
                                reinterpret_cast<float*>(context.scratch(thread)));
    };
    const int64_t count = static_cast<int64_t>(tasks_.size());
    if (alone) {
      for (int64_t piece = 0; piece < count; ++piece) run_task(piece, 0);
    } else {
      context.pool.run(count, run_task);
    }
  }

  void run_split(const RunContext& context, int64_t segments) const {
    float* partials =
        reinterpret_cast<float*>(context.workspace + temporary_offset + tasks_bytes());
    const int64_t row_floats = partial_floats(args_.v.head_dim);
    const int64_t segment_stride = int64_t{tokens_} * args_.n_head * row_floats;
    const auto task_partials = [&](const AttentionTask& task) {
      return partials + (int64_t{task.token_begin} * args_.n_head +
                         int64_t{task.head_begin} * task.token_count) *
                            row_floats;
    };
    const int64_t count = static_cast<int64_t>(tasks_.size());
    context.pool.run(count * segments, [&](int64_t piece, int thread) {
      const AttentionTask& task = tasks_[static_cast<size_t>(piece % count)];
      const int64_t segment = piece / count;
      context.kernels.attention_segment(args_, task, segment,
                                        reinterpret_cast<float*>(context.scratch(thread)),
                                        task_partials(task) + segment * segment_stride);
    });
    for (const AttentionTask& task : tasks_) {
      context.kernels.attention_merge(args_, task, task_partials(task), segment_stride, segments);
    }
  }

  int threads_;
  AttentionParams params_;
  int32_t tokens_;
  int64_t block_count_;
  int64_t max_blocks_;
  int64_t sequences_;
  const int32_t* block_table_;
  uint64_t block_table_stride_;
  const int32_t* seq_;
  AttentionArgs args_;
  int32_t group_ = 1;
  int32_t heads_per_task_ = 1;
  int32_t head_parts_ = 1;
  uint64_t scratch_bytes_ = 0;
  std::span<AttentionTask> tasks_;  // of the run that goes on, in its workspace
};

}  // namespace

bool supports_kv_write(const Tensor& node) {
  const Tensor& k = *node.sources[1];
  const Tensor& v = *node.sources[2];
  return has_float_rows(k) && k.ne[3] == 1 && has_float_rows(v) && v.ne[3] == 1 &&
         kv_type(node.sources[0]->dtype, k.ne[0]) && kv_type(node.sources[3]->dtype, v.ne[0]);
}

bool supports_attention(const Tensor& node) {
  const auto& params = std::get<AttentionParams>(node.params);
  const Tensor& q = *node.sources[0];
  return params.causal && has_float_rows(q) && q.ne[0] <= kMaxHeadDim &&
         params.head_dim_v <= kMaxHeadDim && kv_type(node.sources[1]->dtype, q.ne[0]) &&
         kv_type(node.sources[2]->dtype, params.head_dim_v);
}

std::unique_ptr<ItemStep> make_kv_write_step(const Tensor& node) {
  return std::make_unique<KvWriteStep>(node);
}

std::unique_ptr<Step> make_attention_step(const Tensor& node, int threads) {
  return std::make_unique<AttentionStep>(node, threads);
}

}  // namespace strata::cpu
