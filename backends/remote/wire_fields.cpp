#include "backends/remote/wire_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "backends/remote/wire.h"

namespace strata::remote {
namespace {

constexpr int32_t kLayersMax = 1 << 16;
constexpr auto kStatusCodeMax = static_cast<int32_t>(StatusCode::unauthenticated);
// Of one device: what systems call theirs fits.
constexpr size_t kDeviceNameBytesMax = 64;
constexpr size_t kDeviceDescriptionBytesMax = 128;

constexpr uint32_t kNoCharacter = UINT32_MAX;

// The first character of a text that is not empty, and its bytes; kNoCharacter and one byte for
// what is no UTF-8.
std::pair<uint32_t, size_t> next_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t size = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first >= 0xf5 || text.size() < size) return {kNoCharacter, 1};
  uint32_t code = first & (0x7fU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {kNoCharacter, 1};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool is_short = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  if (is_short || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return {kNoCharacter, 1};
  return {code, size};
}

bool is_shown(uint32_t code) {
  const auto within = [&](uint32_t begin, uint32_t last) { return code >= begin && code <= last; };
  return code >= 0x20 && code != kNoCharacter && !within(0x7f, 0x9f) && code != 0x61c &&
         !within(0x200e, 0x200f) && !within(0x2028, 0x202e) && !within(0x2066, 0x2069);
}

}  // namespace

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), status.message(), status.hint()};
}

Status from_grpc(const grpc::Status& status) {
  if (status.ok()) return ok_status();
  const auto code = static_cast<int32_t>(status.error_code());
  const bool known = code > 0 && code <= kStatusCodeMax;
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
    return unimplemented("the peer does not know this call",
                         "is the address a Strata coordinator's, and not a worker's?");
  }
  // HTTP/2's ENHANCE_YOUR_CALM, of which gRPC tells the number only.
  if (status.error_message() == "Received RST_STREAM with error code 11") {
    return resource_exhausted(
        "the peer ended the call: what all its callers sent filled its buffers",
        "try again; if it goes on, who sends so much to that address?");
  }
  return {known ? static_cast<StatusCode>(code) : StatusCode::unknown,
          peer_text(status.error_message()), peer_text(status.error_details())};
}

std::string peer_text(const std::string& text, size_t bytes_max) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const auto [code, size] = next_character(std::string_view(text).substr(at));
    const bool fits = out.size() + size <= bytes_max;
    if (!fits) break;
    if (code == '\n' || code == '\r' || code == '\t') {
      out += ' ';
    } else if (is_shown(code)) {
      out.append(text, at, size);
    } else {
      out += '?';
    }
    at += size;
  }
  return out;
}

void put_failure(const Status& status, v1::Failure& out) {
  out.set_code(static_cast<int32_t>(status.code()));
  out.set_message(status.message());
  out.set_hint(status.hint());
}

Status take_failure(const v1::Failure& in) {
  if (in.code() == 0) return ok_status();
  const bool known = in.code() > 0 && in.code() <= kStatusCodeMax;
  return {known ? static_cast<StatusCode>(in.code()) : StatusCode::unknown, peer_text(in.message()),
          peer_text(in.hint())};
}

void put_version(const Version& version, v1::Version& out) {
  out.set_major(version.major);
  out.set_minor(version.minor);
  out.set_patch(version.patch);
  out.set_numerics_version(version.numerics_version);
}

Version take_version(const v1::Version& in) {
  return {in.major(), in.minor(), in.patch(), in.numerics_version()};
}

void put_device(const DeviceReport& device, v1::Device& out) {
  out.set_name(device.name);
  out.set_description(device.description);
  out.set_kind(static_cast<uint32_t>(device.kind));
  out.set_total_bytes(device.memory.total_bytes);
  out.set_free_bytes(device.memory.free_bytes);
  out.mutable_speed()->set_read_bytes_per_s(device.speed.read_bytes_per_s);
  out.mutable_speed()->set_int8_ops_per_s(device.speed.int8_ops_per_s);
  out.mutable_speed()->set_f32_ops_per_s(device.speed.f32_ops_per_s);
}

Result<DeviceReport> take_device(const v1::Device& in) {
  if (in.kind() > static_cast<uint32_t>(DeviceKind::gpu)) {
    return invalid_argument(
        fmt::format("device '{}': kind {} is not known", peer_text(in.name()), in.kind()));
  }
  DeviceReport device;
  device.name = peer_text(in.name(), kDeviceNameBytesMax);
  device.description = peer_text(in.description(), kDeviceDescriptionBytesMax);
  device.kind = static_cast<DeviceKind>(in.kind());
  device.memory = {in.free_bytes(), in.total_bytes()};
  device.speed = {in.speed().read_bytes_per_s(), in.speed().int8_ops_per_s(),
                  in.speed().f32_ops_per_s()};
  for (const double speed :
       {device.speed.read_bytes_per_s, device.speed.int8_ops_per_s, device.speed.f32_ops_per_s}) {
    if (!std::isfinite(speed) || speed < 0) {
      return invalid_argument(
          fmt::format("device '{}': speed {} is not a rate", device.name, speed));
    }
  }
  return device;
}

void put_range(const LayerRange& range, v1::LayerRange& out) {
  out.set_begin(range.begin);
  out.set_end(range.end);
  out.set_has_embedding(range.has_embedding);
  out.set_has_head(range.has_head);
}

Result<LayerRange> take_range(const v1::LayerRange& in) {
  if (in.begin() < 0 || in.end() < in.begin() || in.end() > kLayersMax) {
    return invalid_argument(fmt::format("layers [{}, {}) are no range within [0, {})", in.begin(),
                                        in.end(), kLayersMax));
  }
  return LayerRange{in.begin(), in.end(), in.has_embedding(), in.has_head()};
}

void put_load(const LoadProgress& load, v1::LoadProgress& out) {
  out.set_done_bytes(load.done_bytes);
  out.set_total_bytes(load.total_bytes);
  out.set_received_bytes(load.received_bytes);
}

LoadProgress take_load(const v1::LoadProgress& in) {
  return {in.done_bytes(), in.total_bytes(), in.received_bytes()};
}

void put_memory(const StageMemory& memory, v1::StageMemory& out) {
  out.set_weights_bytes(memory.weights_bytes);
  out.set_cache_bytes(memory.cache_bytes);
  out.set_compute_bytes(memory.compute_bytes);
  out.set_received_bytes(memory.received_bytes);
}

StageMemory take_memory(const v1::StageMemory& in) {
  return {in.weights_bytes(), in.cache_bytes(), in.compute_bytes(), in.received_bytes()};
}

void put_grammar(const GrammarSpec& grammar, v1::Grammar& out) {
  out.set_kind(static_cast<uint32_t>(grammar.kind));
  out.set_text(grammar.text);
  out.set_drops_first_space(grammar.drops_first_space);
}

Result<GrammarSpec> take_grammar(const v1::Grammar& in) {
  if (in.kind() > static_cast<uint32_t>(GrammarSpec::Kind::composed)) {
    return invalid_argument(fmt::format("grammar: kind {} is not in 0..4", in.kind()));
  }
  if (in.text().size() > kGrammarBytesMax) {
    return invalid_argument(
        fmt::format("grammar: {} bytes are more than {}", in.text().size(), kGrammarBytesMax));
  }
  return GrammarSpec{.kind = static_cast<GrammarSpec::Kind>(in.kind()),
                     .text = in.text(),
                     .drops_first_space = in.drops_first_space()};
}

}  // namespace strata::remote
