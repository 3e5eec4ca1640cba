#include "runtime/gguf/gguf_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/byte_reader.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/human.h"
#include "runtime/base/utf8.h"

namespace strata {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMin = 8;  // the format's own rule; also enough for every element type
// The least bytes that an entry can take: what a count is compared with before the entries are.
constexpr uint64_t kKeyValueBytesMin = 8 + 1 + 4 + 1;        // key of 1 byte, u8 value
constexpr uint64_t kTensorInfoBytesMin = 8 + 1 + 4 + 4 + 8;  // name of 1 byte, no dimensions
constexpr uint64_t kBytesMax = std::numeric_limits<int64_t>::max();
constexpr uint32_t kValueTypes = 13;

}  // namespace

// One pass over the header; see parse_header(). Threads: used by one call, on its thread.
class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> file, const std::string& name,
               const ParseOptions& options)
      : file_(file), reader_(file, name), options_(options) {}

  Result<GgufHeader> parse() {
    TRY(read_counts());
    TRY(read_metadata());
    TRY(read_alignment());
    TRY(read_tensor_table());
    TRY(place_tensors());
    own_metadata();
    return std::move(header_);
  }

 private:
  Status read_counts();
  Status read_metadata();
  Result<std::string_view> read_key();
  Result<ValueType> read_value_type(std::string_view what);
  Result<MetadataValue> read_value();
  Status read_array(MetadataValue& value);
  Status read_string_array(MetadataValue& value);
  Status check_bools(uint64_t offset, std::string_view bytes) const;
  Status check_metadata_size() const;
  Status read_alignment();
  Status read_tensor_table();
  Result<TensorInfo> read_tensor_info();
  Result<std::string> read_tensor_name();
  Status read_shape(TensorInfo& tensor);
  Status set_size(TensorInfo& tensor, uint64_t offset) const;
  Status check_names_unique() const;
  Status place_tensors();
  Status check_tiling() const;
  void own_metadata();

  std::span<const std::byte> file_;
  ByteReader reader_;
  ParseOptions options_;
  GgufHeader header_;
  uint64_t n_tensors_ = 0;
  uint64_t n_kv_ = 0;
};

Status HeaderParser::read_counts() {
  constexpr std::string_view kTruncated = "truncated header";
  if (TRY(reader_.number<uint32_t>(kTruncated)) != kMagic) {
    return reader_.error_at(0, "not a GGUF file (the first four bytes are not \"GGUF\")");
  }
  const uint64_t version_offset = reader_.offset();
  const auto version = TRY(reader_.number<uint32_t>(kTruncated));
  if (version != 2 && version != 3) {
    const uint32_t swapped = __builtin_bswap32(version);
    const std::string_view hint = swapped >= 1 && swapped <= 0xFFFF
                                      ? ": wrong endianness?"
                                      : " is not supported (2 and 3 are)";
    return reader_.error_at(version_offset, fmt::format("version {}{}", version, hint));
  }
  header_.version = version;
  const uint64_t tensors_offset = reader_.offset();
  n_tensors_ = TRY(reader_.number<uint64_t>(kTruncated));
  const uint64_t kv_offset = reader_.offset();
  n_kv_ = TRY(reader_.number<uint64_t>(kTruncated));
  const auto fits = [&](uint64_t count, uint64_t entry_bytes, uint64_t limit) {
    return count <= limit && count <= reader_.remaining() / entry_bytes;
  };
  const auto sentence = [&](std::string_view what, uint64_t count, uint64_t limit) {
    return fmt::format("{} cannot fit: {} in the {} bytes that follow (and at most {})", what,
                       count, reader_.remaining(), human_count(limit));
  };
  if (!fits(n_kv_, kKeyValueBytesMin, kMetadataKeysMax)) {
    return reader_.error_at(kv_offset, sentence("n_kv", n_kv_, kMetadataKeysMax));
  }
  if (!fits(n_tensors_, kTensorInfoBytesMin, kTensorsMax)) {
    return reader_.error_at(tensors_offset, sentence("n_tensors", n_tensors_, kTensorsMax));
  }
  return ok_status();
}

Status HeaderParser::read_metadata() {
  Metadata& metadata = header_.metadata;
  for (uint64_t i = 0; i < n_kv_; ++i) {
    const uint64_t key_offset = reader_.offset();
    const std::string_view key = TRY(read_key());
    if (!metadata.index_.emplace(key, metadata.entries_.size()).second) {
      return reader_.error_at(key_offset, fmt::format("duplicate key '{}'", printable(key)));
    }
    MetadataValue value = TRY(read_value());
    metadata.entries_.push_back({std::string(key), std::move(value)});
    TRY(check_metadata_size());
  }
  return ok_status();
}

Status HeaderParser::check_metadata_size() const {
  if (reader_.offset() <= kMetadataBytesMax) return ok_status();
  return reader_.error("metadata over 256 MiB");
}

Result<std::string_view> HeaderParser::read_key() {
  const uint64_t start = reader_.offset();
  const auto length = TRY(reader_.number<uint64_t>("key past end of file"));
  if (length > reader_.remaining()) return reader_.error_at(start, "key past end of file");
  if (length == 0) return reader_.error_at(start, "empty key");
  if (length > kKeyBytesMax) {
    return reader_.error_at(
        start, fmt::format("key of {} bytes is over {}", length, human_count(kKeyBytesMax)));
  }
  const std::string_view key = TRY(reader_.bytes(length, "key past end of file"));
  if (!is_utf8(key) || key.find('\0') != std::string_view::npos) {
    return reader_.error_at(start, fmt::format("key is not UTF-8 text: '{}'", printable(key)));
  }
  return key;
}

Result<ValueType> HeaderParser::read_value_type(std::string_view what) {
  const uint64_t start = reader_.offset();
  const auto number = TRY(reader_.number<uint32_t>(fmt::format("{} past end of file", what)));
  if (number >= kValueTypes) {
    return reader_.error_at(start,
                            fmt::format("{} {} is unknown (0 to 12 are defined)", what, number));
  }
  return static_cast<ValueType>(number);
}

Result<MetadataValue> HeaderParser::read_value() {
  MetadataValue value;
  value.type_ = TRY(read_value_type("value type"));
  value.element_type_ = value.type_;
  value.base_ = reinterpret_cast<const char*>(file_.data());
  value.begin_ = value.payload_ = reader_.offset();
  if (value.type_ == ValueType::array) {
    TRY(read_array(value));
  } else if (value.type_ == ValueType::string) {
    const auto length = TRY(reader_.number<uint64_t>("string past end of file"));
    if (!reader_.try_bytes(length)) {
      return reader_.error_at(value.begin_, "string past end of file");
    }
  } else {
    const auto bytes = TRY(reader_.bytes(value_type_bytes(value.type_), "value past end of file"));
    if (value.type_ == ValueType::boolean) TRY(check_bools(value.begin_, bytes));
  }
  value.end_ = reader_.offset();
  return value;
}

Status HeaderParser::check_bools(uint64_t offset, std::string_view bytes) const {
  const size_t bad = bytes.find_first_not_of(std::string_view("\0\1", 2));
  if (bad == std::string_view::npos) return ok_status();
  return reader_.error_at(
      offset + bad, fmt::format("bool is {}, must be 0 or 1", static_cast<uint8_t>(bytes[bad])));
}

Status HeaderParser::read_array(MetadataValue& value) {
  const uint64_t start = reader_.offset();
  value.element_type_ = TRY(read_value_type("element type"));
  if (value.element_type_ == ValueType::array) {
    return reader_.error_at(start, "nested array: the elements of an array cannot be arrays");
  }
  const uint64_t count_offset = reader_.offset();
  value.count_ = TRY(reader_.number<uint64_t>("array past end of file"));
  value.payload_ = reader_.offset();
  const bool strings = value.element_type_ == ValueType::string;
  const uint64_t element_bytes = strings ? 8 : value_type_bytes(value.element_type_);
  if (value.count_ > reader_.remaining() / element_bytes) {
    return reader_.error_at(count_offset,
                            fmt::format("array past end of file: {} elements of at least {} bytes, "
                                        "{} bytes are left",
                                        value.count_, element_bytes, reader_.remaining()));
  }
  if (value.count_ * element_bytes > kMetadataBytesMax) {
    return reader_.error_at(count_offset, "metadata over 256 MiB");
  }
  if (strings) return read_string_array(value);
  const auto bytes = TRY(reader_.bytes(value.count_ * element_bytes, "array past end of file"));
  if (value.element_type_ == ValueType::boolean) return check_bools(value.payload_, bytes);
  return ok_status();
}

Status HeaderParser::read_string_array(MetadataValue& value) {
  auto ends = std::make_shared<std::vector<uint32_t>>();
  ends->reserve(static_cast<size_t>(value.count_));
  for (uint64_t i = 0; i < value.count_; ++i) {
    const uint64_t start = reader_.offset();
    const std::optional<uint64_t> length = reader_.try_number<uint64_t>();
    if (!length || !reader_.try_bytes(*length)) {
      return reader_.error_at(start, fmt::format("string past end of file (element {})", i));
    }
    TRY(check_metadata_size());  // also keeps the difference below within 32 bits
    ends->push_back(static_cast<uint32_t>(reader_.offset() - value.payload_));
  }
  value.string_ends_ = std::move(ends);
  return ok_status();
}

Status HeaderParser::read_alignment() {
  header_.alignment = kAlignmentDefault;
  const MetadataValue* value = header_.metadata.find("general.alignment");
  if (value == nullptr) return ok_status();
  const auto refuse = [&](const std::string& reason) {
    return reader_.error_at(value->file_offset(), reason);
  };
  if (value->type() != ValueType::u32) {
    return refuse(fmt::format("alignment (general.alignment) has type {}, must be u32",
                              value_type_name(value->type())));
  }
  const auto alignment = static_cast<uint64_t>(value->integer(0));
  if (alignment > kAlignmentMax) return refuse("alignment over 1 MiB");
  if (alignment < kAlignmentMin || (alignment & (alignment - 1)) != 0) {
    return refuse(fmt::format("alignment {} is not a power of two of at least 8", alignment));
  }
  header_.alignment = alignment;
  return ok_status();
}

Status HeaderParser::read_tensor_table() {
  header_.tensors.reserve(static_cast<size_t>(n_tensors_));
  for (uint64_t i = 0; i < n_tensors_; ++i) header_.tensors.push_back(TRY(read_tensor_info()));
  header_.header_bytes = reader_.offset();
  return check_names_unique();
}

Result<std::string> HeaderParser::read_tensor_name() {
  const uint64_t start = reader_.offset();
  const auto length = TRY(reader_.number<uint64_t>("tensor name past end of file"));
  if (length == 0) return reader_.error_at(start, "tensor name is empty");
  if (length > kTensorNameBytesMax) {
    return reader_.error_at(
        start, fmt::format("tensor name of {} bytes is over {}", length, kTensorNameBytesMax));
  }
  const std::string_view name = TRY(reader_.bytes(length, "tensor name past end of file"));
  if (!is_utf8(name) || has_control_character(name)) {
    return reader_.error_at(start,
                            fmt::format("tensor name is not UTF-8 text: '{}'", printable(name)));
  }
  return std::string(name);
}

Status HeaderParser::read_shape(TensorInfo& tensor) {
  const uint64_t start = reader_.offset();
  const auto n_dims = TRY(reader_.number<uint32_t>("tensor table past end of file"));
  if (n_dims > tensor.ne.size()) {
    return reader_.error_at(
        start, fmt::format("tensor '{}': n_dims {} is over 4 dimensions", tensor.name, n_dims));
  }
  tensor.n_dims = static_cast<int>(n_dims);
  for (uint32_t i = 0; i < n_dims; ++i) {
    const uint64_t at = reader_.offset();
    const auto dimension = TRY(reader_.number<uint64_t>("tensor table past end of file"));
    if (dimension == 0 || dimension > kBytesMax) {
      return reader_.error_at(at, fmt::format("tensor '{}': dimension {} is {}, must be from 1 to "
                                              "2^63 - 1",
                                              tensor.name, i, dimension));
    }
    tensor.ne[i] = static_cast<int64_t>(dimension);
  }
  return ok_status();
}

Status HeaderParser::set_size(TensorInfo& tensor, uint64_t offset) const {
  const DTypeTraits& traits = dtype_traits(tensor.dtype);
  if (tensor.ne[0] % traits.block_elements != 0) {
    return reader_.error_at(
        offset,
        fmt::format("tensor '{}': rows of {} elements are no whole number of {} blocks of {}",
                    tensor.name, tensor.ne[0], traits.name, traits.block_elements));
  }
  const auto too_large = [&] {
    return reader_.error_at(offset, fmt::format("tensor '{}': byte size of {} {} is over 2^63 - 1",
                                                tensor.name, traits.name, shape_text(tensor)));
  };
  if (!checked_product({tensor.ne[0], tensor.ne[1], tensor.ne[2], tensor.ne[3]})) {
    return too_large();
  }
  const std::optional<uint64_t> row = row_bytes(tensor.dtype, tensor.ne[0]);
  if (!row) return too_large();
  const std::optional<uint64_t> size =
      checked_product({*row, static_cast<uint64_t>(tensor.ne[1]),
                       static_cast<uint64_t>(tensor.ne[2]), static_cast<uint64_t>(tensor.ne[3])});
  // Half of what 64 bits hold, so that padding and a file's offset can be added without a wrap.
  if (!size || *size > kBytesMax) return too_large();
  tensor.size_bytes = *size;
  return ok_status();
}

Result<TensorInfo> HeaderParser::read_tensor_info() {
  TensorInfo tensor;
  tensor.info_offset = reader_.offset();
  tensor.name = TRY(read_tensor_name());
  const uint64_t shape_offset = reader_.offset();
  TRY(read_shape(tensor));
  const uint64_t type_offset = reader_.offset();
  const auto type = TRY(reader_.number<uint32_t>("tensor table past end of file"));
  const std::optional<DType> dtype = dtype_from_gguf(type);
  if (!dtype) {
    return reader_.error_at(type_offset,
                            fmt::format("tensor '{}': unknown tensor type {}", tensor.name, type));
  }
  tensor.dtype = *dtype;
  TRY(set_size(tensor, shape_offset));
  const uint64_t offset_offset = reader_.offset();
  tensor.offset = TRY(reader_.number<uint64_t>("tensor table past end of file"));
  if (tensor.offset % header_.alignment != 0) {
    return reader_.error_at(
        offset_offset, fmt::format("tensor '{}': unaligned: its data begins at {}, which is no "
                                   "multiple of {}",
                                   tensor.name, tensor.offset, header_.alignment));
  }
  return tensor;
}

Status HeaderParser::check_names_unique() const {
  std::vector<const TensorInfo*> sorted;
  sorted.reserve(header_.tensors.size());
  for (const TensorInfo& tensor : header_.tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return a->name != b->name ? a->name < b->name : a->info_offset < b->info_offset;
  });
  const auto twin =
      std::adjacent_find(sorted.begin(), sorted.end(),
                         [](const auto* a, const auto* b) { return a->name == b->name; });
  if (twin == sorted.end()) return ok_status();
  const TensorInfo& second = **std::next(twin);
  return reader_.error_at(second.info_offset, fmt::format("duplicate tensor '{}'", second.name));
}

// Turns offsets within the data into offsets within the file, and checks them against its size.
Status HeaderParser::place_tensors() {
  const std::optional<uint64_t> data_offset =
      checked_align_up(header_.header_bytes, header_.alignment);
  if (!data_offset) return reader_.error("header too large");
  header_.data_offset = *data_offset;
  for (TensorInfo& tensor : header_.tensors) {
    const std::optional<uint64_t> offset = checked_add(tensor.offset, *data_offset);
    const std::optional<uint64_t> end =
        offset ? checked_add(*offset, tensor.size_bytes) : std::nullopt;
    const uint64_t limit = options_.allow_missing_data ? kBytesMax : file_.size();
    if (!end || *end > limit) {
      return reader_.error_at(
          tensor.info_offset,
          fmt::format("tensor '{}': past end of file: {} bytes at {} of the data, the file has {}",
                      tensor.name, tensor.size_bytes, tensor.offset, file_.size()));
    }
    tensor.offset = *offset;
  }
  return check_tiling();
}

// The tensors' data, each padded to the alignment, must cover the data section from its start.
Status HeaderParser::check_tiling() const {
  std::vector<const TensorInfo*> sorted;
  sorted.reserve(header_.tensors.size());
  for (const TensorInfo& tensor : header_.tensors) sorted.push_back(&tensor);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto* a, const auto* b) { return a->offset < b->offset; });
  uint64_t expected = header_.data_offset;
  const TensorInfo* before = nullptr;
  for (const TensorInfo* tensor : sorted) {
    if (tensor->offset != expected) {
      const bool overlap = tensor->offset < expected;
      const std::string reason =
          before == nullptr ? fmt::format("gap of {} bytes before the first tensor's data, '{}'",
                                          tensor->offset - expected, tensor->name)
          : overlap ? fmt::format("overlap: the data of tensor '{}' begins inside that of '{}'",
                                  tensor->name, before->name)
                    : fmt::format("gap of {} bytes between the data of '{}' and '{}'",
                                  tensor->offset - expected, before->name, tensor->name);
      return reader_.error_at(tensor->info_offset, reason);
    }
    expected = align_up(tensor->offset + tensor->size_bytes, header_.alignment);
    before = tensor;
  }
  return ok_status();
}

// Copies what the values refer to, and turns them from the file to the copy.
void HeaderParser::own_metadata() {
  Metadata& metadata = header_.metadata;
  metadata.source_ = reader_.name();
  const uint64_t end = metadata.entries_.empty() ? 0 : metadata.entries_.back().value.end_;
  metadata.header_ = std::make_shared<const std::string>(
      reinterpret_cast<const char*>(file_.data()), static_cast<size_t>(end));
  for (Metadata::Entry& entry : metadata.entries_) entry.value.base_ = metadata.header_->data();
}

std::string shape_text(const TensorInfo& tensor) {
  const int shown = std::max(tensor.n_dims, 1);
  return fmt::format("{{{}}}", fmt::join(tensor.ne.begin(), tensor.ne.begin() + shown, ", "));
}

Result<GgufHeader> parse_header(std::span<const std::byte> file, const std::string& name,
                                const ParseOptions& options) {
  return HeaderParser(file, name, options).parse();
}

}  // namespace strata
