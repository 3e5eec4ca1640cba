// Bytes of a peer, against everything that reads them: frames, records of steps and results, and
// the messages of workers and clients. The first byte chooses the reader.
//
// What is accepted must be sound, and must come out the same when it is sent on and read again:
// stages forward what they were given.
#include <google/protobuf/stubs/logging.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "backends/remote/channel.h"
#include "backends/remote/wire.h"
#include "runtime/base/check.h"

namespace strata::remote {
namespace {

// Makes the crc right, so that what is behind it is reached.
void mend_crc(std::string& message) {
  if (message.size() < kFrameHeaderBytes) return;
  const auto bytes = std::as_bytes(std::span(message));
  const uint32_t crc =
      crc32c(crc32c(0, bytes.first(kFrameHeaderBytes - 4)), bytes.subspan(kFrameHeaderBytes));
  std::memcpy(message.data() + kFrameHeaderBytes - 4, &crc, sizeof(crc));
}

void check_step(Frame frame) {
  Result<StepFrame> step = step_from_frame(std::move(frame));
  if (!step.ok()) return;
  const StepPlan plan = step.value().plan;
  const size_t activations = step.value().activations.size();
  STRATA_CHECK(activations == 0 || activations % plan.live_tokens() == 0, "uneven activations");
  Result<Frame> again = to_frame(std::move(step).value());
  STRATA_CHECK(again.ok(), again.status().to_string());
  const Result<StepFrame> back = step_from_frame(std::move(again).value());
  STRATA_CHECK(back.ok(), back.status().to_string());
  STRATA_CHECK(back.value().plan.live_tokens() == plan.live_tokens(), "tokens changed");
  STRATA_CHECK(back.value().plan.tokens == plan.tokens, "token ids changed");
}

void check_result(Frame frame) {
  Result<StepResult> result = result_from_frame(std::move(frame));
  if (!result.ok()) return;
  const size_t records = result.value().records.size();
  Result<Frame> again = to_frame(std::move(result).value());
  STRATA_CHECK(again.ok(), again.status().to_string());
  const Result<StepResult> back = result_from_frame(std::move(again).value());
  STRATA_CHECK(back.ok() && back.value().records.size() == records, "records changed");
}

// The input as consecutive messages of one stream: two bytes of length, then so many bytes.
void check_stream(FrameKind kind, std::string_view input) {
  FrameAssembler assembler(kind);
  while (input.size() > 2) {
    const size_t length =
        static_cast<uint8_t>(input[0]) | static_cast<size_t>(static_cast<uint8_t>(input[1])) << 8;
    std::string message(input.substr(2, length));
    input.remove_prefix(std::min(input.size(), length + 2));
    mend_crc(message);
    const auto bytes = std::as_bytes(std::span(message));
    const size_t cut = message.size() / 3;
    const std::array<std::span<const std::byte>, 2> buffers = {bytes.first(cut),
                                                               bytes.subspan(cut)};
    Result<std::optional<Frame>> frame = assembler.add(buffers);
    if (!frame.ok()) return;
    if (!frame.value()) continue;
    const Status sound = check_frame(*frame.value());
    STRATA_CHECK(sound.ok(), sound.to_string());
    if (kind == FrameKind::step) {
      check_step(std::move(*frame.value()));
    } else {
      check_result(std::move(*frame.value()));
    }
  }
}

// A message that is accepted is accepted again in the form in which we send it.
template <typename Message>
void check_message(std::string_view input) {
  Message message;
  if (!message.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const auto record = from_proto(message);
  if (!record.ok()) return;
  const auto again = from_proto(to_proto(record.value()));
  STRATA_CHECK(again.ok(), again.status().to_string());
}

Frame record_frame(std::string_view record) {
  Frame frame;
  frame.record = record;
  return frame;
}

void check_address(std::string_view input) {
  const Result<Address> address = parse_address(input, AddressUse::dial);
  if (!address.ok()) return;
  const Result<Address> again = parse_address(address.value().text(), AddressUse::dial);
  STRATA_CHECK(again.ok() && again.value() == address.value(), address.value().text());
}

}  // namespace
}  // namespace strata::remote

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::remote;
  namespace v1 = strata::v1;
  if (size == 0) return 0;
  // It would write a line for each text that is not UTF-8.
  const google::protobuf::LogSilencer silence;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 10) {
    case 0:
      check_stream(FrameKind::step, input);
      break;
    case 1:
      check_stream(FrameKind::result, input);
      break;
    case 2:
      check_step(record_frame(input));
      break;
    case 3:
      check_result(record_frame(input));
      break;
    case 4:
      check_message<v1::FromWorker>(input);
      break;
    case 5:
      check_message<v1::ToWorker>(input);
      break;
    case 6:
      check_message<v1::GenerateRequest>(input);
      break;
    case 7:
      check_message<v1::GenerateEvent>(input);
      break;
    case 8:
      check_message<v1::ClusterStatus>(input);
      break;
    default:
      check_address(input);
  }
  return 0;
}
