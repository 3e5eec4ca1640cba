// Protobuf messages to gRPC's byte buffers and back, for services that read requests themselves.
//
// Where gRPC parses, what is no protobuf ends as UNIMPLEMENTED without a word (a callback's
// request), or as the orderly end of a stream. A service that takes raw buffers can say what is
// wrong instead.
// Threads: any.
#pragma once

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace strata::remote {

// Errors: INVALID_ARGUMENT with the message's type and size.
template <typename Message>
Result<Message> parse_message(const grpc::ByteBuffer& buffer) {
  Message message;
  grpc::ByteBuffer bytes = buffer;  // refers to the same ones; reading uses it up
  if (grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok()) return message;
  return invalid_argument(fmt::format("a message of {} bytes cannot be read as {}", buffer.Length(),
                                      message.GetTypeName()),
                          "does the caller speak the protocol of this release?");
}

template <typename Message>
grpc::ByteBuffer serialize_message(const Message& message) {
  grpc::ByteBuffer buffer;
  bool owns = false;
  const grpc::Status done = grpc::SerializationTraits<Message>::Serialize(message, &buffer, &owns);
  STRATA_CHECK(done.ok(), "a message of ours can be written");
  return buffer;
}

}  // namespace strata::remote
