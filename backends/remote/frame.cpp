#include "backends/remote/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backends/remote/channel.h"
#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"

namespace strata::remote {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are written as they lie");

// The header's fields in memory order.
struct Header {
  uint32_t magic = kFrameMagic;
  uint16_t version = kFrameVersion;
  uint8_t kind = 0;
  uint8_t dtype = kFrameF32;
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint32_t n_tokens = 0;
  uint32_t n_embd = 0;
  uint32_t record_bytes = 0;
  uint16_t part = 0;
  uint16_t parts = 0;
  uint64_t body_bytes = 0;
  std::array<uint8_t, 12> reserved = {};
  uint32_t crc = 0;
};
static_assert(sizeof(Header) == kFrameHeaderBytes && offsetof(Header, crc) == 60);

using Scattered = std::span<const std::span<const std::byte>>;

// Reserved with the first piece of rows: a chunk of 512 tokens of a large model (n_embd 16,384).
constexpr uint64_t kReserveFirstBytes = uint64_t{32} << 20;

uint64_t parts_of(uint64_t body_bytes) {
  return body_bytes == 0 ? 1 : (body_bytes + kPieceBytesMax - 1) / kPieceBytesMax;
}

uint64_t bytes_of_part(uint64_t body_bytes, uint64_t part) {
  return std::min<uint64_t>(kPieceBytesMax, body_bytes - part * kPieceBytesMax);
}

uint64_t total_bytes(Scattered message) {
  uint64_t total = 0;
  for (const auto& buffer : message) total += buffer.size();
  return total;
}

// Calls take(bytes) with the message's bytes [offset, end) in order, buffer by buffer.
template <typename Take>
void for_each_run(Scattered message, uint64_t offset, const Take& take) {
  for (const auto& buffer : message) {
    if (offset >= buffer.size()) {
      offset -= buffer.size();
      continue;
    }
    take(buffer.subspan(static_cast<size_t>(offset)));
    offset = 0;
  }
}

Status check_numbers(uint64_t n_tokens, uint64_t n_embd, uint64_t record_bytes,
                     uint64_t body_bytes) {
  if ((n_tokens == 0) != (n_embd == 0)) {
    return invalid_argument(fmt::format("frame: n_tokens {} with n_embd {}", n_tokens, n_embd));
  }
  // Both are 32-bit numbers: the product fits 64 bits, times 4 may not.
  const std::optional<uint64_t> rows = checked_mul<uint64_t>(n_tokens * n_embd, sizeof(float));
  if (!rows || *rows > kRowsBytesMax) {
    return invalid_argument(fmt::format("frame: {} rows of {} are more than {} bytes", n_tokens,
                                        n_embd, kRowsBytesMax));
  }
  if (record_bytes > kRecordBytesMax) {
    return invalid_argument(
        fmt::format("frame: a record of {} bytes is over {}", record_bytes, kRecordBytesMax));
  }
  if (body_bytes != record_bytes + *rows) {
    return invalid_argument(
        fmt::format("frame: body of {} bytes, but record {} + rows {} x {} x 4 make {}", body_bytes,
                    record_bytes, n_tokens, n_embd, record_bytes + *rows));
  }
  return ok_status();
}

Status check_header(const Header& header, FrameKind expected) {
  if (header.magic != kFrameMagic) {
    return invalid_argument(
        fmt::format("frame: magic {:#010x} is not {:#010x}", header.magic, kFrameMagic));
  }
  if (header.version != kFrameVersion) {
    return invalid_argument(
        fmt::format("frame: version {}, this node speaks {}", header.version, kFrameVersion),
        "run the same release of strata on all nodes");
  }
  if (header.kind != static_cast<uint8_t>(expected)) {
    return invalid_argument(
        fmt::format("frame: kind {} where {} belongs", header.kind, static_cast<int>(expected)));
  }
  if (header.dtype != kFrameF32) {
    return invalid_argument(fmt::format("frame: dtype {} is not 0 (F32)", header.dtype));
  }
  if (std::any_of(header.reserved.begin(), header.reserved.end(), [](uint8_t b) { return b; })) {
    return invalid_argument("frame: reserved bytes are not zero");
  }
  TRY(check_numbers(header.n_tokens, header.n_embd, header.record_bytes, header.body_bytes));
  if (header.parts != parts_of(header.body_bytes) || header.part >= header.parts) {
    return invalid_argument(fmt::format("frame: part {} of {}, but {} bytes make {}", header.part,
                                        header.parts, header.body_bytes,
                                        parts_of(header.body_bytes)));
  }
  return ok_status();
}

bool same_frame(const Header& header, const Frame& frame, uint64_t record_bytes,
                uint64_t body_bytes) {
  return header.epoch == frame.epoch && header.step == frame.step &&
         header.n_tokens == frame.n_tokens && header.n_embd == frame.n_embd &&
         header.record_bytes == record_bytes && header.body_bytes == body_bytes;
}

}  // namespace

Status check_frame(const Frame& frame) {
  return check_numbers(frame.n_tokens, frame.n_embd, frame.record.size(),
                       frame.record.size() + frame.rows.size() * sizeof(float));
}

uint32_t piece_count(const Frame& frame) {
  return static_cast<uint32_t>(parts_of(frame.record.size() + frame.rows.size() * sizeof(float)));
}

FramePiece cut_piece(const Frame& frame, uint32_t part) {
  const auto record = std::as_bytes(std::span(frame.record));
  const auto rows = std::as_bytes(std::span(frame.rows));
  const uint64_t body_bytes = record.size() + rows.size();
  STRATA_CHECK(part < parts_of(body_bytes), "no such piece");
  const uint64_t begin = uint64_t{part} * kPieceBytesMax;
  const uint64_t end = begin + bytes_of_part(body_bytes, part);
  const auto overlap = [&](std::span<const std::byte> whole, uint64_t at) {
    const uint64_t from = std::clamp<uint64_t>(begin, at, at + whole.size()) - at;
    const uint64_t to = std::clamp<uint64_t>(end, at, at + whole.size()) - at;
    return whole.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
  };
  Header header;
  header.kind = static_cast<uint8_t>(frame.kind);
  header.epoch = frame.epoch;
  header.step = frame.step;
  header.n_tokens = frame.n_tokens;
  header.n_embd = frame.n_embd;
  header.record_bytes = static_cast<uint32_t>(record.size());
  header.part = static_cast<uint16_t>(part);
  header.parts = static_cast<uint16_t>(parts_of(body_bytes));
  header.body_bytes = body_bytes;
  FramePiece piece;
  piece.record = overlap(record, 0);
  piece.rows = overlap(rows, record.size());
  header.crc = crc32c(0, std::as_bytes(std::span(&header, 1)).first(offsetof(Header, crc)));
  header.crc = crc32c(crc32c(header.crc, piece.record), piece.rows);
  std::memcpy(piece.header.data(), &header, sizeof(header));
  return piece;
}

Result<std::optional<Frame>> FrameAssembler::add(Scattered message) {
  const uint64_t message_bytes = total_bytes(message);
  if (message_bytes < kFrameHeaderBytes) {
    return invalid_argument(fmt::format("frame: {} bytes are less than a header's {}",
                                        message_bytes, kFrameHeaderBytes));
  }
  Header header;
  size_t have = 0;
  for_each_run(message, 0, [&](std::span<const std::byte> run) {
    const size_t size = std::min(run.size(), sizeof(header) - have);
    std::memcpy(reinterpret_cast<std::byte*>(&header) + have, run.data(), size);
    have += size;
  });
  TRY(check_header(header, expected_));
  const uint64_t piece_bytes = bytes_of_part(header.body_bytes, header.part);
  if (message_bytes - kFrameHeaderBytes != piece_bytes) {
    return invalid_argument(fmt::format("frame: part {} has {} bytes in place of {}", header.part,
                                        message_bytes - kFrameHeaderBytes, piece_bytes));
  }
  uint32_t crc = crc32c(0, std::as_bytes(std::span(&header, 1)).first(offsetof(Header, crc)));
  for_each_run(message, kFrameHeaderBytes,
               [&](std::span<const std::byte> run) { crc = crc32c(crc, run); });
  if (crc != header.crc) {
    return data_loss(fmt::format("frame: step {} part {}: crc32c {:#010x} is not {:#010x}",
                                 header.step, header.part, crc, header.crc),
                     "bytes changed on the way: look for a faulty network device");
  }
  if (next_part_ == 0) {
    frame_ = Frame{.kind = expected_,
                   .epoch = header.epoch,
                   .step = header.step,
                   .n_tokens = header.n_tokens,
                   .n_embd = header.n_embd,
                   .record = {},
                   .rows = {}};
    parts_ = header.parts;
    body_bytes_ = header.body_bytes;
    record_bytes_ = header.record_bytes;
    filled_bytes_ = 0;
  }
  if (header.part != next_part_ ||
      (next_part_ > 0 && !same_frame(header, frame_, record_bytes_, body_bytes_))) {
    return invalid_argument(
        fmt::format("frame: step {} part {} of {} where step {} part {} of {} belongs", header.step,
                    header.part, header.parts, frame_.step, next_part_, parts_));
  }
  TRY(make_room(piece_bytes));
  for_each_run(message, kFrameHeaderBytes, [&](std::span<const std::byte> run) { append(run); });
  if (++next_part_ < parts_) return std::optional<Frame>();
  next_part_ = 0;
  give_back();  // whoever takes the frame bounds what it holds
  return std::optional<Frame>(std::move(frame_));
}

Status FrameBudget::take(uint64_t bytes) {
  if (bytes > bytes_max_ - taken_bytes_) {
    return resource_exhausted(
        fmt::format("frame: {} more bytes for frames that have not come whole, of which all "
                    "streams hold {} of {}",
                    bytes, taken_bytes_, bytes_max_),
        "who sends so much to this node?");
  }
  taken_bytes_ += bytes;
  return ok_status();
}

// For the next piece. All of what an ordinary step brings at once; more only as it comes, twice as
// much each time.
Status FrameAssembler::make_room(uint64_t piece_bytes) {
  const uint64_t rows_bytes = body_bytes_ - record_bytes_;
  const uint64_t filled = filled_bytes_ + piece_bytes;
  const uint64_t rows_filled = filled - std::min(filled, record_bytes_);
  const uint64_t rows_room = frame_.rows.capacity() * sizeof(float);
  uint64_t wanted_room = rows_room;
  if (rows_filled > rows_room) {
    const uint64_t least = std::max({rows_filled, 2 * rows_room, kReserveFirstBytes});
    wanted_room = std::min(rows_bytes, least);
  }
  if (budget_ != nullptr && parts_ > 1) {
    const uint64_t needed = std::min(filled, record_bytes_) + wanted_room;
    TRY(budget_->take(needed - taken_bytes_));
    taken_bytes_ = needed;
  }
  if (wanted_room > rows_room) {
    frame_.rows.reserve(static_cast<size_t>((wanted_room + sizeof(float) - 1) / sizeof(float)));
  }
  return ok_status();
}

void FrameAssembler::give_back() {
  if (budget_ != nullptr) budget_->give_back(taken_bytes_);
  taken_bytes_ = 0;
}

void FrameAssembler::append(std::span<const std::byte> run) {
  if (filled_bytes_ < record_bytes_) {
    const size_t size =
        static_cast<size_t>(std::min<uint64_t>(run.size(), record_bytes_ - filled_bytes_));
    frame_.record.append(reinterpret_cast<const char*>(run.data()), size);
    filled_bytes_ += size;
    run = run.subspan(size);
  }
  if (run.empty()) return;
  const uint64_t at = filled_bytes_ - record_bytes_;
  frame_.rows.resize(static_cast<size_t>((at + run.size() + sizeof(float) - 1) / sizeof(float)));
  std::memcpy(reinterpret_cast<std::byte*>(frame_.rows.data()) + at, run.data(), run.size());
  filled_bytes_ += run.size();
}

}  // namespace strata::remote
