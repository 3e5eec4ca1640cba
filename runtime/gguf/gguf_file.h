// A model as others see it: metadata, tensors by name, and where each one's bytes lie.
//
// Made from a file (or a whole split set), never slurped; or from a header alone, which
// is what a worker without the file gets over the wire. Both have passed the same checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/mapped_file.h"
#include "runtime/base/status.h"
#include "runtime/gguf/gguf_reader.h"
#include "runtime/gguf/metadata.h"

namespace strata {

// Threads: immutable after construction; any thread. Shared, because stages, tokenizer and loader
// of one model refer to its mapping.
class GgufFile {
 public:
  // Opens a file or, by any of its parts, a split set. Nothing of the tensors' data is read.
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT "<file>: <reason> at offset N".
  static Result<std::shared_ptr<GgufFile>> open(const std::string& path);
  // From serialize_header()'s bytes, copied; has_data() is then false. `name` stands in errors.
  static Result<std::shared_ptr<GgufFile>> from_header(std::span<const std::byte> header,
                                                       const std::string& name);

  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  // Of the first part.
  const Metadata& metadata() const { return metadata_; }
  // All parts', in file order.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // The tensor, or null if there is none of that name.
  const TensorInfo* find_tensor(std::string_view name) const;
  // The value of general.architecture. Errors: NOT_FOUND or INVALID_ARGUMENT.
  Result<std::string> architecture() const;

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }

  // False if only the header is here.
  bool has_data() const { return !files_.empty(); }
  size_t file_count() const { return files_.size(); }
  // Requires: index < file_count().
  const MappedFile& file(size_t index) const;
  // The tensor's bytes, in a mapping of the whole file: for tests and tools; whoever loads a model
  // reads, or maps ranges. Requires: has_data(), one of tensors().
  std::span<const std::byte> tensor_bytes(const TensorInfo& tensor) const;
  // FAILED_PRECONDITION "model changed on disk" if a part was truncated or rewritten since open().
  Status check_unchanged() const;

  // Sums over all files or tensors.
  uint64_t file_bytes() const;
  uint64_t tensor_bytes_total() const;
  uint64_t parameter_count() const;

  // INVALID_ARGUMENT "<file>: tensor '<name>' <reason> at offset N", N being the place of its
  // entry. For checks of what a tensor must look like.
  Status tensor_error(const TensorInfo& tensor, std::string_view reason) const;

 private:
  GgufFile() = default;
  Status adopt(std::vector<GgufHeader> headers);

  std::string path_;
  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;  // views into tensors_
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::vector<std::string> file_names_;
};

struct SerializeOptions {
  // Which keys stay; all if empty. The keys of split sets (split.*) never do.
  std::function<bool(std::string_view key)> keep_key = {};
};

// The model's header as bytes of one GGUF file (version 3) whose data is elsewhere: metadata in
// the file's order and the tensor table with offsets as they would be in one file.
// from_header() reads it back.
std::string serialize_header(const GgufFile& model, const SerializeOptions& options = {});

// Appends a pair as it lies in a file: key, type, value.
void append_key_value(std::string& out, const Metadata::Entry& entry);

// For SerializeOptions: false for the tokenizer's long arrays ("tokenizer.ggml.tokens" and
// others), true for everything else.
bool keep_without_tokenizer(std::string_view key);

}  // namespace strata
