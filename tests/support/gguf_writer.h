// Makes GGUF files for tests: sound ones, and ones broken at any chosen place.
//
// A GgufWriter is plain data: fields say what the counts, lengths and offsets would be, and each
// can be overridden to lie. build() writes whatever it is told. make_base_model() is the smallest
// file that is a whole llama model; hostile tests start from it.
//
// Threads: values, externally synchronised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/metadata.h"
#include "runtime/tensor/dtype.h"

namespace strata::test {

// Little-endian bytes of a number.
template <typename T>
std::string bytes_of(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}
// u64 length, then the text.
std::string string_bytes(std::string_view text);
// u32 element type, u64 count, then `elements`.
std::string array_bytes(uint32_t element_type, uint64_t count, std::string_view elements);

struct KeyValue {
  std::string key;
  uint32_t type = 0;
  std::string value;                        // as in the file, after the type
  std::optional<uint64_t> key_length = {};  // the length to claim
};

struct TensorEntry {
  std::string name;
  std::vector<uint64_t> ne;
  uint32_t type = 0;
  std::string data;                          // padded to the alignment when written
  std::optional<uint64_t> offset = {};       // to claim, instead of the true one
  std::optional<uint64_t> name_length = {};  // to claim
  std::optional<uint32_t> n_dims = {};       // to claim; `ne` is written as it is
};

struct GgufWriter {
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; not written as a key
  std::optional<uint64_t> n_tensors;
  std::optional<uint64_t> n_kv;
  std::vector<KeyValue> metadata;
  std::vector<TensorEntry> tensors;

  void set(std::string key, ValueType type, std::string value);  // replaces or appends
  void set_bool(std::string key, bool value);
  void set_u32(std::string key, uint32_t value);
  void set_f32(std::string key, float value);
  void set_string(std::string key, std::string_view value);
  void set_strings(std::string key, const std::vector<std::string>& values);
  void set_floats(std::string key, const std::vector<float>& values);
  void set_ints(std::string key, const std::vector<int32_t>& values);  // i32
  void erase(std::string_view key);
  // The pair or tensor; aborts the test program if there is none.
  KeyValue& kv(std::string_view key);
  TensorEntry& tensor(std::string_view name);

  // Appends a tensor. `data` must have its size for build() to make a sound file.
  void add_tensor(std::string name, DType type, std::vector<uint64_t> ne, std::string data);
  // F32 values in (-scale, scale) that depend on the name and index only.
  void add_f32_tensor(std::string name, std::vector<uint64_t> ne, float scale = 0.1F);

  // Bytes up to the end of the tensor table, and the whole file.
  std::string header() const;
  std::string build() const;
};

// A llama model of 2 layers, 32 embedding dimensions, 4 heads of 8 (2 for keys and values) and
// 288 tokens (SentencePiece with all bytes); F32, context 64. Loads and runs.
GgufWriter make_base_model();

}  // namespace strata::test
