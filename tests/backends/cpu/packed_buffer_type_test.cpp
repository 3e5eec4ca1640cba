// Packed memory gives back the bytes it was given, for every type and shape, and refuses ranges
// that its layout cannot take.
#include "backends/cpu/packed_buffer_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backends/cpu/matmul_support.h"

namespace strata::cpu::test {
namespace {

using testing::HasSubstr;

std::vector<std::byte> read_all(const Weights& weights) {
  std::vector<std::byte> bytes(weights.tensor.size_bytes());
  const Status status = weights.buffer->read(weights.tensor, 0, bytes);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bytes;
}

TEST(PackedBuffer, GivesBackEveryByteOfEveryTypeAndShape) {
  for (const DType dtype : kWeightTypes) {
    const int64_t block = dtype_traits(dtype).block_elements;
    for (int64_t rows = 2; rows <= 40; ++rows) {
      for (int64_t blocks = 1; blocks <= 3; ++blocks) {
        const auto bytes = random_rows(dtype, block * blocks, rows, 3);
        const auto weights = make_weights(dtype, {block * blocks, rows, 1, 1}, bytes, true);
        ASSERT_EQ(read_all(*weights), bytes) << dtype_name(dtype) << ' ' << rows << ' ' << blocks;
      }
    }
  }
}

TEST(PackedBuffer, TakesExpertsAndRowsPieceByPiece) {
  for (const DType dtype : kWeightTypes) {
    const int64_t k = dtype_traits(dtype).block_elements * 2;
    const Dims ne = {k, 40, 3, 1};
    const auto bytes = random_rows(dtype, k, 120, 5);
    const auto whole = make_weights(dtype, ne, bytes, true);
    ASSERT_EQ(read_all(*whole), bytes) << dtype_name(dtype);

    const auto parts = make_weights(dtype, ne, random_rows(dtype, k, 120, 6), true);
    const uint64_t row = *row_bytes(dtype, k);
    // Out of order, ends at groups and at ends of matrices, over two matrices.
    for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
             {96, 112}, {0, 16}, {112, 120}, {16, 80}, {80, 96}}) {
      const auto part = std::span(bytes).subspan(begin * row, (end - begin) * row);
      const Status status = parts->buffer->write(parts->tensor, begin * row, part);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    ASSERT_EQ(read_all(*parts), bytes) << dtype_name(dtype);
    std::vector<std::byte> one(row);
    ASSERT_TRUE(parts->buffer->read(parts->tensor, 57 * row, one).ok());
    ASSERT_TRUE(std::equal(one.begin(), one.end(), bytes.begin() + static_cast<long>(57 * row)));
  }
}

TEST(PackedBuffer, RefusesPartsOfRowsAndOfGroups) {
  const auto bytes = random_rows(DType::q4_0, 64, 40, 1);
  const auto weights = make_weights(DType::q4_0, {64, 40, 1, 1}, bytes, true);
  Buffer& buffer = *weights->buffer;
  const Tensor& tensor = weights->tensor;

  Status status = buffer.write(tensor, 0, std::span(bytes).subspan(0, 35));
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("are not whole rows of 36 bytes"));
  std::vector<std::byte> out(10);
  EXPECT_EQ(buffer.read(tensor, 0, out).code(), StatusCode::invalid_argument);

  status = buffer.write(tensor, 0, std::span(bytes).subspan(0, 36 * 17));
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("rows 0 to 17 do not begin and end at groups of 16"));
  status = buffer.write(tensor, 36 * 8, std::span(bytes).subspan(0, 36 * 32));
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);

  Tensor vector = tensor;
  vector.ne = {64, 1, 1, 1};
  EXPECT_FALSE(can_pack(vector));
  status = buffer.write(vector, 0, std::span(bytes).subspan(0, 36));
  EXPECT_THAT(status.message(), HasSubstr("packed memory holds matrices only"));
}

TEST(PackedBuffer, TakesAboutTheSpaceOfTheFile) {
  for (const DType dtype : kWeightTypes) {
    Tensor tensor;
    tensor.dtype = dtype;
    tensor.ne = {2048, 4096, 1, 1};
    tensor.nb = *dense_strides(dtype, tensor.ne);
    const auto file = static_cast<double>(tensor.size_bytes());
    const auto packed = static_cast<double>(packed_buffer_type().allocation_size(tensor));
    EXPECT_GE(packed, file) << dtype_name(dtype);
    EXPECT_LE(packed, file * 1.03) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace strata::cpu::test
