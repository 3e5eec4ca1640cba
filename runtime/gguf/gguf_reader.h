// Reads the header of one GGUF file: metadata and the table of tensors, every field checked.
//
//   "GGUF" u32 version  u64 n_tensors  u64 n_kv   metadata...  tensor infos...  padding  data
//
// Nothing in the file is trusted: each count, length, dimension and offset is compared with what
// is left of the file before it is used, and memory grows only with bytes that are there. The data
// itself is not touched. Joining split sets and handing out tensors' bytes is gguf_file.h's job;
// whether the keys make a sound model is the model's.
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/metadata.h"
#include "runtime/tensor/dtype.h"

namespace strata {

// Bounds on what a file may hold; real ones stay far below.
inline constexpr uint64_t kMetadataBytesMax = uint64_t{256} << 20;
inline constexpr uint64_t kMetadataKeysMax = 65'536;  // real files: about 50
inline constexpr uint64_t kTensorsMax = 131'072;      // real files: 30 to 50,000 (experts apart)
inline constexpr uint64_t kKeyBytesMax = 65'535;      // the format's own bound
inline constexpr uint64_t kTensorNameBytesMax = 63;
inline constexpr uint64_t kAlignmentMax = uint64_t{1} << 20;

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  int n_dims = 0;
  std::array<int64_t, 4> ne = {1, 1, 1, 1};  // innermost first; 1 beyond n_dims
  uint32_t file_index = 0;                   // which part of a split set holds it
  uint64_t offset = 0;                       // of the first byte of data, in that file
  uint64_t size_bytes = 0;
  uint64_t info_offset = 0;  // where its entry of the table begins in the file, for messages

  int64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

// "{576, 49152}": the dimensions, innermost first.
std::string shape_text(const TensorInfo& tensor);

struct GgufHeader {
  uint32_t version = 3;
  uint64_t alignment = 32;
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in the file's order, file_index 0
  uint64_t header_bytes = 0;        // up to the end of the tensor table
  uint64_t data_offset = 0;         // where the first tensor's data begins
};

struct ParseOptions {
  // Accept a header whose tensors lie past the end of the bytes: one that came over the wire
  // without data. Everything else is checked all the same.
  bool allow_missing_data = false;
};

// Parses `file`, which is the whole file (or, with allow_missing_data, at least its header). `name`
// stands before each error. The result owns copies and does not refer to `file`.
// Errors: INVALID_ARGUMENT "<name>: <reason> at offset N".
// Source: the hint "wrong endianness?" is for version 3 files of big-endian machines.
Result<GgufHeader> parse_header(std::span<const std::byte> file, const std::string& name,
                                const ParseOptions& options = {});

}  // namespace strata
