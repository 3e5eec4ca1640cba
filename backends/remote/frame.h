// The frame: how steps with activations, and results with logits, lie on the wire.
//
// A frame is a record (a serialised proto message) followed by rows of F32. Its body, record and
// rows as one run of bytes, is cut into pieces of kPieceBytesMax; each piece travels as one gRPC
// message behind a 64-byte little-endian header:
//
//   0 magic "STRA"  4 version u16  6 kind u8  7 dtype u8  8 epoch u64  16 step u64
//   24 n_tokens u32  28 n_embd u32  32 record_bytes u32  36 part u16  38 parts u16
//   40 body_bytes u64  48 reserved, zero  60 crc32c u32
//
// The crc is over the header's first 60 bytes and the piece's part of the body. A piece is cut in
// one way only, so that its length follows from the header; what differs is refused. Memory grows
// with the bytes that have arrived, not with what a header claims.
//
// No gRPC here: pieces are spans. Threads: one at a time per object.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace strata::remote {

inline constexpr size_t kFrameHeaderBytes = 64;
inline constexpr uint32_t kFrameMagic = 0x41525453;  // "STRA"
inline constexpr uint16_t kFrameVersion = 1;
inline constexpr uint8_t kFrameF32 = 0;  // GGUF's number of the type
// Bounds on what a peer may send. A record is the larger part with a long history (5 bytes a
// token); rows are at most 512 tokens' logits over 262,144 ids (eval), 512 MiB.
inline constexpr uint64_t kRecordBytesMax = uint64_t{16} << 20;
inline constexpr uint64_t kRowsBytesMax = uint64_t{1} << 30;

enum class FrameKind : uint8_t { step = 1, result = 2 };

// One frame in whole. rows.size() is n_tokens * n_embd, shape {n_embd, n_tokens}.
struct Frame {
  FrameKind kind = FrameKind::step;
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint32_t n_tokens = 0;
  uint32_t n_embd = 0;
  std::string record;
  std::vector<float> rows;
};

// CRC-32C (Castagnoli) of `bytes` after bytes whose crc is `crc`; 0 to begin.
// Source: RFC 3720, appendix B.4; the processor's instruction where there is one.
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes);
namespace crc_detail {
// The same without the instruction.
uint32_t crc32c_by_table(uint32_t crc, std::span<const std::byte> bytes);
}  // namespace crc_detail

// One piece as views into a frame; valid as long as the frame is.
struct FramePiece {
  std::array<std::byte, kFrameHeaderBytes> header;
  std::span<const std::byte> record;  // this piece's part of it; may be empty
  std::span<const std::byte> rows;
};

// INVALID_ARGUMENT if the frame's numbers contradict each other or exceed the bounds.
Status check_frame(const Frame& frame);
// Pieces that the frame makes; at least one. Requires: check_frame().
uint32_t piece_count(const Frame& frame);
// Piece `part`, with its crc. Requires: check_frame(); part < piece_count().
FramePiece cut_piece(const Frame& frame, uint32_t part);

// What the unfinished frames of several streams may hold together. Threads: one at a time.
class FrameBudget {
 public:
  explicit FrameBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  // Errors: RESOURCE_EXHAUSTED beyond the limit; nothing is taken then.
  Status take(uint64_t bytes);
  void give_back(uint64_t bytes) { taken_bytes_ -= bytes; }
  uint64_t taken_bytes() const { return taken_bytes_; }

 private:
  const uint64_t bytes_max_;
  uint64_t taken_bytes_ = 0;
};

// Puts the pieces of one stream together again. After an error the stream is of no use.
class FrameAssembler {
 public:
  // `expected`: frames of another kind are refused. `budget`: what frames of several pieces take
  // theirs from, until they are whole; must outlive the assembler; null: no limit but the frame's.
  explicit FrameAssembler(FrameKind expected, FrameBudget* budget = nullptr)
      : expected_(expected), budget_(budget) {}
  ~FrameAssembler() { give_back(); }
  FrameAssembler(const FrameAssembler&) = delete;
  FrameAssembler& operator=(const FrameAssembler&) = delete;

  // One message, given as the buffers that it lies in. The frame when its last piece has come.
  // Errors: INVALID_ARGUMENT with what is wrong and both numbers; DATA_LOSS for a wrong crc;
  // RESOURCE_EXHAUSTED beyond the budget.
  Result<std::optional<Frame>> add(std::span<const std::span<const std::byte>> message);

  // Pieces of the frame that has begun; 0 between two frames.
  uint32_t parts_here() const { return next_part_; }
  // The frame that has begun. Requires: parts_here() > 0.
  uint64_t epoch() const { return frame_.epoch; }
  uint64_t step() const { return frame_.step; }

 private:
  Status make_room(uint64_t piece_bytes);
  void give_back();
  void append(std::span<const std::byte> run);

  FrameKind expected_;
  FrameBudget* budget_;
  uint64_t taken_bytes_ = 0;  // of the budget
  uint32_t next_part_ = 0;
  uint32_t parts_ = 0;
  uint64_t body_bytes_ = 0;
  uint64_t record_bytes_ = 0;
  uint64_t filled_bytes_ = 0;
  Frame frame_;
};

}  // namespace strata::remote
