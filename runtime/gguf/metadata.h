// A model file's metadata: ordered key-value pairs with typed access.
//
// Values lie in one owned copy of the header's bytes, never in the mapped file: a file that is
// truncated later cannot take the metadata away (a read past a truncation would raise SIGBUS).
// An array of strings costs its bytes plus 4 bytes a string.
//
// Errors of the getters read "<file>: key 'llama.block_count' is a string, must be an integer at
// offset N". Those who check values further make theirs with Metadata::error().
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ("gguf_metadata_value_type").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"

namespace strata {

// The numbers are the file format's.
enum class ValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// "u32", "bool", "string", "array".
std::string_view value_type_name(ValueType type);
// Bytes of one value in the file; 0 for string and array, whose size varies.
uint64_t value_type_bytes(ValueType type);
bool is_integer_type(ValueType type);

// One value. A light handle: copies share the bytes, which live as long as any Metadata (or copy of
// it) that holds the value.
//
// Threads: const members from any thread.
class MetadataValue {
 public:
  ValueType type() const { return type_; }
  // The type of an array's elements; the value's own type otherwise.
  ValueType element_type() const { return element_type_; }
  // Elements of an array; 1 otherwise.
  uint64_t count() const { return count_; }
  bool is_array() const { return type_ == ValueType::array; }
  // The value as it lies in the file after its type: for an array, element type and count included.
  std::string_view raw() const { return {base_ + begin_, end_ - begin_}; }
  // Where raw() begins in the file.
  uint64_t file_offset() const { return begin_; }

  // Element `i` of an array (0 for a lone value), as text such as "64", "1e-05", "true"; strings as
  // they are. For people; the typed getters of Metadata are for programs.
  // Requires: i < count().
  std::string text(uint64_t i) const;

  // Requires for these three: the element type is of that kind, and i < count().
  std::string_view string(uint64_t i) const;
  // Integers and bool, widened; u64 over 2^63 - 1 wraps, see element_type().
  int64_t integer(uint64_t i) const;
  double floating(uint64_t i) const;

 private:
  friend class Metadata;
  friend class HeaderParser;

  const char* element(uint64_t i) const;

  ValueType type_ = ValueType::u8;
  ValueType element_type_ = ValueType::u8;
  uint64_t count_ = 1;
  const char* base_ = nullptr;  // the header's first byte
  uint64_t begin_ = 0;          // raw() is [begin_, end_) of the header
  uint64_t end_ = 0;
  uint64_t payload_ = 0;  // where the elements begin: begin_ + 12 for an array, else begin_
  // Of an array of strings: where each ends, relative to payload_. Lengths are never read again, so
  // that a view stays inside the bytes whatever they are.
  std::shared_ptr<const std::vector<uint32_t>> string_ends_;
};

// An array of strings, read in place. Valid as long as the Metadata that gave it.
class StringArray {
 public:
  StringArray() = default;
  explicit StringArray(const MetadataValue& value) : value_(value) {}
  size_t size() const { return static_cast<size_t>(value_.count()); }
  // Any bytes at all: NUL and invalid UTF-8 occur in vocabularies. Requires: i < size().
  std::string_view operator[](size_t i) const { return value_.string(i); }

 private:
  MetadataValue value_;
};

// Threads: const members from any thread. Copies share the bytes.
class Metadata {
 public:
  struct Entry {
    std::string key;
    MetadataValue value;
  };

  Metadata() = default;

  // In the file's order.
  std::span<const Entry> entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  // The value, or null if there is none.
  const MetadataValue* find(std::string_view key) const;
  // The file's name, for messages.
  const std::string& source() const { return source_; }

  // The value of `key` as T: bool, int32_t, uint32_t, int64_t, uint64_t, float, double,
  // std::string or std::string_view. An integer T takes every integer type whose value fits; float
  // and double take f32 and f64 (a finite f64 beyond float's range is refused for float).
  // Errors: NOT_FOUND without the key, INVALID_ARGUMENT for another type or a value out of range;
  // the message names key, wanted and found type.
  template <typename T>
  Result<T> get(std::string_view key) const;
  // `fallback` without the key; still an error if the key is there with a wrong type or range.
  template <typename T>
  Result<T> get_or(std::string_view key, T fallback) const;

  // An array of strings, in place. Errors: as get(); "must be string array" for another type.
  Result<StringArray> get_strings(std::string_view key) const;
  // An array of numbers as a vector of T: int32_t, uint32_t, int64_t, uint64_t, float or double,
  // with the conversions of get(). Errors: as get(), naming the element.
  template <typename T>
  Result<std::vector<T>> get_numbers(std::string_view key) const;

  // INVALID_ARGUMENT "<file>: key '<key>' <reason> at offset N", N being the value's place; without
  // " at offset N" if there is no such key. For checks of what a value means.
  Status error(std::string_view key, std::string_view reason) const;

 private:
  friend class HeaderParser;

  Result<const MetadataValue*> require(std::string_view key) const;

  std::string source_;
  std::shared_ptr<const std::string> header_;  // what the values point into
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace strata
