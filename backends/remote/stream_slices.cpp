#include "backends/remote/stream_slices.h"

#include <grpcpp/support/slice.h>

#include <array>

namespace strata::remote {
namespace {

// Below this a copy is cheaper than a reference (performance notes of TensorFlow's gRPC tensors
// name the same number).
constexpr size_t kCopyBytes = 1024;

grpc::Slice view(const std::shared_ptr<const Frame>& frame, std::span<const std::byte> bytes) {
  if (bytes.size() <= kCopyBytes) return {bytes.data(), bytes.size()};
  // gRPC's slices do not write to what they refer to.
  return {const_cast<std::byte*>(bytes.data()), bytes.size(),
          [](void* owner) { delete static_cast<std::shared_ptr<const Frame>*>(owner); },
          new std::shared_ptr<const Frame>(frame)};
}

}  // namespace

grpc::ByteBuffer piece_buffer(const std::shared_ptr<const Frame>& frame, uint32_t part) {
  const FramePiece piece = cut_piece(*frame, part);
  std::array<grpc::Slice, 3> slices;
  size_t count = 0;
  slices[count++] = grpc::Slice(piece.header.data(), piece.header.size());
  if (!piece.record.empty()) slices[count++] = view(frame, piece.record);
  if (!piece.rows.empty()) slices[count++] = view(frame, piece.rows);
  return {slices.data(), count};
}

Result<std::optional<Frame>> add_buffer(FrameAssembler& assembler, const grpc::ByteBuffer& buffer) {
  // Most messages came in one piece.
  if (grpc::Slice whole; buffer.TrySingleSlice(&whole).ok()) {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(whole.begin()),
                                           whole.size());
    return assembler.add({&bytes, 1});
  }
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return data_loss("frame: the message cannot be read");
  std::vector<std::span<const std::byte>> spans;
  spans.reserve(slices.size());
  for (const grpc::Slice& slice : slices) {
    spans.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  return assembler.add(spans);
}

}  // namespace strata::remote
