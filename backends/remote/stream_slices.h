// Frames to gRPC's byte buffers and back; shared by the two ends of a stream.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <span>
#include <vector>

#include "backends/remote/frame.h"

namespace strata::remote {

// In the server's initial metadata: the stream's token was accepted.
inline constexpr const char* kAcceptedKey = "strata-accepted";
// In the caller's metadata: the cluster whose plan the stream belongs to.
inline constexpr const char* kClusterKey = "strata-cluster";
// The same for the plan's epoch, in decimal, and for what only its nodes know.
inline constexpr const char* kEpochKey = "strata-epoch";
inline constexpr const char* kStreamKey = "strata-key";

// Piece `part` as slices: the header, and views of the frame's bytes that keep the frame alive.
grpc::ByteBuffer piece_buffer(const std::shared_ptr<const Frame>& frame, uint32_t part);

// Adds one received message to the assembler.
Result<std::optional<Frame>> add_buffer(FrameAssembler& assembler, const grpc::ByteBuffer& buffer);

}  // namespace strata::remote
