#include "cli/model_options.h"

#include <fmt/format.h>

#include <array>
#include <fstream>

#include "backends/backends.h"
#include "worker/local_pipeline.h"

namespace strata::cli {

void add_model_options(CLI::App& command, ModelOptions& options, const std::string& kv_type) {
  options.kv_type = kv_type;
  command.add_option("-m,--model", options.path, "GGUF file, or the first file of a split model")
      ->required();
  command.add_option("--threads", options.threads, "Threads that compute (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--isa", options.isa, "Vector path: scalar, avx2 or avx512 (default: best)");
  command.add_option("--kv-type", options.kv_type, "Type of the KV cache: f32, f16, q8_0 or q4_0")
      ->capture_default_str();
  command.add_option("--split", options.split, "Layers of each stage, such as 10,12,8")
      ->delimiter(',');
  command.add_flag("--mapped", options.mapped, "Compute from the mapped file, without a copy");
}

Result<std::unique_ptr<DeviceRegistry>> open_devices(const ModelOptions& options) {
  auto registry = std::make_unique<DeviceRegistry>();
  TRY(register_all(*registry, {.isa = options.isa}));
  return registry;
}

Result<std::vector<LayerRange>> stage_ranges(const ModelOptions& options, const Hparams& hparams) {
  if (options.split.empty()) {
    return std::vector<LayerRange>{
        {.begin = 0, .end = hparams.n_layer, .has_embedding = true, .has_head = true}};
  }
  return worker::split_layers(hparams.n_layer, options.split).with_context("--split");
}

Result<DType> parse_kv_type(const std::string& name) {
  return kv_type_from_name(name).with_context("--kv-type");
}

Result<std::string> read_text_file(const std::string& path) {
  constexpr size_t kTextBytesMax = size_t{1} << 30;
  std::ifstream in(path, std::ios::binary);
  if (!in) return not_found("cannot read " + path);
  std::string text;
  std::array<char, 65536> piece;
  while (in.read(piece.data(), piece.size()), in.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (text.size() > kTextBytesMax) return invalid_argument(path + ": larger than 1 GiB");
  }
  return text;
}

}  // namespace strata::cli
