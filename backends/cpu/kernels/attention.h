// Attention of query rows over the block cache, with running maximum and sum.
//
// What is fixed (the numerics contract), for each row alone, whatever shares its task:
//   - positions are walked in tiles of 64 counted from position 0; of a tile the row takes part in
//     exactly [begin, end), cut by its own position and window;
//   - a score is one fma chain over the head's dimensions, then scale, then soft cap; quantised
//     keys have a chain for each group, which is multiplied by the group's scale and added to the
//     groups before by one fma;
//   - a tile has one maximum; the sum of exponentials is 16 partial sums by position modulo 16; an
//     output dimension is one fma chain over the row's positions in order, rescaled tile by tile;
//     the scale of quantised values is multiplied into the weight (where groups are 32 wide, else
//     into the value);
//   - every 512 positions the result is closed (its partial sums folded by the tree), and merged
//     into that of the segments before.
// What is free: which rows share a task, in what shape of register tile scores and outputs are
// computed, and whether segments run one after the other or on different threads.
//
// Source: FlashAttention-2 (arXiv 2307.08691) for the running rescale; Flash-Decoding
// (https://pytorch.org/blog/flash-decoding) for the split over positions.
#pragma once

namespace strata::cpu::STRATA_CPU_ISA {

inline constexpr float kNothing = -1.0f;  // the sum of a row that saw nothing

inline int round_up_16(int n) { return (n + 15) / 16 * 16; }

// --- one segment ------------------------------------------------------------------------------

// A row's state within a segment. In its partial result the header holds the 16 partial sums until
// the segment is closed.
struct AttentionRow {
  const float* q;
  float* partial;
  int begin;  // the positions of the segment that the row sees
  int end;
  int tile_begin;  // and of the tile at hand, counted from the tile's start
  int tile_end;

  float* output() const { return partial + kPartialHeader; }
};

// The rows' running maxima, side by side so that 16 rows are rescaled by one vector.
struct RowMaxima {
  float current[kAttentionMaxRows];
  float next[kAttentionMaxRows];  // with the tile at hand
  float rescale[kAttentionMaxRows];
};

// Scales the row's 64 scores of one tile and returns their maximum. Those that take no part become
// -inf by choice (they may be anything), so that their exponential is 0.
inline float scale_scores(const AttentionArgs& args, const AttentionRow& row, float* scores) {
  F32x16 s[kTileBlocks];
  for (int n = 0; n < kTileBlocks; ++n) {
    s[n] = mul(load(scores + n * 16), broadcast(args.scale));
    if (args.soft_cap != 0.0f) {
      s[n] = mul(broadcast(args.soft_cap), tanh(div(s[n], broadcast(args.soft_cap))));
    }
  }
  if (row.tile_begin > 0 || row.tile_end < kAttentionTile) {
    for (int n = 0; n < kTileBlocks; ++n) {
      s[n] = select(lane_range(row.tile_begin - n * 16, row.tile_end - n * 16), s[n],
                    broadcast(-__builtin_inff()));
    }
  }
  for (int n = 0; n < kTileBlocks; ++n) store(scores + n * 16, s[n]);
  return reduce_max(max(max(s[0], s[1]), max(s[2], s[3])));
}

// Turns them into exponentials below `maximum`, and adds these to the row's rescaled sums.
inline void soften_scores(const AttentionRow& row, float maximum, float rescale, float* scores) {
  F32x16 s[kTileBlocks];
  for (int n = 0; n < kTileBlocks; ++n) {
    s[n] = exp(sub(load(scores + n * 16), broadcast(maximum)));
  }
  F32x16 sum = mul(load(row.partial), broadcast(rescale));
  for (int n = 0; n < kTileBlocks; ++n) {
    sum = add(sum, s[n]);
    store(scores + n * 16, s[n]);
  }
  store(row.partial, sum);
}

// All rows' weights of the tile at position `tile` from their scores. In passes over the rows, each
// of short independent chains: what one row waits for, another can use.
inline void soften_rows(const AttentionArgs& args, AttentionRow* rows, int n_rows, int tile,
                        RowMaxima& maxima, float* scores) {
  for (int r = 0; r < n_rows; ++r) {
    AttentionRow& row = rows[r];
    row.tile_begin = row.begin > tile ? row.begin - tile : 0;
    row.tile_end = row.end - tile < kAttentionTile ? row.end - tile : kAttentionTile;
    maxima.next[r] = maxima.current[r];
    if (row.tile_begin >= row.tile_end) {
      row.tile_begin = row.tile_end = 0;
      continue;
    }
    const float largest = scale_scores(args, row, scores + r * kAttentionTile);
    if (largest > maxima.current[r]) maxima.next[r] = largest;
  }
  for (int r = 0; r < n_rows; r += 16) {
    const F32x16 next = load(maxima.next + r);
    store(maxima.rescale + r, exp(sub(load(maxima.current + r), next)));
    store(maxima.current + r, next);
  }
  for (int r = 0; r < n_rows; ++r) {
    if (rows[r].tile_begin >= rows[r].tile_end) continue;
    soften_scores(rows[r], maxima.current[r], maxima.rescale[r], scores + r * kAttentionTile);
  }
}

// The memory of a task: scores {64, rows}, then the tile's keys and values as floats.
struct AttentionScratch {
  float* scores;
  float* keys;
  float* values;
  float* partials;
};

inline int64_t attention_scratch_floats(int32_t head_dim, int32_t head_dim_v) {
  return int64_t{kAttentionMaxRows} * kAttentionTile +
         int64_t{kAttentionTile} * (round_up_16(head_dim) + round_up_16(head_dim_v)) +
         2 * kAttentionMaxRows * partial_floats(head_dim_v);
}

inline AttentionScratch divide_scratch(const AttentionArgs& args, float* scratch) {
  AttentionScratch s;
  s.scores = scratch;
  s.keys = s.scores + kAttentionMaxRows * kAttentionTile;
  s.values = s.keys + kAttentionTile * round_up_16(args.k.head_dim);
  s.partials = s.values + kAttentionTile * round_up_16(args.v.head_dim);
  return s;
}

// Keys and values that few rows read are converted in the registers that use them; for many rows
// they are converted once, to floats in memory. The numbers are the same.
inline constexpr int kDirectRows = kTileRows < 4 ? kTileRows : 4;

// Blocks [first, last) of the tile at position `tile`.
struct TileSpan {
  int tile;
  int first;
  int last;
  int fetch_end;  // the caller's part of the sequence ends at this position

  // Index of block b in the block table.
  int block(int b) const { return tile / kBlockPositions + b; }
};

// Positions up to the last that any of the task's rows sees.
inline int known_positions(const AttentionArgs& args, const AttentionTask& task) {
  int last = 0;
  for (int t = 0; t < task.token_count; ++t) {
    const int position = args.positions[task.token_begin + t];
    last = position > last ? position : last;
  }
  return last + 1;
}

// A block of the cache and a head in it.
struct BlockHead {
  int32_t block;
  int32_t head;
};

// What will be read after block b of a tile: the block in its place in the next tile, or in the
// first tile of the next task; the block itself if nothing is known.
inline BlockHead ahead_of(const AttentionArgs& args, const AttentionTask& task,
                          const TileSpan& span, int b) {
  const int next = span.block(b) + kTileBlocks;
  if (next * kBlockPositions < span.fetch_end) {
    return {task.blocks[next], task.head_kv};
  }
  if (task.next == nullptr || args.window > 0) return {task.blocks[span.block(b)], task.head_kv};
  const int last = (known_positions(args, *task.next) - 1) / kBlockPositions;
  return {task.next->blocks[b < last ? b : last], task.next->head_kv};
}

// Scores of all rows; kRows at a time.
template <typename Keys, int kRows>
inline void score_rows_by(const Keys* keys, const Keys* ahead, int d, AttentionRow* rows,
                          int n_rows, const TileSpan& span, float* all_scores) {
  for (int b = span.first, blocks = 0; b < span.last; b += blocks) {
    blocks = halving_step(span.last - b, kTileVectors);
    for (int r = 0; r < n_rows; r += kRows) {
      const int count = n_rows - r < kRows ? n_rows - r : kRows;
      const float* q[kRows] = {};
      float* scores[kRows] = {};
      for (int i = 0; i < count; ++i) {
        q[i] = rows[r + i].q;
        scores[i] = all_scores + (r + i) * kAttentionTile + b * kBlockPositions;
      }
      score_tile_of<Keys, kRows, kTileVectors>(count, blocks, q, keys + b, ahead + b, d, scores);
    }
  }
}

template <typename Keys>
inline void score_rows_directly(const AttentionArgs& args, const AttentionTask& task,
                                AttentionRow* rows, int n_rows, const TileSpan& span,
                                float* scores) {
  Keys keys[kTileBlocks] = {};
  Keys ahead[kTileBlocks] = {};
  for (int b = span.first; b < span.last; ++b) {
    keys[b] = keys_of<Keys>(args.k, task.blocks[span.block(b)], task.head_kv);
    const BlockHead next = ahead_of(args, task, span, b);
    ahead[b] = keys_of<Keys>(args.k, next.block, next.head);
  }
  score_rows_by<Keys, kDirectRows>(keys, ahead, args.k.head_dim, rows, n_rows, span, scores);
}

inline void score_rows(const AttentionArgs& args, const AttentionTask& task, AttentionRow* rows,
                       int n_rows, const TileSpan& span, const AttentionScratch& s) {
  if (n_rows <= kDirectRows && args.k.type != KvType::f32) {
    if (args.k.type == KvType::f16) {
      return score_rows_directly<KeysF16>(args, task, rows, n_rows, span, s.scores);
    }
    if (args.k.type == KvType::q8_0) {
      return score_rows_directly<KeysQ8>(args, task, rows, n_rows, span, s.scores);
    }
    return score_rows_directly<KeysQ4>(args, task, rows, n_rows, span, s.scores);
  }
  const int d = args.k.head_dim;
  if (is_quantised(args.k)) {
    KeysWide keys[kTileBlocks] = {};
    for (int b = span.first; b < span.last; ++b) {
      keys[b] = read_scaled_keys(args.k, task.blocks[span.block(b)], task.head_kv,
                                 s.keys + b * kBlockPositions * d);
    }
    return score_rows_by<KeysWide, kTileRows>(keys, keys, d, rows, n_rows, span, s.scores);
  }
  KeysF32 keys[kTileBlocks] = {};
  for (int b = span.first; b < span.last; ++b) {
    keys[b] = read_keys(args.k, task.blocks[span.block(b)], task.head_kv,
                        s.keys + b * kBlockPositions * d);
  }
  score_rows_by<KeysF32, kTileRows>(keys, keys, d, rows, n_rows, span, s.scores);
}

// Adds the tile's values to all rows; rows with the same positions share a register tile.
template <typename Values, int kRows>
inline void add_values_to_rows(ValueTile<Values>& v, const AttentionRow* rows, int n_rows,
                               const float* rescale, const float* all_weights) {
  for (int r = 0; r < n_rows;) {
    const AttentionRow& row = rows[r];
    const float* weights[kRows] = {};
    float* sums[kRows] = {};
    int count = 0;
    while (count < kRows && r + count < n_rows && rows[r + count].tile_begin == row.tile_begin &&
           rows[r + count].tile_end == row.tile_end) {
      weights[count] = all_weights + (r + count) * kAttentionTile;
      sums[count] = rows[r + count].output();
      ++count;
    }
    v.begin = row.tile_begin;
    v.end = row.tile_end;
    if (v.begin < v.end) add_values<Values, kRows>(count, v, weights, rescale + r, sums);
    r += count;
  }
}

template <typename Values>
inline void add_tile_directly(const AttentionArgs& args, const AttentionTask& task,
                              const AttentionRow* rows, int n_rows, const float* rescale,
                              const TileSpan& span, const float* weights) {
  ValueTile<Values> v = {};
  v.d = args.v.head_dim;
  for (int b = span.first; b < span.last; ++b) {
    v.blocks[b] = values_of<Values>(args.v, task.blocks[span.block(b)], task.head_kv);
    const BlockHead next = ahead_of(args, task, span, b);
    v.ahead[b] = values_of<Values>(args.v, next.block, next.head);
  }
  add_values_to_rows<Values, kDirectRows>(v, rows, n_rows, rescale, weights);
}

// The same through floats in memory: read(block, first and last position in it, scratch).
template <typename Values, typename Read>
inline void add_tile_expanded(const AttentionArgs& args, const AttentionTask& task,
                              const AttentionRow* rows, int n_rows, const float* rescale,
                              const TileSpan& span, const AttentionScratch& s, Read read) {
  ValueTile<Values> v = {};
  v.d = args.v.head_dim;
  int lowest = kAttentionTile;
  int highest = 0;
  for (int r = 0; r < n_rows; ++r) {
    if (rows[r].tile_begin >= rows[r].tile_end) continue;
    lowest = rows[r].tile_begin < lowest ? rows[r].tile_begin : lowest;
    highest = rows[r].tile_end > highest ? rows[r].tile_end : highest;
  }
  for (int b = span.first; b < span.last; ++b) {
    const int at = b * kBlockPositions;
    const int begin = lowest > at ? lowest - at : 0;
    const int end = highest < at + kBlockPositions ? highest - at : kBlockPositions;
    v.blocks[b] =
        read(args.v, task.blocks[span.block(b)], task.head_kv, begin, end, s.values + at * v.d);
  }
  add_values_to_rows<Values, kTileRows>(v, rows, n_rows, rescale, s.scores);
}

inline void add_tile_values(const AttentionArgs& args, const AttentionTask& task,
                            const AttentionRow* rows, int n_rows, const float* rescale,
                            const TileSpan& span, const AttentionScratch& s) {
  const bool directly = n_rows <= kDirectRows;
  if (is_quantised(args.v) && has_even_groups(args.v)) {
    if (!directly) {
      return add_tile_expanded<ValuesWide>(args, task, rows, n_rows, rescale, span, s,
                                           read_scaled_values);
    }
    if (args.v.type == KvType::q8_0) {
      return add_tile_directly<ValuesQ8>(args, task, rows, n_rows, rescale, span, s.scores);
    }
    return add_tile_directly<ValuesQ4>(args, task, rows, n_rows, rescale, span, s.scores);
  }
  if (directly && args.v.type == KvType::f16) {
    return add_tile_directly<ValuesF16>(args, task, rows, n_rows, rescale, span, s.scores);
  }
  add_tile_expanded<ValuesF32>(args, task, rows, n_rows, rescale, span, s, read_values);
}

// Sets up the task's rows for positions [begin, end); returns the number of rows, and the span of
// positions that any of them sees.
inline int prepare_rows(const AttentionArgs& args, const AttentionTask& task, int begin, int end,
                        float* partials, AttentionRow* rows, int& lowest, int& highest) {
  const int64_t floats = partial_floats(args.v.head_dim);
  int n_rows = 0;
  lowest = end;
  highest = begin;
  for (int t = 0; t < task.token_count; ++t) {
    const int64_t token = task.token_begin + t;
    const int position = args.positions[token];
    const int seen_from = args.window > 0 ? position + 1 - args.window : 0;
    for (int h = 0; h < task.head_count; ++h, ++n_rows) {
      AttentionRow& row = rows[n_rows];
      row.q = reinterpret_cast<const float*>(
          args.q + static_cast<size_t>(token) * args.q_token_stride +
          static_cast<size_t>(task.head_begin + h) * args.q_head_stride);
      row.partial = partials + n_rows * floats;
      row.begin = seen_from > begin ? seen_from : begin;
      row.end = position + 1 < end ? position + 1 : end;
      for (int64_t i = 0; i < floats; i += 16) store(row.partial + i, zero_f32());
      if (row.begin >= row.end) continue;
      lowest = row.begin < lowest ? row.begin : lowest;
      highest = row.end > highest ? row.end : highest;
    }
  }
  return n_rows;
}

// `fetch_end`: where the caller goes on to, at most.
inline void segment_into(const AttentionArgs& args, const AttentionTask& task, int64_t segment,
                         int fetch_end, const AttentionScratch& s, float* partials) {
  const int begin = static_cast<int>(segment * kAttentionSegment);
  AttentionRow rows[kAttentionMaxRows];
  int lowest = 0;
  int highest = 0;
  const int n_rows =
      prepare_rows(args, task, begin, begin + kAttentionSegment, partials, rows, lowest, highest);
  RowMaxima maxima;
  for (int r = 0; r < kAttentionMaxRows; r += 16) {
    store(maxima.current + r, broadcast(-__builtin_inff()));
    store(maxima.next + r, broadcast(-__builtin_inff()));
  }
  for (int tile = lowest / kAttentionTile * kAttentionTile; tile < highest;
       tile += kAttentionTile) {
    const int seen = highest - tile < kAttentionTile ? highest - tile : kAttentionTile;
    const TileSpan span = {tile, lowest > tile ? (lowest - tile) / kBlockPositions : 0,
                           (seen + kBlockPositions - 1) / kBlockPositions, fetch_end};
    score_rows(args, task, rows, n_rows, span, s);
    soften_rows(args, rows, n_rows, tile, maxima, s.scores);
    add_tile_values(args, task, rows, n_rows, maxima.rescale, span, s);
  }
  for (int r = 0; r < n_rows; ++r) {
    const float sum = reduce_tree(load(rows[r].partial));
    rows[r].partial[0] = maxima.current[r];
    rows[r].partial[1] = rows[r].begin < rows[r].end ? sum : kNothing;
  }
}

inline void attention_segment(const AttentionArgs& args, const AttentionTask& task, int64_t segment,
                              float* scratch, float* partials) {
  const int64_t end = (segment + 1) * kAttentionSegment;
  const int known = known_positions(args, task);
  segment_into(args, task, segment, end < known ? static_cast<int>(end) : known,
               divide_scratch(args, scratch), partials);
}

// --- merging ----------------------------------------------------------------------------------

inline float exp_of(float x) { return first_lane(exp(broadcast(x))); }

// total = total and, after it, part.
inline void merge_partial(float* total, const float* part, int64_t floats) {
  if (part[1] == kNothing) return;
  if (total[1] == kNothing) {
    for (int64_t i = 0; i < floats; i += 16) store(total + i, load(part + i));
    return;
  }
  const float maximum = part[0] > total[0] ? part[0] : total[0];
  const float old_factor = exp_of(total[0] - maximum);
  const float new_factor = exp_of(part[0] - maximum);
  total[0] = maximum;
  total[1] = __builtin_fmaf(part[1], new_factor, total[1] * old_factor);
  for (int64_t i = kPartialHeader; i < floats; i += 16) {
    const F32x16 kept = mul(load(total + i), broadcast(old_factor));
    store(total + i, fma(load(part + i), broadcast(new_factor), kept));
  }
}

// Adds the head's sink, a score without a value, and divides by the sum.
inline void finish_row(const AttentionArgs& args, int head, float* total, float* y) {
  const int d = args.v.head_dim;
  float factor = 0.0f;
  if (total[1] != kNothing) {
    float rescale = 1.0f;
    float sum = total[1];
    if (args.sinks != nullptr) {
      const float sink = args.sinks[head];
      const float maximum = sink > total[0] ? sink : total[0];
      rescale = exp_of(total[0] - maximum);
      sum = __builtin_fmaf(sum, rescale, exp_of(sink - maximum));
    }
    factor = rescale / sum;
  }
  for (int i = 0; i < d; i += 16) {
    const int count = d - i < 16 ? d - i : 16;
    store_n(y + i, mul(load(total + kPartialHeader + i), broadcast(factor)), count);
  }
}

inline void finish_task(const AttentionArgs& args, const AttentionTask& task, float* totals) {
  const int64_t floats = partial_floats(args.v.head_dim);
  for (int t = 0; t < task.token_count; ++t) {
    for (int h = 0; h < task.head_count; ++h) {
      const int head = task.head_begin + h;
      const int64_t row = int64_t{task.token_begin + t} * args.n_head + head;
      finish_row(args, head, totals + (int64_t{t} * task.head_count + h) * floats,
                 args.y + row * args.v.head_dim);
    }
  }
}

inline void attention_merge(const AttentionArgs& args, const AttentionTask& task, float* partials,
                            int64_t segment_stride, int64_t n_segments) {
  const int64_t floats = partial_floats(args.v.head_dim);
  const int64_t n_rows = int64_t{task.token_count} * task.head_count;
  for (int64_t segment = 1; segment < n_segments; ++segment) {
    for (int64_t r = 0; r < n_rows; ++r) {
      merge_partial(partials + r * floats, partials + segment * segment_stride + r * floats,
                    floats);
    }
  }
  finish_task(args, task, partials);
}

inline void attention(const AttentionArgs& args, const AttentionTask& task, float* scratch) {
  const AttentionScratch s = divide_scratch(args, scratch);
  const int64_t floats = partial_floats(args.v.head_dim);
  const int64_t n_rows = int64_t{task.token_count} * task.head_count;
  float* totals = s.partials;
  float* current = totals + kAttentionMaxRows * floats;
  const int last = known_positions(args, task) - 1;
  int first = last;
  for (int t = 0; t < task.token_count; ++t) {
    const int position = args.positions[task.token_begin + t];
    const int from = args.window > 0 && position + 1 > args.window ? position + 1 - args.window : 0;
    first = from < first ? from : first;
  }
  for (int64_t r = 0; r < n_rows; ++r) totals[r * floats + 1] = kNothing;
  for (int64_t segment = first / kAttentionSegment; segment <= last / kAttentionSegment;
       ++segment) {
    segment_into(args, task, segment, last + 1, s, current);
    for (int64_t r = 0; r < n_rows; ++r) {
      merge_partial(totals + r * floats, current + r * floats, floats);
    }
  }
  finish_task(args, task, totals);
}

}  // namespace strata::cpu::STRATA_CPU_ISA
