// LinearAllocator: exact sizes, spreading over buffers, and what happens when there is no room.
#include "runtime/memory/linear_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "runtime/memory/host_buffer.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

// Host memory in small buffers, and not too many of them.
class SmallType final : public BufferType {
 public:
  explicit SmallType(uint64_t budget) : left_(budget) {}
  std::string_view name() const override { return "small"; }
  uint64_t alignment() const override { return 64; }
  uint64_t max_size() const override { return 1024; }
  bool is_host() const override { return true; }
  Result<std::unique_ptr<Buffer>> allocate(uint64_t size) const override {
    if (size > left_) return resource_exhausted("small: needs " + std::to_string(size));
    left_ -= size;
    return host_buffer_type().allocate(size);
  }

 private:
  mutable uint64_t left_;
};

std::deque<Tensor> tensors(std::initializer_list<int64_t> sizes) {
  std::deque<Tensor> result;
  for (const int64_t n : sizes) {
    Tensor& tensor = result.emplace_back();
    tensor.name = "t" + std::to_string(result.size());
    tensor.ne = {n, 1, 1, 1};
    tensor.nb = dense_strides(DType::f32, tensor.ne).value();
  }
  return result;
}

TEST(LinearAllocator, MeasuresExactlyWhatItTakes) {
  std::deque<Tensor> set = tensors({10, 16, 1, 0});
  LinearAllocator allocator(host_buffer_type());
  for (Tensor& tensor : set) allocator.add(tensor);
  EXPECT_EQ(allocator.total_bytes(), 4u * 64);
  EXPECT_EQ(set[0].buffer, nullptr);
  const auto buffers = allocator.allocate(BufferUsage::weights).value();
  ASSERT_EQ(buffers.size(), 1u);
  EXPECT_EQ(buffers[0]->size(), 256u);
  EXPECT_EQ(buffers[0]->usage, BufferUsage::weights);
  EXPECT_EQ(set[1].data - set[0].data, 64);
}

TEST(LinearAllocator, SpreadsOverSeveralBuffers) {
  std::deque<Tensor> set = tensors({200, 200, 40, 256});
  const SmallType type(1 << 20);
  LinearAllocator allocator(type);
  for (Tensor& tensor : set) allocator.add(tensor);
  EXPECT_EQ(allocator.buffer_sizes(), (std::vector<uint64_t>{832, 832 + 192, 1024}));
  const auto buffers = allocator.allocate(BufferUsage::any).value();
  EXPECT_EQ(buffers.size(), 3u);
  EXPECT_EQ(set[2].buffer, buffers[1].get());
}

TEST(LinearAllocator, RefusesATensorLargerThanABuffer) {
  std::deque<Tensor> set = tensors({257});
  const SmallType type(1 << 20);
  LinearAllocator allocator(type);
  allocator.add(set[0]);
  const Status status = allocator.allocate(BufferUsage::any).status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("t1 F32 {257} takes 1.0 KiB"));
  EXPECT_EQ(set[0].buffer, nullptr);
}

// Memory in which everything takes as much as a test says.
class HugeType final : public BufferType {
 public:
  explicit HugeType(uint64_t size) : size_(size) {}
  std::string_view name() const override { return "huge"; }
  uint64_t alignment() const override { return 64; }
  bool is_host() const override { return true; }
  uint64_t allocation_size(const Tensor&) const override { return size_; }
  Result<std::unique_ptr<Buffer>> allocate(uint64_t size) const override {
    return host_buffer_type().allocate(size);
  }

 private:
  uint64_t size_;
};

TEST(LinearAllocator, SizesNearTheTopDoNotWrap) {
  for (const uint64_t size : {UINT64_MAX - 15, UINT64_MAX, uint64_t{1} << 63}) {
    std::deque<Tensor> set = tensors({4, 4, 4});
    const HugeType type(size);
    LinearAllocator allocator(type);
    for (Tensor& tensor : set) allocator.add(tensor);
    EXPECT_GE(allocator.total_bytes(), size);
    EXPECT_EQ(allocator.allocate(BufferUsage::any).status().code(), StatusCode::resource_exhausted);
    EXPECT_EQ(set[0].buffer, nullptr);
  }
}

TEST(LinearAllocator, SaysWhatIsMissingAndPlacesNothing) {
  std::deque<Tensor> set = tensors({256, 256, 256});
  const SmallType type(2048);
  LinearAllocator allocator(type);
  for (Tensor& tensor : set) allocator.add(tensor);
  const Status status = allocator.allocate(BufferUsage::any).status();
  EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
  EXPECT_THAT(status.message(), HasSubstr("buffer 3 of 3 (1.0 KiB of 3.0 KiB in small memory)"));
  for (const Tensor& tensor : set) EXPECT_EQ(tensor.buffer, nullptr);
}

TEST(LinearAllocator, PlacesViewsWithTheirSource) {
  std::deque<Tensor> set = tensors({16, 4});
  set[1].view_source = &set[0];
  set[1].view_offset = 16;
  LinearAllocator allocator(host_buffer_type());
  allocator.add(set[1]);
  allocator.add(set[0]);
  EXPECT_EQ(allocator.total_bytes(), 64u);
  const auto buffers = allocator.allocate(BufferUsage::any).value();
  EXPECT_EQ(set[1].data, set[0].data + 16);
}

TEST(LinearAllocator, LeavesPlacedTensorsWhereTheyAre) {
  std::deque<Tensor> set = tensors({16, 16});
  const auto own = host_buffer_type().allocate(64).value();
  place(set[0], *own, 0);
  LinearAllocator allocator(host_buffer_type());
  for (Tensor& tensor : set) allocator.add(tensor);
  EXPECT_EQ(allocator.total_bytes(), 64u);
  const auto buffers = allocator.allocate(BufferUsage::any).value();
  EXPECT_EQ(set[0].buffer, own.get());
}

}  // namespace
}  // namespace strata
