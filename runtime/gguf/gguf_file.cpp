#include "runtime/gguf/gguf_file.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/utf8.h"
#include "runtime/gguf/split_files.h"

namespace strata {
namespace {

template <typename T>
void append_number(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void append_string(std::string& out, std::string_view text) {
  append_number<uint64_t>(out, text.size());
  out += text;
}

bool is_split_key(std::string_view key) { return key.starts_with("split."); }

}  // namespace

Result<std::shared_ptr<GgufFile>> GgufFile::open(const std::string& path) {
  std::vector<ModelPart> parts = TRY(open_model_parts(path));
  std::shared_ptr<GgufFile> model(new GgufFile);
  model->path_ = path;
  std::vector<GgufHeader> headers;
  for (ModelPart& part : parts) {
    model->file_names_.push_back(part.file->path());
    model->files_.push_back(std::move(part.file));
    headers.push_back(std::move(part.header));
  }
  TRY(model->adopt(std::move(headers)));
  return model;
}

Result<std::shared_ptr<GgufFile>> GgufFile::from_header(std::span<const std::byte> header,
                                                        const std::string& name) {
  std::shared_ptr<GgufFile> model(new GgufFile);
  model->path_ = name;
  model->file_names_.push_back(name);
  std::vector<GgufHeader> headers;
  headers.push_back(TRY(parse_header(header, name, {.allow_missing_data = true})));
  TRY(model->adopt(std::move(headers)));
  return model;
}

Status GgufFile::adopt(std::vector<GgufHeader> headers) {
  version_ = headers.front().version;
  alignment_ = headers.front().alignment;
  metadata_ = std::move(headers.front().metadata);
  for (size_t i = 0; i < headers.size(); ++i) {
    for (TensorInfo& tensor : headers[i].tensors) {
      tensor.file_index = static_cast<uint32_t>(i);
      tensors_.push_back(std::move(tensor));
    }
  }
  tensor_index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensor_index_.emplace(tensors_[i].name, i).second) {
      return tensor_error(tensors_[i], "is a duplicate tensor: another part holds it too");
    }
  }
  return ok_status();
}

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

Result<std::string> GgufFile::architecture() const {
  return metadata_.get<std::string>("general.architecture");
}

const MappedFile& GgufFile::file(size_t index) const {
  STRATA_CHECK(index < files_.size(), "a part of the set");
  return *files_[index];
}

std::span<const std::byte> GgufFile::tensor_bytes(const TensorInfo& tensor) const {
  return file(tensor.file_index)
      .bytes()
      .subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.size_bytes));
}

Status GgufFile::check_unchanged() const {
  for (const auto& file : files_) TRY(file->check_unchanged());
  return ok_status();
}

uint64_t GgufFile::file_bytes() const {
  uint64_t sum = 0;
  for (const auto& file : files_) sum += file->size();
  return sum;
}

uint64_t GgufFile::tensor_bytes_total() const {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors_) sum += tensor.size_bytes;
  return sum;
}

uint64_t GgufFile::parameter_count() const {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors_) sum += static_cast<uint64_t>(tensor.elements());
  return sum;
}

Status GgufFile::tensor_error(const TensorInfo& tensor, std::string_view reason) const {
  return invalid_argument(fmt::format("{}: tensor '{}' {} at offset {}",
                                      file_names_[tensor.file_index], printable(tensor.name),
                                      reason, tensor.info_offset));
}

std::string serialize_header(const GgufFile& model, const SerializeOptions& options) {
  std::string entries;
  uint64_t count = 0;
  for (const Metadata::Entry& entry : model.metadata().entries()) {
    if (is_split_key(entry.key) || (options.keep_key && !options.keep_key(entry.key))) continue;
    append_key_value(entries, entry);
    ++count;
  }
  const bool alignment_kept = !options.keep_key || options.keep_key("general.alignment") ||
                              !model.metadata().contains("general.alignment");
  const uint64_t alignment = alignment_kept ? model.alignment() : 32;

  std::string out = "GGUF";
  append_number<uint32_t>(out, 3);
  append_number<uint64_t>(out, model.tensors().size());
  append_number(out, count);
  out += entries;
  uint64_t offset = 0;
  for (const TensorInfo& tensor : model.tensors()) {
    append_string(out, tensor.name);
    append_number(out, static_cast<uint32_t>(tensor.n_dims));
    for (int i = 0; i < tensor.n_dims; ++i) append_number(out, tensor.ne[static_cast<size_t>(i)]);
    append_number(out, static_cast<uint32_t>(tensor.dtype));
    append_number(out, offset);
    offset = align_up(offset + tensor.size_bytes, alignment);
  }
  return out;
}

void append_key_value(std::string& out, const Metadata::Entry& entry) {
  append_string(out, entry.key);
  append_number(out, static_cast<uint32_t>(entry.value.type()));
  out += entry.value.raw();
}

bool keep_without_tokenizer(std::string_view key) {
  return key != "tokenizer.ggml.tokens" && key != "tokenizer.ggml.scores" &&
         key != "tokenizer.ggml.token_type" && key != "tokenizer.ggml.merges" &&
         key != "tokenizer.ggml.precompiled_charsmap";
}

}  // namespace strata
