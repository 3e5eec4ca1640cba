// Frames: what is cut comes together again, bit for bit, and no bytes of a peer do harm.
#include "backends/remote/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "backends/remote/channel.h"

namespace strata::remote {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Frame make_frame(uint32_t n_tokens, uint32_t n_embd, size_t record_bytes) {
  Frame frame;
  frame.epoch = 4;
  frame.step = 17;
  frame.n_tokens = n_tokens;
  frame.n_embd = n_embd;
  for (size_t i = 0; i < record_bytes; ++i) frame.record += static_cast<char>(i * 7);
  for (uint64_t i = 0; i < uint64_t{n_tokens} * n_embd; ++i) {
    frame.rows.push_back(static_cast<float>(i) * 0.25f - 3.0f);
  }
  return frame;
}

Bytes message_of(const Frame& frame, uint32_t part) {
  const FramePiece piece = cut_piece(frame, part);
  Bytes out(piece.header.begin(), piece.header.end());
  out.insert(out.end(), piece.record.begin(), piece.record.end());
  out.insert(out.end(), piece.rows.begin(), piece.rows.end());
  return out;
}

Result<std::optional<Frame>> add(FrameAssembler& assembler, const Bytes& message) {
  const std::span<const std::byte> whole(message);
  return assembler.add(std::span(&whole, 1));
}

// Sets a field of the header and makes the crc right again, so that the field itself is judged.
template <typename T>
Bytes with_field(Bytes message, size_t offset, T value) {
  std::memcpy(message.data() + offset, &value, sizeof(value));
  uint32_t crc = crc32c(0, std::span(message).first(60));
  crc = crc32c(crc, std::span(message).subspan(64));
  std::memcpy(message.data() + 60, &crc, sizeof(crc));
  return message;
}

std::string error_of(const Bytes& message) {
  FrameAssembler assembler(FrameKind::step);
  const auto result = add(assembler, message);
  return result.ok() ? "no error" : result.status().message();
}

TEST(Crc32c, MatchesTheStandardsVectors) {
  // RFC 3720, B.4: 32 bytes of zeros, of ones, and ascending.
  Bytes zeros(32, std::byte{0});
  Bytes ones(32, std::byte{0xff});
  Bytes ascending(32);
  for (size_t i = 0; i < 32; ++i) ascending[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(0, zeros), 0x8A9136AAu);
  EXPECT_EQ(crc32c(0, ones), 0x62A8AB43u);
  EXPECT_EQ(crc32c(0, ascending), 0x46DD794Eu);
}

TEST(Crc32c, TableInstructionAndAnyCutAgree) {
  std::mt19937 random(1);
  Bytes bytes(1031);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, bytes.size()}) {
    const auto part = std::span(bytes).first(size);
    EXPECT_EQ(crc32c(0, part), crc_detail::crc32c_by_table(0, part)) << size;
  }
  const auto whole = std::span<const std::byte>(bytes);
  EXPECT_EQ(crc32c(crc32c(0, whole.first(333)), whole.subspan(333)), crc32c(0, whole));
}

TEST(Frame, ComesTogetherFromPiecesAndScatteredBuffers) {
  struct Case {
    uint32_t n_tokens, n_embd;
    size_t record_bytes;
  };
  for (const Case& c :
       {Case{0, 0, 0}, Case{0, 0, 31}, Case{1, 576, 40}, Case{3, 2048, 1}, Case{512, 2560, 4099},
        Case{2, 3, 2 * kPieceBytesMax + 3}, Case{1, kPieceBytesMax / 4, 0}}) {
    const Frame frame = make_frame(c.n_tokens, c.n_embd, c.record_bytes);
    ASSERT_TRUE(check_frame(frame).ok());
    FrameAssembler assembler(FrameKind::step);
    std::optional<Frame> out;
    for (uint32_t part = 0; part < piece_count(frame); ++part) {
      ASSERT_FALSE(out.has_value());
      const Bytes message = message_of(frame, part);
      ASSERT_LE(message.size(), kPieceBytesMax + kFrameHeaderBytes);
      // In uneven buffers, some of which are empty and one of which cuts the header.
      std::vector<std::span<const std::byte>> buffers;
      const std::span<const std::byte> whole(message);
      const size_t cut = std::min<size_t>(13, whole.size());
      buffers.push_back(whole.first(cut));
      buffers.push_back({});
      buffers.push_back(whole.subspan(cut));
      auto result = assembler.add(buffers);
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      out = std::move(result).value();
    }
    ASSERT_TRUE(out.has_value());
    EXPECT_EQ(out->epoch, 4u);
    EXPECT_EQ(out->step, 17u);
    EXPECT_EQ(out->record, frame.record);
    EXPECT_EQ(out->rows, frame.rows);
  }
}

TEST(Frame, CarriesNonFiniteNumbersBitForBit) {
  // One sequence's NaN is that row's error, found at the tail; other rows of the step go on.
  Frame frame = make_frame(2, 2, 5);
  frame.rows = {std::numeric_limits<float>::quiet_NaN(), -0.0f,
                std::numeric_limits<float>::infinity(), 1e-42f};
  FrameAssembler assembler(FrameKind::step);
  auto out = add(assembler, message_of(frame, 0));
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(std::memcmp((*out)->rows.data(), frame.rows.data(), 16), 0);
}

TEST(Frame, RefusesWrongNumbersByName) {
  const Bytes good = message_of(make_frame(3, 8, 10), 0);
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_THAT(error_of(Bytes(good.begin(), good.begin() + 63)), HasSubstr("63 bytes"));
  EXPECT_THAT(error_of({}), HasSubstr("0 bytes"));
  EXPECT_THAT(error_of(with_field<uint32_t>(good, 0, 0x46554747)), HasSubstr("magic"));
  EXPECT_THAT(error_of(with_field<uint16_t>(good, 4, 2)), HasSubstr("version 2"));
  EXPECT_THAT(error_of(with_field<uint8_t>(good, 6, 2)), HasSubstr("kind 2"));
  EXPECT_THAT(error_of(with_field<uint8_t>(good, 7, 99)), HasSubstr("dtype 99"));
  EXPECT_THAT(error_of(with_field<uint32_t>(good, 24, 0)), HasSubstr("n_tokens 0 with n_embd 8"));
  EXPECT_THAT(error_of(with_field<uint32_t>(good, 24, 0x80000000)), HasSubstr("2147483648"));
  EXPECT_THAT(error_of(with_field<uint32_t>(good, 24, 0xffffffff)), HasSubstr("4294967295"));
  EXPECT_THAT(error_of(with_field<uint32_t>(good, 28, 9)), HasSubstr("rows 3 x 9 x 4"));
  EXPECT_THAT(error_of(with_field<uint32_t>(good, 32, 0xffffffff)), HasSubstr("record of"));
  EXPECT_THAT(error_of(with_field<uint16_t>(good, 36, 1)), HasSubstr("part 1 of 1"));
  EXPECT_THAT(error_of(with_field<uint16_t>(good, 38, 0)), HasSubstr("of 0"));
  EXPECT_THAT(error_of(with_field<uint16_t>(good, 38, 65535)), HasSubstr("of 65535"));
  EXPECT_THAT(error_of(with_field<uint64_t>(good, 40, ~uint64_t{0})), HasSubstr("body of"));
  EXPECT_THAT(error_of(with_field<uint8_t>(good, 50, 1)), HasSubstr("reserved"));
}

TEST(Frame, RefusesAChangedByteAsDataLoss) {
  Bytes message = message_of(make_frame(3, 8, 10), 0);
  message.back() ^= std::byte{0x10};
  FrameAssembler assembler(FrameKind::step);
  const auto result = add(assembler, message);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::data_loss);
  EXPECT_THAT(result.status().message(), HasSubstr("crc32c"));
}

TEST(Frame, RefusesShortLongAndMisplacedPieces) {
  const Frame frame = make_frame(1, kPieceBytesMax / 4 * 2, 0);
  const Bytes first = message_of(frame, 0);
  const Bytes second = message_of(frame, 1);
  EXPECT_THAT(error_of(Bytes(first.begin(), first.end() - 1)), HasSubstr("in place of"));
  Bytes longer = first;
  longer.push_back(std::byte{0});
  EXPECT_THAT(error_of(longer), HasSubstr("in place of"));
  EXPECT_THAT(error_of(second), HasSubstr("part 1 of 2 where"));
  FrameAssembler assembler(FrameKind::step);
  ASSERT_TRUE(add(assembler, first).ok());
  EXPECT_THAT(add(assembler, first).status().message(), HasSubstr("part 0 of 2 where"));
  FrameAssembler other(FrameKind::step);
  ASSERT_TRUE(add(other, first).ok());
  EXPECT_FALSE(add(other, with_field<uint64_t>(second, 16, 18)).ok());
}

TEST(Frame, RandomMutationsNeverPassOrHarm) {
  const unsigned seed = 20260801;
  std::mt19937 random(seed);
  const Frame frame = make_frame(4, 33, 77);
  const Bytes good = message_of(frame, 0);
  for (int round = 0; round < 20'000; ++round) {
    Bytes message = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) {
      message[random() % message.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) message.resize(random() % (message.size() + 1));
    if (message == good) continue;
    // Half of them with a right crc, so that what is behind the crc is tried too.
    const bool mended = round % 2 == 0 && message.size() >= kFrameHeaderBytes;
    if (mended) message = with_field(message, 0, kFrameMagic);
    FrameAssembler assembler(FrameKind::step);
    const auto result = add(assembler, message);
    if (!mended) {
      EXPECT_FALSE(result.ok()) << "seed " << seed << " round " << round;
    }
    if (result.ok() && result.value()) {
      const Frame& out = *result.value();
      EXPECT_EQ(out.rows.size(), uint64_t{out.n_tokens} * out.n_embd);
    }
  }
}

}  // namespace
}  // namespace strata::remote
