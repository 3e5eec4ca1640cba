// The command itself, and its JSON; the text is in inspect_text.cpp.
#include "cli/inspect.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/model_summary.h"
#include "runtime/base/thread_pool.h"
#include "runtime/gguf/digest.h"

namespace strata::cli {
namespace {

using nlohmann::json;

// Longer arrays are shortened to their first elements.
constexpr uint64_t kArrayShownMax = 64;
constexpr uint64_t kFirstShown = 8;

json element_json(const MetadataValue& value, uint64_t i) {
  switch (value.element_type()) {
    case ValueType::string:
      return std::string(value.string(i));
    case ValueType::boolean:
      return value.integer(i) != 0;
    case ValueType::f32:
    case ValueType::f64:
      return value.floating(i);
    case ValueType::u64:
      return static_cast<uint64_t>(value.integer(i));
    default:
      return value.integer(i);
  }
}

json value_json(const MetadataValue& value) {
  if (!value.is_array()) return element_json(value, 0);
  const bool whole = value.count() <= kArrayShownMax;
  json elements = json::array();
  for (uint64_t i = 0; i < (whole ? value.count() : kFirstShown); ++i) {
    elements.push_back(element_json(value, i));
  }
  if (whole) return elements;
  return {{"type", value_type_name(value.element_type())},
          {"count", value.count()},
          {"first", std::move(elements)}};
}

// Sets `object[key]` if there is a value.
template <typename T>
void put(json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}
void put(json& object, const char* key, const std::optional<NumberRange>& range) {
  if (!range) return;
  if (range->least == range->most) {
    object[key] = range->least;
  } else {
    object[key] = {{"least", range->least}, {"most", range->most}};
  }
}
void put(json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

json model_json(const ModelSummary& summary) {
  json object = {{"architecture", summary.architecture}, {"parameters", summary.parameters}};
  put(object, "name", summary.name);
  put(object, "license", summary.license);
  put(object, "context_length", summary.context_length);
  put(object, "layers", summary.layers);
  put(object, "embedding_length", summary.embedding_length);
  put(object, "feed_forward_length", summary.feed_forward_length);
  put(object, "heads", summary.heads);
  put(object, "kv_heads", summary.kv_heads);
  put(object, "head_size", summary.head_size);
  put(object, "sliding_window", summary.sliding_window);
  put(object, "experts", summary.experts);
  put(object, "experts_used", summary.experts_used);
  put(object, "rope_base", summary.rope_base);
  put(object, "rope_scaling", summary.rope_scaling);
  return object;
}

json tokenizer_json(const ModelSummary& summary) {
  json object = {{"chat_template", summary.chat_template}};
  put(object, "model", summary.tokenizer);
  put(object, "pre", summary.pre_tokenizer);
  put(object, "vocabulary", summary.vocabulary);
  put(object, "merges", summary.merges);
  json special = json::object();
  for (const SpecialToken& token : summary.special_tokens) {
    special[token.role] = {{"id", token.id}, {"text", token.text}};
  }
  object["special_tokens"] = std::move(special);
  return object;
}

json types_json(const ModelSummary& summary) {
  json types = json::array();
  for (const TypeShare& share : summary.types) {
    types.push_back({{"type", dtype_name(share.dtype)},
                     {"tensors", share.tensors},
                     {"parameters", share.parameters},
                     {"bytes", share.bytes},
                     {"bits_per_weight", share.bits_per_weight()}});
  }
  return types;
}

json tensors_json(const GgufFile& model) {
  json tensors = json::array();
  for (const TensorInfo& tensor : model.tensors()) {
    json shape = json::array();
    for (int i = 0; i < tensor.n_dims; ++i) shape.push_back(tensor.ne[static_cast<size_t>(i)]);
    tensors.push_back({{"name", tensor.name},
                       {"type", dtype_name(tensor.dtype)},
                       {"shape", std::move(shape)},
                       {"bytes", tensor.size_bytes},
                       {"file", tensor.file_index},
                       {"offset", tensor.offset}});
  }
  return tensors;
}

Status run_inspect(const std::string& path, bool tensors, bool digest, bool as_json) {
  const std::shared_ptr<GgufFile> model = TRY(GgufFile::open(path));
  InspectOptions options{.tensors = tensors, .digest = {}};
  if (digest) {
    DigestOptions digest_options;
    digest_options.threads = usable_core_count();
    options.digest = TRY(compute_digest(*model, digest_options)).model;
  }
  if (as_json) {
    // Vocabularies hold bytes that are no UTF-8, which JSON cannot.
    fmt::print("{}\n",
               inspect_json(*model, options).dump(2, ' ', false, json::error_handler_t::replace));
  } else {
    fmt::print("{}", inspect_text(*model, options));
  }
  return ok_status();
}

}  // namespace

json inspect_json(const GgufFile& model, const InspectOptions& options) {
  const ModelSummary summary = summarise(model);
  json files = json::array();
  for (size_t i = 0; i < model.file_count(); ++i) {
    files.push_back({{"path", model.file(i).path()}, {"bytes", model.file(i).size()}});
  }
  json metadata = json::object();
  for (const Metadata::Entry& entry : model.metadata().entries()) {
    metadata[entry.key] = value_json(entry.value);
  }
  json report = {{"path", model.path()},
                 {"files", std::move(files)},
                 {"gguf_version", model.version()},
                 {"alignment", model.alignment()},
                 {"file_bytes", summary.file_bytes},
                 {"tensor_bytes", summary.tensor_bytes},
                 {"tensor_count", summary.tensor_count},
                 {"bits_per_weight", summary.bits_per_weight},
                 {"model", model_json(summary)},
                 {"tokenizer", tokenizer_json(summary)},
                 {"types", types_json(summary)},
                 {"metadata", std::move(metadata)}};
  put(report, "digest", options.digest);
  if (options.tensors) report["tensors"] = tensors_json(model);
  return report;
}

void add_inspect_command(CLI::App& app, CommandContext& context) {
  struct Arguments {
    std::string model;
    bool tensors = false;
    bool digest = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("inspect", "Show what is in a model file");
  command->add_option("MODEL", arguments->model, "A GGUF file, or any part of a split one")
      ->required()
      ->group("Model");
  command->add_flag("--tensors", arguments->tensors, "List every tensor")->group("Output");
  command
      ->add_flag("--digest", arguments->digest, "Compute the model's digest (reads the whole file)")
      ->group("Output");
  add_json_option(*command, context, "Print one JSON object");
  add_example(*command, "strata inspect smollm2.gguf --tensors");
  command->callback([arguments, &context] {
    context.run = [arguments, &context] {
      return run_inspect(arguments->model, arguments->tensors, arguments->digest, context.json);
    };
  });
}

}  // namespace strata::cli
