#include "runtime/model/stage_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/checked_math.h"
#include "runtime/graph/ops.h"

namespace strata {
namespace {

// Up to so many tokens a backend may let several threads share one token's attention, which takes
// workspace by the length of the context.
constexpr int32_t kFewTokens = 4;

}  // namespace

Status check_stage_options(const Hparams& h, const StageOptions& options) {
  const LayerRange& range = options.range;
  if (range.begin < 0 || range.end < range.begin || range.end > h.n_layer) {
    return invalid_argument(
        fmt::format("layers [{}, {}) of a model with {}", range.begin, range.end, h.n_layer));
  }
  if (range.count() == 0 && !range.has_embedding && !range.has_head) {
    return invalid_argument("a stage without layers, embedding or head");
  }
  // Between the embedding and the head there are layers, or the stage is neither.
  if ((range.has_embedding && range.begin != 0) || (range.has_head && range.end != h.n_layer)) {
    return invalid_argument(
        fmt::format("{} of a model with {} layers: the embedding goes with "
                    "the first layer, the head with the last",
                    layer_range_text(range), h.n_layer));
  }
  if (options.devices.empty()) return invalid_argument("a stage without a device");
  if (!options.layer_devices.empty() &&
      options.layer_devices.size() != static_cast<size_t>(range.count())) {
    return invalid_argument(
        fmt::format("{} devices for {} layers", options.layer_devices.size(), range.count()));
  }
  if (!options.device_memory.empty() && options.device_memory.size() != options.devices.size()) {
    return invalid_argument(fmt::format("memory of {} devices for {}", options.device_memory.size(),
                                        options.devices.size()));
  }
  const auto check = [](std::string_view what, int32_t value, int32_t max) {
    if (value >= 1 && value <= max) return ok_status();
    return invalid_argument(fmt::format("{} is {}, must be 1 to {}", what, value, max));
  };
  TRY(check("max_batch_tokens", options.max_batch_tokens, 1 << 16));
  TRY(check("max_sequences", options.max_sequences, 1 << 16));
  // A learned position table ends; rotary positions go on, and the caller decides how far.
  return check("max_context", options.max_context, h.uses_rope ? kContextMax : h.n_ctx_train);
}

size_t host_device_index(const StageOptions& options) {
  const auto cpu = std::find_if(options.devices.begin(), options.devices.end(),
                                [](Device* d) { return d->kind() == DeviceKind::cpu; });
  return cpu == options.devices.end() ? 0 : static_cast<size_t>(cpu - options.devices.begin());
}

Placement stage_placement(const StageOptions& options) {
  Placement placement;
  placement.layers = options.layer_devices;
  if (placement.layers.empty()) {
    placement.layers.assign(static_cast<size_t>(options.range.count()), options.devices.front());
  }
  placement.input = options.devices[host_device_index(options)];
  placement.output = options.head_device;
  if (placement.output == nullptr) {
    placement.output = placement.layers.empty() ? options.devices.front() : placement.layers.back();
  }
  return placement;
}

DeviceMemory device_memory(const StageOptions& options, size_t index) {
  if (!options.device_memory.empty()) return options.device_memory[index];
  return options.devices[index]->memory();
}

int32_t table_blocks_max(const StageOptions& options) {
  return static_cast<int32_t>(divide_up(options.max_context, ops::kKvBlockPositions));
}

std::vector<BatchShape> worst_shapes(const StageOptions& options) {
  const int32_t outputs = options.max_outputs > 0 ? options.max_outputs : options.max_sequences;
  const int32_t tokens = options.max_batch_tokens;
  std::vector<BatchShape> shapes;
  for (const int32_t n_tokens :
       {tokens, std::min(tokens, options.max_sequences), std::min(tokens, kFewTokens), 1}) {
    shapes.push_back({.n_tokens = n_tokens,
                      .n_outputs = std::min(n_tokens, outputs),
                      .n_sequences = std::min(n_tokens, options.max_sequences),
                      .table_blocks = table_blocks_max(options)});
  }
  return shapes;
}

}  // namespace strata
