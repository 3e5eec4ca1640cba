// Fields that several messages share; for wire_*.cpp only.
#pragma once

#include <google/protobuf/arena.h>

#include <array>
#include <cstddef>
#include <string>

#include "backends/remote/cluster_records.h"
#include "runtime/sampling/grammar_spec.h"
#include "strata/v1/cluster.pb.h"
#include "strata/v1/stage.pb.h"
#include "strata/v1/types.pb.h"

namespace strata::remote {

// A message that lives in a block on the stack, with its parts as long as they fit there: those of
// a decode step do, so that reading or writing its record allocates nothing for protobuf.
template <typename Message>
class StackMessage {
 public:
  StackMessage() : arena_(block_.data(), block_.size()) {
    message_ = google::protobuf::Arena::CreateMessage<Message>(&arena_);
  }
  StackMessage(const StackMessage&) = delete;
  StackMessage& operator=(const StackMessage&) = delete;
  Message& operator*() { return *message_; }

 private:
  alignas(std::max_align_t) std::array<char, 4096> block_;
  google::protobuf::Arena arena_;
  Message* message_ = nullptr;
};

// Texts of a peer that are shown to people: cut at this many bytes.
inline constexpr size_t kPeerTextBytesMax = 4096;

void put_failure(const Status& status, v1::Failure& out);
// A code that gRPC does not have becomes UNKNOWN: it is an error all the same.
Status take_failure(const v1::Failure& in);

void put_version(const Version& version, v1::Version& out);
Version take_version(const v1::Version& in);

void put_device(const DeviceReport& device, v1::Device& out);
Result<DeviceReport> take_device(const v1::Device& in);

void put_range(const LayerRange& range, v1::LayerRange& out);
// Errors: INVALID_ARGUMENT "layers [5, 3)".
Result<LayerRange> take_range(const v1::LayerRange& in);

void put_load(const LoadProgress& load, v1::LoadProgress& out);
LoadProgress take_load(const v1::LoadProgress& in);

void put_memory(const StageMemory& memory, v1::StageMemory& out);
StageMemory take_memory(const v1::StageMemory& in);

// A peer's text as a part of one line: cut short, with a space for each line break, and '?' for
// what could make it look like something else: control characters of both kinds (C0, C1), marks
// that turn the direction of writing, and bytes that are no UTF-8.
std::string peer_text(const std::string& text, size_t bytes_max = kPeerTextBytesMax);

void put_grammar(const GrammarSpec& grammar, v1::Grammar& out);
// Errors: INVALID_ARGUMENT for an unknown kind or a text over kGrammarBytesMax.
Result<GrammarSpec> take_grammar(const v1::Grammar& in);

}  // namespace strata::remote
