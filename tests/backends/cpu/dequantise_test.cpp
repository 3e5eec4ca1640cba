// Dequantised values against samples of ggml's files, and rows of packed weights against plain
// ones.
#include "backends/cpu/dequantise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/tensor/quant_blocks.h"
#include "tests/backends/cpu/matmul_support.h"

namespace strata::cpu::test {
namespace {

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Dequantise, MeetsTheSamplesOfEveryType) {
  std::ifstream file(std::string(STRATA_TEST_DATA) + "/quants/samples.json");
  const nlohmann::json samples = nlohmann::json::parse(file);
  ASSERT_EQ(samples.size(), 8u);
  for (const auto& sample : samples) {
    const DType dtype = *dtype_from_name(sample["type"].get<std::string>());
    const std::vector<std::byte> bytes = from_hex(sample["bytes_hex"]);
    const std::vector<double> values = sample["values"];
    const auto k = static_cast<int64_t>(values.size());
    ASSERT_EQ(*row_bytes(dtype, k), bytes.size()) << sample["type"];
    std::vector<float> out(values.size());
    dequantise_row(dtype, bytes.data(), k, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      // The samples have nine digits, which name one float.
      ASSERT_EQ(out[i], static_cast<float>(values[i])) << sample["type"] << " element " << i;
    }
  }
}

TEST(Dequantise, KnowsTheTypesWithoutSamples) {
  BlockQ4_1 block = {0x3800, 0xbc00, {}};  // d = 0.5, m = -1
  for (int i = 0; i < 16; ++i) block.qs[i] = static_cast<uint8_t>(i | (15 - i) << 4);
  float out[32];
  dequantise_row(DType::q4_1, reinterpret_cast<const std::byte*>(&block), 32, out);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 0.5f * static_cast<float>(i) - 1.0f);
    EXPECT_EQ(out[16 + i], 0.5f * static_cast<float>(15 - i) - 1.0f);
  }
  const uint16_t bf16[2] = {0x3fc0, 0x8001};  // 1.5, a subnormal
  dequantise_row(DType::bf16, reinterpret_cast<const std::byte*>(bf16), 2, out);
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], std::bit_cast<float>(0x80010000u));
}

TEST(Dequantise, WidensEveryHalfExactly) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float value = half_to_float(static_cast<uint16_t>(h));
    const int exponent = static_cast<int>(h >> 10 & 31);
    const double fraction = h & 0x3ff;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), fraction != 0) << h;
      ASSERT_EQ(std::isinf(value), fraction == 0) << h;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(std::fabs(value), magnitude) << h;
    }
    ASSERT_EQ(std::signbit(value), h >> 15 != 0) << h;
  }
}

TEST(Dequantise, KScalesPackAndUnpack) {
  Random random(7);
  for (int round = 0; round < 1000; ++round) {
    uint8_t packed[12];
    for (uint8_t& byte : packed) byte = static_cast<uint8_t>(random.next() >> 56);
    const KScales scales = unpack_k_scales(packed);
    for (int i = 0; i < 8; ++i) {
      ASSERT_LT(scales.sc[i], 64);
      ASSERT_LT(scales.m[i], 64);
    }
    uint8_t again[12];
    pack_k_scales(scales, again);
    ASSERT_EQ(std::memcmp(packed, again, 12), 0);
  }
}

TEST(GetWeightRow, IsEqualFromPackedAndPlainRows) {
  for (const DType dtype : kWeightTypes) {
    const int64_t block = dtype_traits(dtype).block_elements;
    for (const int64_t k : {block, 3 * block, std::max<int64_t>(block, 32) * 9}) {
      const int64_t rows = 37;
      const auto bytes = random_rows(dtype, k, rows, 11);
      const auto packed = make_weights(dtype, {k, rows, 1, 1}, bytes, true);
      const auto plain = make_weights(dtype, {k, rows, 1, 1}, bytes, false);
      for (int64_t row = 0; row < rows; ++row) {
        std::vector<float> expected(static_cast<size_t>(k));
        std::vector<float> a(expected.size());
        std::vector<float> b(expected.size());
        dequantise_row(dtype, bytes.data() + static_cast<uint64_t>(row) * *row_bytes(dtype, k), k,
                       expected.data());
        get_weight_row(packed->matrix(), row, a.data());
        get_weight_row(plain->matrix(), row, b.data());
        ASSERT_EQ(a, expected) << dtype_name(dtype) << " row " << row;
        ASSERT_EQ(b, expected) << dtype_name(dtype) << " row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu::test
