// Goal: nothing outside the bytes is ever read, and a failed read leaves the cursor alone.
#include "runtime/base/byte_reader.h"

#include <gtest/gtest.h>

#include <limits>

namespace strata {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(ByteReader, ReadsNumbersAndBytesInOrder) {
  ByteReader reader(as_bytes(std::string_view("\x01\x02\x00\x00\x00"
                                              "abc",
                                              8)),
                    "file");
  EXPECT_EQ(reader.try_number<uint8_t>(), 1);
  EXPECT_EQ(reader.number<uint32_t>("short").value(), 2u);
  EXPECT_EQ(reader.bytes(3, "short").value(), "abc");
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReader, RefusesWhatIsNotThereAndStaysWhereItWas) {
  ByteReader reader(as_bytes("abcde"), "file");
  ASSERT_TRUE(reader.try_bytes(2).has_value());
  const auto number = reader.number<uint64_t>("number past end");
  EXPECT_EQ(number.status().message(), "file: number past end at offset 2");
  EXPECT_EQ(number.status().code(), StatusCode::invalid_argument);
  EXPECT_FALSE(reader.try_bytes(4).has_value());
  EXPECT_FALSE(reader.try_bytes(std::numeric_limits<uint64_t>::max()).has_value());
  EXPECT_FALSE(reader.try_bytes(std::numeric_limits<uint64_t>::max() - 1).has_value());
  EXPECT_EQ(reader.offset(), 2u);
  EXPECT_EQ(reader.try_bytes(3), "cde");
  EXPECT_EQ(reader.try_bytes(0), "");
}

TEST(ByteReader, AnEmptySpanHoldsNothing) {
  ByteReader reader({}, "file");
  EXPECT_FALSE(reader.try_number<uint8_t>().has_value());
  EXPECT_TRUE(reader.try_bytes(0).has_value());
}

}  // namespace
}  // namespace strata
