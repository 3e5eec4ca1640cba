#include "backends/cpu/matmul.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/cpu/dequantise.h"
#include "backends/cpu/packed_buffer_type.h"
#include "backends/cpu/repack.h"
#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"

namespace strata::cpu {
namespace {

// Weights of so many bytes stay in the level-2 cache (256 KiB and more on all AVX2 processors)
// while a piece walks over its columns.
constexpr uint64_t kCachedWeightBytes = 192 * 1024;
// Fewer bytes than this are not worth a claim of their own: at 20 GB/s some 0.8 us.
constexpr uint64_t kLeastPieceBytes = 16 * 1024;
// Pieces per thread, so that one that was held up leaves its work to the others.
constexpr int64_t kPiecesPerThread = 4;

uint64_t group_bytes_of(const WeightMatrix& weights) {
  return *packed_group_bytes(*packed_type(weights.dtype), weights.k);
}

// One matrix of the weights, and what a tile kernel needs to know of it.
struct Source {
  const WeightMatrix& weights;
  const std::byte* matrix;
  PackedType type;
  uint64_t group_bytes;
  std::byte* scratch;

  // Address of packed group `group`, rearranged into scratch if the rows are plain.
  const std::byte* group(int64_t index) const {
    const uint64_t at = static_cast<uint64_t>(index);
    if (weights.packed) return matrix + at * group_bytes;
    const int64_t left = weights.rows - index * kGroupRows;
    const int count = static_cast<int>(std::min<int64_t>(left, kGroupRows));
    pack_group(type, weights.k,
               {matrix + at * kGroupRows * weights.row_bytes, weights.row_bytes, count}, scratch);
    return scratch;
  }
};

Source source_of(const WeightMatrix& weights, int64_t matrix, std::span<std::byte> scratch) {
  STRATA_CHECK(weights.packed || scratch.size() >= matmul_scratch_bytes(weights),
               "plain weights need scratch memory");
  return {weights, weights.data + static_cast<uint64_t>(matrix) * weights.matrix_bytes,
          *packed_type(weights.dtype), group_bytes_of(weights), scratch.data()};
}

// Up to eight columns of one call.
struct Columns {
  int count = 0;
  const std::byte* x[kTileColumns];
  std::byte* y[kTileColumns];
};

TileArgs tile_args(const Source& source, int64_t group_begin, int64_t group_count,
                   const std::byte* packed, const Columns& columns, bool from_memory) {
  TileArgs tile;
  tile.weights = reinterpret_cast<const uint8_t*>(packed);
  tile.group_bytes = source.group_bytes;
  tile.group_count = group_count;
  tile.k = source.weights.k;
  tile.row_count = source.weights.rows - group_begin * kGroupRows;
  tile.column_count = columns.count;
  tile.from_memory = from_memory;
  for (int c = 0; c < columns.count; ++c) {
    tile.x[c] = columns.x[c];
    tile.y[c] = reinterpret_cast<float*>(columns.y[c]) + group_begin * kGroupRows;
  }
  return tile;
}

// Calls visit(columns) for every eight of [begin, end).
template <typename ColumnAt, typename Visit>
void for_each_tile(int64_t begin, int64_t end, ColumnAt column_at, Visit visit) {
  for (int64_t c = begin; c < end; c += kTileColumns) {
    Columns columns;
    columns.count = static_cast<int>(std::min<int64_t>(end - c, kTileColumns));
    for (int i = 0; i < columns.count; ++i) column_at(c + i, columns.x[i], columns.y[i]);
    visit(columns);
  }
}

// The piece's groups times `columns` for each tile that `tiles(visit)` visits.
template <typename Tiles>
void run_groups(const MatmulKernels& kernels, const Source& source, int64_t group_begin,
                int64_t group_end, Tiles tiles) {
  const auto kernel = kernels.tile[static_cast<int>(source.type)];
  const int64_t cached = std::max<int64_t>(
      1, static_cast<int64_t>(kCachedWeightBytes / std::max<uint64_t>(source.group_bytes, 1)));
  const int64_t step = source.weights.packed ? cached : 1;
  for (int64_t g = group_begin; g < group_end; g += step) {
    const int64_t count = std::min(step, group_end - g);
    const std::byte* packed = source.group(g);
    bool from_memory = source.weights.packed;  // the first columns bring them into the cache
    tiles([&](const Columns& columns) {
      kernel(tile_args(source, g, count, packed, columns, from_memory));
      from_memory = false;
    });
  }
}

}  // namespace

const MatmulKernels& matmul_kernels(Isa isa) {
  switch (isa.level) {
    case IsaLevel::avx512:
      return isa.vnni ? matmul_kernels_avx512_vnni() : matmul_kernels_avx512();
    case IsaLevel::avx2:
      return isa.vnni ? matmul_kernels_avx2_vnni() : matmul_kernels_avx2();
    case IsaLevel::scalar:
      break;
  }
  return matmul_kernels_scalar();
}

bool is_weight_type(DType dtype) { return packed_type(dtype).has_value(); }

WeightMatrix weight_matrix(const Tensor& tensor) {
  STRATA_CHECK(is_weight_type(tensor.dtype) && tensor.ne[3] == 1, describe(tensor));
  WeightMatrix weights;
  weights.dtype = tensor.dtype;
  weights.k = tensor.ne[0];
  weights.rows = tensor.ne[1];
  weights.matrices = tensor.ne[2];
  weights.data = tensor.data;
  weights.packed = tensor.buffer != nullptr && &tensor.buffer->type() == &packed_buffer_type();
  if (weights.packed) {
    STRATA_CHECK(tensor.view_source == nullptr && can_pack(tensor), describe(tensor));
    weights.matrix_bytes =
        group_bytes_of(weights) * static_cast<uint64_t>(divide_up(weights.rows, kGroupRows));
  } else {
    STRATA_CHECK(tensor.buffer == nullptr || tensor.buffer->type().is_host(), describe(tensor));
    STRATA_CHECK(tensor.nb[0] == dtype_traits(tensor.dtype).block_bytes, describe(tensor));
    weights.row_bytes = tensor.nb[1];
    weights.matrix_bytes = tensor.nb[2];
  }
  return weights;
}

bool uses_activation_blocks(DType weights) { return dtype_traits(weights).quantised; }

uint64_t activation_row_bytes(int64_t k) {
  return static_cast<uint64_t>(k) / kBlockElements * sizeof(ActivationBlock);
}

void quantise_rows(const MatmulKernels& kernels, const QuantiseArgs& args, int64_t row_begin,
                   int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const uint64_t r = static_cast<uint64_t>(row);
    kernels.quantise_row(
        reinterpret_cast<const float*>(args.x + r * args.x_stride), args.k,
        reinterpret_cast<ActivationBlock*>(args.blocks + r * activation_row_bytes(args.k)));
  }
}

Piece PieceGrid::piece(int64_t index) const {
  const int64_t group = index % group_pieces * groups_per_piece;
  const int64_t column = index / group_pieces * columns_per_piece;
  return {group, std::min(group + groups_per_piece, groups), column,
          std::min(column + columns_per_piece, columns)};
}

PieceGrid plan_pieces(const WeightMatrix& weights, int64_t columns, int threads) {
  PieceGrid grid;
  grid.groups = divide_up(weights.rows, kGroupRows);
  grid.columns = columns;
  if (grid.groups == 0 || columns == 0) return grid;
  const uint64_t group_bytes = std::max<uint64_t>(group_bytes_of(weights), 1);
  const int64_t wanted = threads > 1 ? kPiecesPerThread * threads : 1;
  const auto groups_in = [&](uint64_t bytes) {
    return std::max<int64_t>(1, static_cast<int64_t>(bytes / group_bytes));
  };
  // More columns are more work per byte, so that smaller ranges of rows are worth a claim.
  const uint64_t least_bytes =
      kLeastPieceBytes / static_cast<uint64_t>(std::min<int64_t>(columns, 8));
  grid.groups_per_piece =
      std::clamp(divide_up(grid.groups, wanted), groups_in(least_bytes),
                 std::max(groups_in(kCachedWeightBytes), groups_in(least_bytes)));
  grid.groups_per_piece = std::min(grid.groups_per_piece, grid.groups);
  grid.group_pieces = divide_up(grid.groups, grid.groups_per_piece);
  // Few rows and many columns: columns are shared out too, in whole tiles.
  const int64_t tiles = divide_up(columns, kTileColumns);
  const int64_t column_pieces =
      weights.packed ? std::clamp<int64_t>(divide_up(wanted, grid.group_pieces), 1, tiles) : 1;
  grid.columns_per_piece = divide_up(tiles, column_pieces) * kTileColumns;
  grid.count = grid.group_pieces * divide_up(columns, grid.columns_per_piece);
  return grid;
}

uint64_t matmul_scratch_bytes(const WeightMatrix& weights) {
  return weights.packed ? 0 : group_bytes_of(weights);
}

void run_matmul_piece(const MatmulKernels& kernels, const MatmulArgs& args, const Piece& piece,
                      std::span<std::byte> scratch) {
  const Source source = source_of(args.weights, 0, scratch);
  const auto column_at = [&](int64_t column, const std::byte*& x, std::byte*& y) {
    x = args.x + static_cast<uint64_t>(column) * args.x_stride;
    y = args.y + static_cast<uint64_t>(column) * args.y_stride;
  };
  run_groups(kernels, source, piece.group_begin, piece.group_end, [&](auto visit) {
    for_each_tile(piece.column_begin, piece.column_end, column_at, visit);
  });
}

namespace {

// Addresses of column (slot, token) of a product over experts.
struct IdColumns {
  const MatmulIdArgs& args;

  int32_t id(int64_t column) const {
    const uint64_t slot = static_cast<uint64_t>(column % args.n_slots);
    const uint64_t token = static_cast<uint64_t>(column / args.n_slots);
    int32_t value;
    std::memcpy(&value, args.ids + token * args.ids_token_stride + slot * 4, 4);
    return value;
  }
  void add(int64_t column, Columns& columns) const {
    const uint64_t slot = static_cast<uint64_t>(column % args.n_slots);
    const uint64_t token = static_cast<uint64_t>(column / args.n_slots);
    columns.x[columns.count] = args.x + slot * args.x_slot_stride + token * args.x_token_stride;
    columns.y[columns.count] = args.y + slot * args.y_slot_stride + token * args.y_token_stride;
    ++columns.count;
  }
};

void fill_with_nan(const MatmulIdArgs& args, const Piece& piece, std::byte* y) {
  const int64_t begin = piece.group_begin * kGroupRows;
  const int64_t end = std::min(piece.group_end * kGroupRows, args.weights.rows);
  std::fill(reinterpret_cast<float*>(y) + begin, reinterpret_cast<float*>(y) + end,
            std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

void run_matmul_id_piece(const MatmulKernels& kernels, const MatmulIdArgs& args, const Piece& piece,
                         std::span<std::byte> scratch) {
  const IdColumns all{args};
  // Columns of one expert share its unpacked tiles, wherever their tokens stand.
  for (int64_t matrix = 0; matrix < args.weights.matrices; ++matrix) {
    const Source source = source_of(args.weights, matrix, scratch);
    const auto tiles = [&](auto visit) {
      Columns columns;
      for (int64_t c = piece.column_begin; c < piece.column_end; ++c) {
        if (all.id(c) != matrix) continue;
        all.add(c, columns);
        if (columns.count < kTileColumns) continue;
        visit(columns);
        columns.count = 0;
      }
      if (columns.count > 0) visit(columns);
    };
    bool used = false;
    for (int64_t c = piece.column_begin; c < piece.column_end && !used; ++c) {
      used = all.id(c) == matrix;
    }
    if (used) run_groups(kernels, source, piece.group_begin, piece.group_end, tiles);
  }
  for (int64_t c = piece.column_begin; c < piece.column_end; ++c) {
    if (all.id(c) >= 0 && all.id(c) < args.weights.matrices) continue;
    Columns column;
    all.add(c, column);
    fill_with_nan(args, piece, column.y[0]);
  }
}

void get_weight_row(const WeightMatrix& weights, int64_t row, float* out) {
  if (!weights.packed) {
    const std::byte* bytes = weights.data + static_cast<uint64_t>(row) * weights.row_bytes;
    return dequantise_row(weights.dtype, bytes, weights.k, out);
  }
  constexpr int64_t kPart = 256;  // a whole number of chunks of every layout
  std::byte plain[kPart * 4];
  const PackedType type = *packed_type(weights.dtype);
  const std::byte* group =
      weights.data + static_cast<uint64_t>(row / kGroupRows) * group_bytes_of(weights);
  for (int64_t k = 0; k < weights.k; k += kPart) {
    const int64_t count = std::min(kPart, weights.k - k);
    unpack_row(type, count, group + *packed_group_bytes(type, k),
               static_cast<int>(row % kGroupRows), plain);
    dequantise_row(weights.dtype, plain, count, out + k);
  }
}

}  // namespace strata::cpu
