// `strata inspect` for people: a few aligned sections, the most wanted first.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/inspect.h"
#include "cli/model_summary.h"
#include "runtime/base/human.h"
#include "runtime/base/text_table.h"
#include "runtime/base/utf8.h"

namespace strata::cli {
namespace {

constexpr size_t kTextShownBytes = 72;
constexpr uint64_t kElementsShown = 6;
constexpr size_t kElementShownBytes = 16;

std::string count_text(int64_t value) {
  return value < 0 ? fmt::format("{}", value) : human_count(static_cast<uint64_t>(value));
}

std::string range_text(const NumberRange& range) {
  if (range.least == range.most) return count_text(range.least);
  return fmt::format("{} to {}", count_text(range.least), count_text(range.most));
}

// A table with a head, set in: the first column and those in `left` to the left, all others to the
// right.
class Table {
 public:
  explicit Table(std::vector<std::string> head, const std::vector<size_t>& left = {}) {
    for (size_t i = 1; i < head.size(); ++i) {
      if (std::find(left.begin(), left.end(), i) == left.end()) right_.push_back(i);
    }
    head.front().insert(0, "  ");
    rows_.push_back(std::move(head));
  }

  void add(std::vector<std::string> row) {
    row.front().insert(0, "  ");
    rows_.push_back(std::move(row));
  }
  std::string text() const { return table_text(rows_, right_); }

 private:
  std::vector<size_t> right_;
  std::vector<std::vector<std::string>> rows_;
};

// One line "  label           value", if there is a value.
void add_line(std::string& out, std::string_view label, std::string_view value) {
  if (!value.empty()) out += fmt::format("  {:<15} {}\n", label, value);
}

std::string attention_text(const ModelSummary& summary) {
  if (!summary.heads) return {};
  std::string text = range_text(*summary.heads) + " heads";
  if (summary.head_size) text += fmt::format(" of {}", *summary.head_size);
  if (summary.kv_heads)
    text += fmt::format(", {} for keys and values", range_text(*summary.kv_heads));
  if (summary.sliding_window.value_or(0) > 0) {
    text += fmt::format(", window {}", count_text(*summary.sliding_window));
  }
  return text;
}

std::string experts_text(const ModelSummary& summary) {
  if (summary.experts.value_or(0) == 0) return {};
  return fmt::format("{}, {} used per token", count_text(*summary.experts),
                     count_text(summary.experts_used.value_or(0)));
}

std::string rope_text(const ModelSummary& summary) {
  if (!summary.rope_base) return {};
  std::string text = fmt::format("base {}", *summary.rope_base);
  if (!summary.rope_scaling.empty()) {
    text += fmt::format(", {} scaling", printable(summary.rope_scaling, kTextShownBytes));
  }
  return text;
}

std::string tokenizer_text(const ModelSummary& summary) {
  if (summary.tokenizer.empty()) return {};
  std::string text = printable(summary.tokenizer, kTextShownBytes);
  if (summary.tokenizer == "llama") text += " (SentencePiece)";
  if (summary.tokenizer == "gpt2") text += " (byte-level BPE)";
  if (summary.tokenizer == "bert") text += " (WordPiece)";
  if (!summary.pre_tokenizer.empty()) {
    text += fmt::format(", pre-tokenizer {}", printable(summary.pre_tokenizer, kTextShownBytes));
  }
  return text;
}

std::string special_tokens_text(const ModelSummary& summary) {
  std::string text;
  for (const SpecialToken& token : summary.special_tokens) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", token.role, token.id);
    text += token.text.empty() ? " (not in the vocabulary)"
                               : fmt::format(" {}", printable(token.text, kElementShownBytes));
  }
  return text;
}

std::string title(const GgufFile& model, const ModelSummary& summary) {
  const std::string name = summary.name.empty() ? "(no name)" : printable(summary.name);
  std::string out = fmt::format("{}: {}", name, printable(summary.architecture));
  if (summary.parameters > 0) {
    out += fmt::format(", {} parameters", human_parameters(summary.parameters));
  }
  out += fmt::format("\n{}: {}, GGUF version {}", printable(model.path(), 400),
                     human_bytes(summary.file_bytes), model.version());
  if (model.file_count() > 1) out += fmt::format(", {} files", model.file_count());
  return out + "\n";
}

std::string model_section(const ModelSummary& summary, const InspectOptions& options) {
  const auto number = [](const std::optional<int64_t>& value, std::string_view unit) {
    return value ? count_text(*value) + std::string(unit) : std::string();
  };
  std::string out = "\nModel\n";
  add_line(out, "architecture", printable(summary.architecture));
  if (summary.parameters > 0) {
    add_line(out, "parameters", human_count(summary.parameters));
    add_line(out, "weights",
             fmt::format("{} in {} tensors, {:.2f} bits each", human_bytes(summary.tensor_bytes),
                         human_count(summary.tensor_count), summary.bits_per_weight));
  }
  add_line(out, "context", number(summary.context_length, " tokens"));
  add_line(out, "layers", number(summary.layers, ""));
  add_line(out, "embedding", number(summary.embedding_length, ""));
  if (summary.feed_forward_length) {
    add_line(out, "feed-forward", range_text(*summary.feed_forward_length));
  }
  add_line(out, "attention", attention_text(summary));
  add_line(out, "experts", experts_text(summary));
  add_line(out, "rope", rope_text(summary));
  add_line(out, "tokenizer", tokenizer_text(summary));
  if (summary.vocabulary) {
    add_line(out, "vocabulary", human_count(*summary.vocabulary) + " tokens");
  }
  add_line(out, "special tokens", special_tokens_text(summary));
  add_line(out, "chat template", summary.chat_template ? "in the file" : "none in the file");
  add_line(out, "license", printable(summary.license, kTextShownBytes));
  add_line(out, "digest", options.digest);
  return out;
}

std::string types_section(const ModelSummary& summary) {
  if (summary.types.empty()) return "\nNo tensors\n";
  Table table({"Type", "tensors", "size", "share", "bits/weight"});
  for (const TypeShare& share : summary.types) {
    const double part =
        100 * static_cast<double>(share.bytes) / static_cast<double>(summary.tensor_bytes);
    table.add({std::string(dtype_name(share.dtype)), human_count(share.tensors),
               human_bytes(share.bytes), fmt::format("{:.1f} %", part),
               fmt::format("{:.2f}", share.bits_per_weight())});
  }
  return "\nWeights\n" + table.text();
}

// Element i, shortened; a string without copying it first, since it may be very long.
std::string element_text(const MetadataValue& value, uint64_t i, size_t bytes_max) {
  if (value.element_type() == ValueType::string) return printable(value.string(i), bytes_max);
  return value.text(i);
}

std::string value_text(const MetadataValue& value) {
  if (!value.is_array()) return element_text(value, 0, kTextShownBytes);
  std::string text;
  const uint64_t shown = std::min(value.count(), kElementsShown);
  for (uint64_t i = 0; i < shown; ++i) {
    text += i == 0 ? "" : ", ";
    text += element_text(value, i, kElementShownBytes);
  }
  if (value.count() > shown)
    text += fmt::format(", ... {} more", human_count(value.count() - shown));
  return text;
}

std::string type_text(const MetadataValue& value) {
  if (!value.is_array()) return std::string(value_type_name(value.type()));
  return fmt::format("{}[{}]", value_type_name(value.element_type()), human_count(value.count()));
}

std::string metadata_section(const Metadata& metadata) {
  Table table({"Key", "type", "value"}, {1, 2});
  for (const Metadata::Entry& entry : metadata.entries()) {
    table.add({printable(entry.key), type_text(entry.value), value_text(entry.value)});
  }
  return fmt::format("\nMetadata ({} keys)\n", human_count(metadata.size())) + table.text();
}

std::string tensors_section(const GgufFile& model) {
  Table table({"Tensor", "type", "shape", "size"}, {1, 2});
  for (const TensorInfo& tensor : model.tensors()) {
    table.add({printable(tensor.name), std::string(dtype_name(tensor.dtype)), shape_text(tensor),
               human_bytes(tensor.size_bytes)});
  }
  return fmt::format("\nTensors ({})\n", human_count(model.tensors().size())) + table.text();
}

}  // namespace

std::string inspect_text(const GgufFile& model, const InspectOptions& options) {
  const ModelSummary summary = summarise(model);
  std::string out = title(model, summary);
  out += model_section(summary, options);
  out += types_section(summary);
  out += metadata_section(model.metadata());
  if (options.tensors && !model.tensors().empty()) out += tensors_section(model);
  return out;
}

}  // namespace strata::cli
