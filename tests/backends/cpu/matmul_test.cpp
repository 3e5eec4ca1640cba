// Matrix products: every type on every vector path, for every small shape, gives the bits of the
// scalar path, however it is cut and wherever the weights are; the scalar path meets a reference in
// double; and digests in tests/data let machines with other paths compare.
#include "backends/cpu/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "backends/cpu/dequantise.h"
#include "runtime/base/digest.h"
#include "tests/backends/cpu/matmul_support.h"

namespace strata::cpu::test {
namespace {

constexpr Isa kScalar = {IsaLevel::scalar, false};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// K in elements for a test: 1..3 blocks, or odd counts for types without blocks.
std::vector<int64_t> test_ks(DType dtype) {
  const int64_t block = dtype_traits(dtype).block_elements;
  if (block == 1) return {1, 7, 48};
  return {block, 2 * block, 3 * block};
}

class MatmulTypes : public testing::TestWithParam<DType> {};

TEST_P(MatmulTypes, GiveTheScalarPathsBitsOnEveryPath) {
  const DType dtype = GetParam();
  for (const Isa isa : isas()) {
    const MatmulKernels& kernels = matmul_kernels(isa);
    for (const int64_t k : test_ks(dtype)) {
      for (int64_t rows = 1; rows <= 40; ++rows) {
        const int64_t columns = 1 + (rows * 7 + k) % 33;
        const auto bytes = random_rows(dtype, k, rows, 1);
        const auto plain = make_weights(dtype, {k, rows, 1, 1}, bytes, false);
        const auto x = random_activations(k, columns, 2);
        const auto blocks = make_activations(matmul_kernels(kScalar), dtype, x, k, columns);
        const PieceGrid grid = plan_pieces(plain->matrix(), columns, 2);
        const auto expected =
            multiply(matmul_kernels(kScalar), plain->matrix(), blocks, columns, grid);
        ASSERT_TRUE(same_bits(multiply(kernels, plain->matrix(), blocks, columns, grid), expected))
            << isa_name(isa) << " plain, k " << k << " rows " << rows << " columns " << columns;
        if (rows == 1) continue;
        const auto packed = make_weights(dtype, {k, rows, 1, 1}, bytes, true);
        ASSERT_TRUE(same_bits(multiply(kernels, packed->matrix(), blocks, columns, grid), expected))
            << isa_name(isa) << " packed, k " << k << " rows " << rows << " columns " << columns;
      }
    }
  }
}

TEST_P(MatmulTypes, GiveEqualBitsForEveryColumnCountAndCut) {
  const DType dtype = GetParam();
  const int64_t k = dtype_traits(dtype).block_elements == 1 ? 96 : 768;
  const int64_t rows = 75;
  const auto bytes = random_rows(dtype, k, rows, 3);
  const auto packed = make_weights(dtype, {k, rows, 1, 1}, bytes, true);
  const auto x = random_activations(k, 33, 4);
  for (const Isa isa : isas()) {
    const MatmulKernels& kernels = matmul_kernels(isa);
    const auto all_x = make_activations(kernels, dtype, x, k, 33);
    // Column by column: what decoding alone computes.
    std::vector<float> expected;
    for (int64_t c = 0; c < 33; ++c) {
      const std::vector<float> one_x(x.begin() + c * k, x.begin() + (c + 1) * k);
      const auto one =
          multiply(kernels, packed->matrix(), make_activations(kernels, dtype, one_x, k, 1), 1,
                   plan_pieces(packed->matrix(), 1, 1));
      expected.insert(expected.end(), one.begin(), one.end());
    }
    for (int64_t columns = 1; columns <= 33; ++columns) {
      const std::vector<float> head(expected.begin(), expected.begin() + columns * rows);
      PieceGrid grid = plan_pieces(packed->matrix(), columns, static_cast<int>(columns % 5));
      ASSERT_TRUE(same_bits(multiply(kernels, packed->matrix(), all_x, columns, grid), head))
          << isa_name(isa) << " columns " << columns;
      grid.groups_per_piece = 1 + columns % 3;
      grid.columns_per_piece = 1 + columns % 11;
      grid.group_pieces = (grid.groups + grid.groups_per_piece - 1) / grid.groups_per_piece;
      grid.count =
          grid.group_pieces * ((columns + grid.columns_per_piece - 1) / grid.columns_per_piece);
      ASSERT_TRUE(same_bits(multiply(kernels, packed->matrix(), all_x, columns, grid), head))
          << isa_name(isa) << " columns " << columns << " in odd pieces";
    }
  }
}

// The activations that the product sees, in double.
std::vector<double> seen_activations(DType dtype, const Activations& x, int64_t k, int64_t column) {
  std::vector<double> out;
  const std::byte* at = x.data() + static_cast<uint64_t>(column) * x.stride;
  for (int64_t i = 0; i < k; ++i) {
    if (uses_activation_blocks(dtype)) {
      const auto* blocks = reinterpret_cast<const ActivationBlock*>(at);
      out.push_back(static_cast<double>(blocks[i / 32].d) * blocks[i / 32].q[i % 32]);
    } else {
      out.push_back(reinterpret_cast<const float*>(at)[i]);
    }
  }
  return out;
}

TEST_P(MatmulTypes, MeetTheReferenceInDouble) {
  const DType dtype = GetParam();
  const int64_t k = dtype_traits(dtype).block_elements == 1 ? 300 : 512;
  const int64_t rows = 21;
  const int64_t columns = 5;
  const auto bytes = random_rows(dtype, k, rows, 8);
  const auto packed = make_weights(dtype, {k, rows, 1, 1}, bytes, true);
  const MatmulKernels& kernels = matmul_kernels(kScalar);
  const auto x = make_activations(kernels, dtype, random_activations(k, columns, 9), k, columns);
  const auto y =
      multiply(kernels, packed->matrix(), x, columns, plan_pieces(packed->matrix(), columns, 1));
  std::vector<float> w(static_cast<size_t>(k));
  for (int64_t c = 0; c < columns; ++c) {
    const std::vector<double> seen = seen_activations(dtype, x, k, c);
    for (int64_t row = 0; row < rows; ++row) {
      get_weight_row(packed->matrix(), row, w.data());
      double sum = 0;
      double size = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        sum += static_cast<double>(w[i]) * seen[i];
        size += std::fabs(static_cast<double>(w[i]) * seen[i]);
      }
      ASSERT_NEAR(y[static_cast<size_t>(c * rows + row)], sum, 2e-6 * size)
          << dtype_name(dtype) << " row " << row << " column " << c;
    }
  }
}

TEST_P(MatmulTypes, MultiplyByTheExpertsThatTheIdsName) {
  const DType dtype = GetParam();
  const int64_t k = dtype_traits(dtype).block_elements * 2;
  const int64_t rows = 37;
  const int64_t experts = 5;
  const int64_t n_slots = 3;
  const int64_t n_tokens = 13;
  const auto bytes = random_rows(dtype, k, rows * experts, 21);
  const auto x = random_activations(k, n_slots * n_tokens, 22);
  Random random(23);
  std::vector<int32_t> ids(static_cast<size_t>(n_slots * n_tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.next() % static_cast<uint64_t>(experts));
  const uint64_t matrix_bytes = *row_bytes(dtype, k) * static_cast<uint64_t>(rows);
  for (const Isa isa : isas()) {
    const MatmulKernels& kernels = matmul_kernels(isa);
    const auto all_x = make_activations(kernels, dtype, x, k, n_slots * n_tokens);
    for (const bool is_packed : {true, false}) {
      const auto weights = make_weights(dtype, {k, rows, experts, 1}, bytes, is_packed);
      std::vector<float> y(static_cast<size_t>(rows * n_slots * n_tokens), -1.0f);
      Lines scratch(matmul_scratch_bytes(weights->matrix()) / 64);
      const auto y_row = static_cast<uint64_t>(rows) * 4;
      const MatmulIdArgs args{weights->matrix(),
                              all_x.data(),
                              all_x.stride,
                              all_x.stride * n_slots,
                              reinterpret_cast<std::byte*>(y.data()),
                              y_row,
                              y_row * n_slots,
                              reinterpret_cast<const std::byte*>(ids.data()),
                              n_slots * 4,
                              n_slots};
      const PieceGrid grid = plan_pieces(weights->matrix(), n_slots * n_tokens, 3);
      for (int64_t i = 0; i < grid.count; ++i) {
        run_matmul_id_piece(kernels, args, grid.piece(i),
                            {bytes_of(scratch), scratch.size() * sizeof(Line)});
      }
      for (size_t c = 0; c < ids.size(); ++c) {
        const auto from =
            bytes.begin() + static_cast<long>(matrix_bytes * static_cast<size_t>(ids[c]));
        const std::vector<std::byte> one(from, from + static_cast<long>(matrix_bytes));
        const auto matrix = make_weights(dtype, {k, rows, 1, 1}, one, true);
        const std::vector<float> one_x(x.begin() + static_cast<long>(c) * k,
                                       x.begin() + static_cast<long>(c + 1) * k);
        const auto expected =
            multiply(kernels, matrix->matrix(), make_activations(kernels, dtype, one_x, k, 1), 1,
                     plan_pieces(matrix->matrix(), 1, 1));
        const std::vector<float> column(y.begin() + static_cast<long>(c) * rows,
                                        y.begin() + static_cast<long>(c + 1) * rows);
        ASSERT_TRUE(same_bits(column, expected)) << isa_name(isa) << " column " << c;
      }
    }
  }
}

TEST_P(MatmulTypes, ShowActivationsThatAreNotFinite) {
  const DType dtype = GetParam();
  const int64_t k = dtype_traits(dtype).block_elements == 1 ? 32 : 256;
  const auto packed = make_weights(dtype, {k, 20, 1, 1}, random_rows(dtype, k, 20, 31), true);
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
    auto x = random_activations(k, 3, 32);
    x[static_cast<size_t>(k + 17)] = bad;
    for (const Isa isa : isas()) {
      const MatmulKernels& kernels = matmul_kernels(isa);
      const auto y = multiply(kernels, packed->matrix(), make_activations(kernels, dtype, x, k, 3),
                              3, plan_pieces(packed->matrix(), 3, 1));
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(std::isfinite(y[i]), i / 20 != 1) << isa_name(isa) << " element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatmulTypes, testing::ValuesIn(kWeightTypes),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

TEST(Matmul, IdsOutOfRangeGiveNaNAndTouchNothingElse) {
  const auto weights =
      make_weights(DType::f32, {4, 20, 2, 1}, random_rows(DType::f32, 4, 40, 1), true);
  const auto x = random_activations(4, 3, 2);
  const int32_t ids[3] = {-1, 1, 2};
  std::vector<float> y(60, -1.0f);
  const MatmulIdArgs args{weights->matrix(),
                          reinterpret_cast<const std::byte*>(x.data()),
                          0,
                          16,
                          reinterpret_cast<std::byte*>(y.data()),
                          80,
                          80,
                          reinterpret_cast<const std::byte*>(ids),
                          4,
                          1};
  run_matmul_id_piece(matmul_kernels(kScalar), args, {0, 2, 0, 3}, {});
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y[i]), i / 20 != 1) << i;
}

// Address space of which only touched pages cost memory.
class Reserved {
 public:
  explicit Reserved(size_t size)
      : size_(size),
        base_(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Reserved() {
    if (usable()) munmap(base_, size_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  bool usable() const { return base_ != MAP_FAILED; }
  std::byte* base() const { return static_cast<std::byte*>(base_); }

 private:
  size_t size_;
  void* base_;
};

TEST(Matmul, ReachesOffsetsBeyondFourGigabytes) {
  const int64_t k = 4096;
  const auto rows = random_rows(DType::q8_0, k, 16, 41);
  const auto small = make_weights(DType::q8_0, {k, 16, 1, 1}, rows, true);
  const uint64_t group_bytes = small->matrix().matrix_bytes;
  const int64_t groups = static_cast<int64_t>((uint64_t{5} << 30) / group_bytes);
  const uint64_t column_stride = uint64_t{3} << 30;
  const Reserved weights_space(static_cast<size_t>(groups) * group_bytes);
  const Reserved columns_space(2 * column_stride + (size_t{1} << 28));
  if (!weights_space.usable() || !columns_space.usable()) GTEST_SKIP() << "no address space";
  std::memcpy(weights_space.base() + static_cast<uint64_t>(groups - 1) * group_bytes,
              small->matrix().data, group_bytes);

  WeightMatrix large = small->matrix();
  large.data = weights_space.base();
  large.rows = groups * 16;
  large.matrix_bytes = static_cast<uint64_t>(groups) * group_bytes;
  for (const Isa isa : isas()) {
    const MatmulKernels& kernels = matmul_kernels(isa);
    const auto x = make_activations(kernels, DType::q8_0, random_activations(k, 3, 42), k, 3);
    const auto expected =
        multiply(kernels, small->matrix(), x, 3, plan_pieces(small->matrix(), 3, 1));
    // Columns 3 GiB apart, each with its x first and its y behind.
    std::byte* y = columns_space.base() + x.stride;
    for (uint64_t c = 0; c < 3; ++c) {
      std::memcpy(columns_space.base() + c * column_stride, x.data() + c * x.stride, x.stride);
    }
    run_matmul_piece(kernels, {large, columns_space.base(), column_stride, y, column_stride},
                     {groups - 1, groups, 0, 3}, {});
    for (uint64_t c = 0; c < 3; ++c) {
      const std::byte* column = y + c * column_stride + static_cast<uint64_t>(groups - 1) * 64;
      ASSERT_EQ(std::memcmp(column, expected.data() + 16 * c, 64), 0) << isa_name(isa) << ' ' << c;
    }
  }
}

TEST(Matmul, PiecesCoverEverythingOnce) {
  const auto weights =
      make_weights(DType::q8_0, {512, 700, 1, 1}, random_rows(DType::q8_0, 512, 700, 1), true);
  for (const int64_t columns : {1, 2, 7, 8, 9, 33, 512}) {
    for (const int threads : {1, 2, 3, 16, 64}) {
      const PieceGrid grid = plan_pieces(weights->matrix(), columns, threads);
      std::map<std::pair<int64_t, int64_t>, int> seen;
      for (int64_t i = 0; i < grid.count; ++i) {
        const Piece piece = grid.piece(i);
        ASSERT_LT(piece.group_begin, piece.group_end);
        ASSERT_LT(piece.column_begin, piece.column_end);
        for (int64_t g = piece.group_begin; g < piece.group_end; ++g) {
          for (int64_t c = piece.column_begin; c < piece.column_end; ++c) ++seen[{g, c}];
        }
      }
      ASSERT_EQ(static_cast<int64_t>(seen.size()), 44 * columns) << columns << ' ' << threads;
      for (const auto& [place, count] : seen) ASSERT_EQ(count, 1);
    }
  }
}

// "TYPE digest" lines: SHA-256 over the products of three shapes.
TEST(Matmul, GivesTheBitsOfOtherMachines) {
  std::map<std::string, std::string> golden;
  std::ifstream file(std::string(STRATA_TEST_DATA) + "/quants/matmul_digests.txt");
  for (std::string name, digest; file >> name >> digest;) golden[name] = digest;
  for (const Isa isa : isas()) {
    const MatmulKernels& kernels = matmul_kernels(isa);
    for (const DType dtype : kWeightTypes) {
      Sha256 sha;
      for (const auto& [k, rows, columns] :
           {std::tuple<int64_t, int64_t, int64_t>{256, 33, 1}, {768, 50, 3}, {1536, 19, 17}}) {
        const auto packed =
            make_weights(dtype, {k, rows, 1, 1}, random_rows(dtype, k, rows, 77), true);
        const auto x =
            make_activations(kernels, dtype, random_activations(k, columns, 78), k, columns);
        const auto y = multiply(kernels, packed->matrix(), x, columns,
                                plan_pieces(packed->matrix(), columns, 1));
        sha.update(std::as_bytes(std::span(y)));
      }
      const std::string name(dtype_name(dtype));
      EXPECT_EQ(sha.finish(), golden[name]) << isa_name(isa) << ' ' << name;
    }
  }
}

TEST(Matmul, PathsThatThisProcessorLacksAreSkipped) {
  if (isas().size() < 5) GTEST_SKIP() << "only " << isas().size() << " of 5 vector paths run here";
}

}  // namespace
}  // namespace strata::cpu::test
