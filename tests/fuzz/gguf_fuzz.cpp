// Feeds any bytes to the GGUF reader and uses whatever it accepts. Built with libFuzzer by clang,
// with our own driver (fuzz_driver.cpp) by other compilers.
//
// Beyond "no crash": what was accepted must be readable in full, lie inside the bytes, and come
// back the same from its own serialised header.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/gguf/digest.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/gguf/gguf_reader.h"

namespace {

using namespace strata;

void use_value(const Metadata& metadata, const std::string& key) {
  const MetadataValue& value = *metadata.find(key);
  const uint64_t count = value.count();
  size_t used = value.raw().size();
  for (uint64_t i = 0; i < count && i < 64; ++i) used += value.text(i).size();
  if (count > 64) used += value.text(count - 1).size();
  // Whatever the type, a getter gives a value or an error.
  used += metadata.get<std::string>(key).ok() + metadata.get<uint32_t>(key).ok();
  used += metadata.get<float>(key).ok() + metadata.get<bool>(key).ok();
  used += metadata.get_strings(key).ok() + metadata.get_numbers<int32_t>(key).ok();
  STRATA_CHECK(used > 0, "every value takes at least one byte");
}

void use_header(const GgufHeader& header, size_t file_bytes, bool with_data) {
  for (const Metadata::Entry& entry : header.metadata.entries()) {
    use_value(header.metadata, entry.key);
  }
  for (const TensorInfo& tensor : header.tensors) {
    STRATA_CHECK(tensor.size_bytes > 0 && tensor.elements() > 0, tensor.name);
    STRATA_CHECK(!with_data || range_fits(tensor.offset, tensor.size_bytes, file_bytes),
                 tensor.name);
  }
}

void round_trip(std::span<const std::byte> bytes) {
  const auto model = GgufFile::from_header(bytes, "fuzz");
  if (!model.ok()) return;
  // Near 2^63 bytes the same tensors in another order may be too large for one file.
  if (model.value()->tensor_bytes_total() > uint64_t{1} << 62) return;
  const std::string header = serialize_header(*model.value());
  const auto copy = GgufFile::from_header(std::as_bytes(std::span(header)), "copy");
  STRATA_CHECK(copy.ok(), copy.status().to_string());
  STRATA_CHECK(serialize_header(*copy.value()) == header, "a header reads back the same");
  STRATA_CHECK(
      canonical_metadata(copy.value()->metadata()) == canonical_metadata(model.value()->metadata()),
      "metadata reads back the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  for (const bool missing : {false, true}) {
    const auto header = parse_header(bytes, "fuzz", {.allow_missing_data = missing});
    if (header.ok()) use_header(header.value(), size, !missing);
  }
  round_trip(bytes);
  return 0;
}
