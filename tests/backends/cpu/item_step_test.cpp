// What an item step says that it touches is what it touches: accesses of tensors of every shape
// and stride against a walk over the rows' addresses.
#include "backends/cpu/item_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/ops.h"
#include "tests/backends/cpu/backend_support.h"

namespace strata::cpu {
namespace {

struct Range {
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
};

// The bytes of item `item` of `items`: neighbouring rows, or a part of a row.
Range walked(const Tensor& tensor, const Dims& shape, int64_t items, int64_t item) {
  const RowAddress address(tensor, shape);
  const int64_t rows = shape[1] * shape[2] * shape[3];
  const auto row_at = [&](int64_t row) { return reinterpret_cast<uintptr_t>(address.bytes(row)); };
  const uint64_t reach = static_cast<uint64_t>(tensor.ne[0] - 1) * tensor.nb[0] + sizeof(float);
  Range range;
  if (items >= rows) {
    const int64_t parts = items / rows;
    const uint64_t part = reach / static_cast<uint64_t>(parts);
    range.begin = row_at(item / parts) + part * static_cast<uint64_t>(item % parts);
    range.end = range.begin + part;
    return range;
  }
  const int64_t each = rows / items;
  for (int64_t row = item * each; row < (item + 1) * each; ++row) {
    range.begin = std::min<uint64_t>(range.begin, row_at(row));
    range.end = std::max<uint64_t>(range.end, row_at(row) + reach);
  }
  return range;
}

// Whether the access is even; it must cover what is walked, and be that exactly if it is.
bool is_even(const Tensor& tensor, const Dims& shape, int64_t items) {
  const Access access = item_access(Access::Kind::write, tensor, shape, items);
  EXPECT_EQ(access.kind, Access::Kind::write);
  EXPECT_FALSE(access.in_workspace);
  for (int64_t item = 0; item < items; ++item) {
    const Range range = walked(tensor, shape, items, item);
    const uint64_t begin =
        access.begin + (access.is_even ? access.item_stride * static_cast<uint64_t>(item) : 0);
    if (access.is_even) {
      EXPECT_EQ(range.begin, begin) << item;
      EXPECT_EQ(range.end, begin + access.item_bytes) << item;
    } else {
      EXPECT_GE(range.begin, begin) << item;
      EXPECT_LE(range.end, begin + access.item_bytes) << item;
    }
  }
  return access.is_even;
}

class ItemAccess : public ::testing::Test {
 protected:
  Tensor* leaf(const Dims& ne) { return test_.leaf(DType::f32, ne); }
  Graph& graph() { return test_.graph(); }
  // Views get their address.
  const Tensor& placed(Tensor* tensor) {
    test_.place_nodes();
    return *tensor;
  }

 private:
  TestGraph test_;
};

TEST_F(ItemAccess, OfDenseRows) {
  const Tensor& x = *leaf({8, 6, 4, 2});
  for (const int64_t items : {48, 24, 16, 8, 2, 1, 96, 48 * 8}) {
    EXPECT_TRUE(is_even(x, x.ne, items)) << items;
  }
  EXPECT_FALSE(is_even(x, x.ne, 0));
  EXPECT_FALSE(item_access(Access::Kind::read, x, x.ne, 5).is_even);  // 48 rows, 5 items
  const Tensor& one = *leaf({64, 1, 1, 1});
  for (const int64_t items : {1, 2, 8}) EXPECT_TRUE(is_even(one, one.ne, items)) << items;
  const Tensor& numbers = *leaf({1, 7, 1, 1});
  EXPECT_TRUE(is_even(numbers, numbers.ne, 7));
}

TEST_F(ItemAccess, OfRowsApart) {
  const Tensor& cut = placed(ops::slice(graph(), leaf({24, 6, 4, 1}), 0, 8, 8));
  for (const int64_t items : {24, 8, 4, 1}) EXPECT_TRUE(is_even(cut, cut.ne, items)) << items;
  EXPECT_FALSE(item_access(Access::Kind::read, cut, cut.ne, 48).is_even);  // halves of rows
  const Tensor& uneven = placed(ops::slice(graph(), leaf({8, 6, 4, 1}), 1, 1, 3));
  EXPECT_FALSE(is_even(uneven, uneven.ne, 12));
  const Tensor& turned = placed(ops::permute(graph(), leaf({8, 6, 4, 1}), {0, 2, 1, 3}));
  EXPECT_FALSE(is_even(turned, turned.ne, 24));
  const Tensor& transposed = placed(ops::transpose(graph(), leaf({8, 6, 1, 1})));
  EXPECT_TRUE(is_even(transposed, transposed.ne, 8));
}

TEST_F(ItemAccess, OfWhatIsRepeated) {
  const Dims shape = {8, 6, 4, 1};
  EXPECT_FALSE(is_even(*leaf({8, 1, 1, 1}), shape, 24));
  EXPECT_FALSE(is_even(*leaf({8, 6, 1, 1}), shape, 24));
  EXPECT_FALSE(is_even(*leaf({8, 1, 4, 1}), shape, 24));
  EXPECT_TRUE(is_even(*leaf({1, 6, 4, 1}), shape, 24));  // a number for each row
  // A stride of 0, which repeats a row under another name.
  Tensor* x = leaf({8, 4, 1, 1});
  const Tensor& repeated = placed(graph().new_view(x, {8, 3, 2, 1}, {4, 0, 32, 64}, 0));
  EXPECT_FALSE(is_even(repeated, repeated.ne, 6));
}

TEST_F(ItemAccess, OfNothing) {
  const Tensor& empty = *leaf({8, 0, 1, 1});
  EXPECT_FALSE(item_access(Access::Kind::read, empty, empty.ne, 4).is_even);
}

TEST(RowParts, AreEqualAndOfWholeBlocks) {
  EXPECT_EQ(row_parts(576), 1);
  EXPECT_EQ(row_parts(4096), 1);
  EXPECT_EQ(row_parts(8192), 2);
  EXPECT_EQ(row_parts(14336), 4);
  EXPECT_EQ(row_parts(9728), 4);  // 304 blocks: thirds would not be whole ones
  EXPECT_EQ(row_parts(262144), 64);
  EXPECT_EQ(row_parts(5001), 3);
  EXPECT_EQ(row_parts(5003), 1);       // a prime
  EXPECT_EQ(row_parts(32 * 1031), 1);  // 1,031 is, too
  EXPECT_EQ(row_parts(0), 1);
}

}  // namespace
}  // namespace strata::cpu
