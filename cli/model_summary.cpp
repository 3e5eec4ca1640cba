#include "cli/model_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "runtime/base/human.h"

namespace strata::cli {
namespace {

constexpr double kBitsPerByte = 8;

double bits_per_weight_of(uint64_t bytes, uint64_t parameters) {
  if (parameters == 0) return 0;
  return kBitsPerByte * static_cast<double>(bytes) / static_cast<double>(parameters);
}

// Reads the facts of one model; nothing for what is missing or has another type.
class FactReader {
 public:
  FactReader(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + ".") {}

  template <typename T>
  std::optional<T> fact(const std::string& key) const {
    const Result<T> value = metadata_.get<T>(key);
    if (!value.ok()) return std::nullopt;
    return value.value();
  }
  std::string text(const std::string& key) const {
    return fact<std::string>(key).value_or(std::string());
  }
  // A key of the architecture.
  std::optional<int64_t> number(const std::string& key) const {
    return fact<int64_t>(prefix_ + key);
  }
  std::optional<double> floating(const std::string& key) const {
    return fact<double>(prefix_ + key);
  }
  std::string model_text(const std::string& key) const { return text(prefix_ + key); }
  std::optional<NumberRange> range(const std::string& key) const {
    if (const auto value = number(key)) return NumberRange{*value, *value};
    const auto values = metadata_.get_numbers<int64_t>(prefix_ + key);
    if (!values.ok() || values->empty()) return std::nullopt;
    const auto [least, most] = std::minmax_element(values->begin(), values->end());
    return NumberRange{*least, *most};
  }

 private:
  const Metadata& metadata_;
  std::string prefix_;
};

void add_weights(const GgufFile& model, ModelSummary& summary) {
  std::map<DType, TypeShare> shares;
  for (const TensorInfo& tensor : model.tensors()) {
    TypeShare& share = shares[tensor.dtype];
    share.dtype = tensor.dtype;
    share.tensors += 1;
    share.parameters += static_cast<uint64_t>(tensor.elements());
    share.bytes += tensor.size_bytes;
  }
  for (const auto& [dtype, share] : shares) summary.types.push_back(share);
  std::sort(summary.types.begin(), summary.types.end(),
            [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
  summary.parameters = model.parameter_count();
  summary.file_bytes = model.file_bytes();
  summary.tensor_bytes = model.tensor_bytes_total();
  summary.tensor_count = model.tensors().size();
  summary.bits_per_weight = bits_per_weight_of(summary.tensor_bytes, summary.parameters);
}

void add_shape(const FactReader& facts, ModelSummary& summary) {
  summary.context_length = facts.number("context_length");
  summary.layers = facts.number("block_count");
  summary.embedding_length = facts.number("embedding_length");
  summary.feed_forward_length = facts.range("feed_forward_length");
  summary.heads = facts.range("attention.head_count");
  summary.kv_heads = facts.range("attention.head_count_kv");
  summary.head_size = facts.number("attention.key_length");
  if (!summary.head_size && summary.heads && summary.embedding_length && summary.heads->most > 0) {
    summary.head_size = *summary.embedding_length / summary.heads->most;
  }
  summary.sliding_window = facts.number("attention.sliding_window");
  summary.experts = facts.number("expert_count");
  summary.experts_used = facts.number("expert_used_count");
  summary.rope_base = facts.floating("rope.freq_base");
  summary.rope_scaling = facts.model_text("rope.scaling.type");
}

void add_vocabulary(const Metadata& metadata, const FactReader& facts, ModelSummary& summary) {
  summary.tokenizer = facts.text("tokenizer.ggml.model");
  summary.pre_tokenizer = facts.text("tokenizer.ggml.pre");
  summary.chat_template = metadata.contains("tokenizer.chat_template");
  const auto tokens = metadata.get_strings("tokenizer.ggml.tokens");
  if (tokens.ok()) summary.vocabulary = tokens->size();
  const auto merges = metadata.get_strings("tokenizer.ggml.merges");
  if (merges.ok()) summary.merges = merges->size();
  constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
      {"bos", "bos"}, {"eos", "eos"}, {"eot", "eot"}, {"unknown", "unk"}, {"padding", "pad"}};
  for (const auto& [key, role] : kRoles) {
    const auto id = facts.fact<int64_t>(fmt::format("tokenizer.ggml.{}_token_id", key));
    if (!id) continue;
    SpecialToken token{.role = std::string(role), .id = *id, .text = {}};
    if (tokens.ok() && *id >= 0 && static_cast<uint64_t>(*id) < tokens->size()) {
      token.text = std::string(tokens.value()[static_cast<size_t>(*id)]);
    }
    summary.special_tokens.push_back(std::move(token));
  }
}

}  // namespace

double TypeShare::bits_per_weight() const { return bits_per_weight_of(bytes, parameters); }

ModelSummary summarise(const GgufFile& model) {
  ModelSummary summary;
  summary.architecture = model.architecture().value_or("unknown");
  const FactReader facts(model.metadata(), summary.architecture);
  summary.name = facts.text("general.name");
  summary.license = facts.text("general.license");
  add_weights(model, summary);
  add_shape(facts, summary);
  add_vocabulary(model.metadata(), facts, summary);
  return summary;
}

std::string human_parameters(uint64_t parameters) {
  const auto count = static_cast<double>(parameters);
  if (count >= 1e12) return fmt::format("{:.2f} trillion", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.2f} billion", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} million", count / 1e6);
  return human_count(parameters);
}

}  // namespace strata::cli
