#include "tests/support/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"

namespace strata::test {
namespace {

// FNV-1a, to start each tensor's numbers from its name.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

// One step of SplitMix64.
uint64_t next_random(uint64_t& state) {
  state += 0x9E3779B97F4A7C15;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

template <typename T>
std::string numbers_bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void pad(std::string& bytes, uint64_t alignment) {
  bytes.resize(static_cast<size_t>(align_up(bytes.size(), alignment)), '\0');
}

void add_vocabulary(GgufWriter& writer) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<float> scores = {0, 0, 0};
  std::vector<int32_t> types = {2, 3, 3};  // unknown, control, control
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    scores.push_back(0);
    types.push_back(6);  // byte
  }
  for (const char* piece : {"\xE2\x96\x81",
                            "e",
                            "t",
                            "a",
                            "o",
                            "n",
                            "i",
                            "s",
                            "h",
                            "r",
                            "l",
                            "d",
                            "u",
                            "th",
                            "he",
                            "in",
                            "er",
                            "an",
                            "re",
                            "on",
                            "\xE2\x96\x81t",
                            "the",
                            "\xE2\x96\x81the",
                            "\xE2\x96\x81"
                            "a",
                            "ing",
                            "or",
                            "at",
                            "en",
                            "it"}) {
    tokens.emplace_back(piece);
    scores.push_back(-static_cast<float>(tokens.size()));
    types.push_back(1);
  }
  writer.set_string("tokenizer.ggml.model", "llama");
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_floats("tokenizer.ggml.scores", scores);
  writer.set_ints("tokenizer.ggml.token_type", types);
  writer.set_u32("tokenizer.ggml.bos_token_id", 1);
  writer.set_u32("tokenizer.ggml.eos_token_id", 2);
  writer.set_u32("tokenizer.ggml.unknown_token_id", 0);
}

}  // namespace

std::string string_bytes(std::string_view text) {
  return bytes_of<uint64_t>(text.size()) + std::string(text);
}

std::string array_bytes(uint32_t element_type, uint64_t count, std::string_view elements) {
  return bytes_of(element_type) + bytes_of(count) + std::string(elements);
}

void GgufWriter::set(std::string key, ValueType type, std::string value) {
  KeyValue pair{
      .key = std::move(key), .type = static_cast<uint32_t>(type), .value = std::move(value)};
  for (KeyValue& old : metadata) {
    if (old.key == pair.key) {
      old = std::move(pair);
      return;
    }
  }
  metadata.push_back(std::move(pair));
}

void GgufWriter::set_bool(std::string key, bool value) {
  set(std::move(key), ValueType::boolean, bytes_of<uint8_t>(value ? 1 : 0));
}
void GgufWriter::set_u32(std::string key, uint32_t value) {
  set(std::move(key), ValueType::u32, bytes_of(value));
}
void GgufWriter::set_f32(std::string key, float value) {
  set(std::move(key), ValueType::f32, bytes_of(value));
}
void GgufWriter::set_string(std::string key, std::string_view value) {
  set(std::move(key), ValueType::string, string_bytes(value));
}

void GgufWriter::set_strings(std::string key, const std::vector<std::string>& values) {
  std::string elements;
  for (const std::string& value : values) elements += string_bytes(value);
  set(std::move(key), ValueType::array,
      array_bytes(static_cast<uint32_t>(ValueType::string), values.size(), elements));
}

void GgufWriter::set_floats(std::string key, const std::vector<float>& values) {
  set(std::move(key), ValueType::array,
      array_bytes(static_cast<uint32_t>(ValueType::f32), values.size(), numbers_bytes(values)));
}

void GgufWriter::set_ints(std::string key, const std::vector<int32_t>& values) {
  set(std::move(key), ValueType::array,
      array_bytes(static_cast<uint32_t>(ValueType::i32), values.size(), numbers_bytes(values)));
}

void GgufWriter::erase(std::string_view key) {
  std::erase_if(metadata, [&](const KeyValue& pair) { return pair.key == key; });
}

KeyValue& GgufWriter::kv(std::string_view key) {
  for (KeyValue& pair : metadata) {
    if (pair.key == key) return pair;
  }
  check_failed("the key is there", key, __FILE__, __LINE__);
}

TensorEntry& GgufWriter::tensor(std::string_view name) {
  for (TensorEntry& entry : tensors) {
    if (entry.name == name) return entry;
  }
  check_failed("the tensor is there", name, __FILE__, __LINE__);
}

void GgufWriter::add_tensor(std::string name, DType type, std::vector<uint64_t> ne,
                            std::string data) {
  TensorEntry entry;
  entry.name = std::move(name);
  entry.ne = std::move(ne);
  entry.type = static_cast<uint32_t>(type);
  entry.data = std::move(data);
  tensors.push_back(std::move(entry));
}

void GgufWriter::add_f32_tensor(std::string name, std::vector<uint64_t> ne, float scale) {
  uint64_t count = 1;
  for (const uint64_t dimension : ne) count *= dimension;
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = hash_of(name);
  for (float& value : values) {
    const auto bits = static_cast<float>(next_random(state) >> 40);  // 24 of them
    value = (bits / 8388608.0F - 1.0F) * scale;
  }
  add_tensor(std::move(name), DType::f32, std::move(ne), numbers_bytes(values));
}

std::string GgufWriter::header() const {
  std::string out = magic + bytes_of(version) + bytes_of(n_tensors.value_or(tensors.size())) +
                    bytes_of(n_kv.value_or(metadata.size()));
  for (const KeyValue& pair : metadata) {
    out += bytes_of(pair.key_length.value_or(pair.key.size())) + pair.key;
    out += bytes_of(pair.type) + pair.value;
  }
  uint64_t offset = 0;
  for (const TensorEntry& entry : tensors) {
    out += bytes_of(entry.name_length.value_or(entry.name.size())) + entry.name;
    out += bytes_of(entry.n_dims.value_or(static_cast<uint32_t>(entry.ne.size())));
    for (const uint64_t dimension : entry.ne) out += bytes_of(dimension);
    out += bytes_of(entry.type) + bytes_of(entry.offset.value_or(offset));
    offset += align_up(entry.data.size(), alignment);
  }
  return out;
}

std::string GgufWriter::build() const {
  std::string out = header();
  if (tensors.empty()) return out;
  pad(out, alignment);
  for (const TensorEntry& entry : tensors) {
    out += entry.data;
    pad(out, alignment);
  }
  return out;
}

GgufWriter make_base_model() {
  constexpr uint64_t kEmbedding = 32;
  constexpr uint64_t kFeedForward = 64;
  constexpr uint64_t kKeyValue = 16;
  constexpr uint64_t kTokens = 288;
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("general.name", "base");
  writer.set_u32("llama.block_count", 2);
  writer.set_u32("llama.context_length", 64);
  writer.set_u32("llama.embedding_length", kEmbedding);
  writer.set_u32("llama.feed_forward_length", kFeedForward);
  writer.set_u32("llama.attention.head_count", 4);
  writer.set_u32("llama.attention.head_count_kv", 2);
  writer.set_u32("llama.rope.dimension_count", 8);
  writer.set_f32("llama.rope.freq_base", 10000.0F);
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  add_vocabulary(writer);

  writer.add_f32_tensor("token_embd.weight", {kEmbedding, kTokens});
  for (int layer = 0; layer < 2; ++layer) {
    const auto add = [&](std::string_view name, std::vector<uint64_t> ne) {
      writer.add_f32_tensor(fmt::format("blk.{}.{}.weight", layer, name), std::move(ne));
    };
    add("attn_norm", {kEmbedding});
    add("attn_q", {kEmbedding, kEmbedding});
    add("attn_k", {kEmbedding, kKeyValue});
    add("attn_v", {kEmbedding, kKeyValue});
    add("attn_output", {kEmbedding, kEmbedding});
    add("ffn_norm", {kEmbedding});
    add("ffn_gate", {kEmbedding, kFeedForward});
    add("ffn_up", {kEmbedding, kFeedForward});
    add("ffn_down", {kFeedForward, kEmbedding});
  }
  writer.add_f32_tensor("output_norm.weight", {kEmbedding});
  writer.add_f32_tensor("output.weight", {kEmbedding, kTokens});
  return writer;
}

}  // namespace strata::test
