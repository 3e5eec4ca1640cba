#include "serve/model_options.h"

#include <fmt/format.h>

#include "backends/backends.h"
#include "backends/cpu/isa.h"
#include "coordinator/planner/planner.h"
#include "runtime/base/thread_pool.h"
#include "worker/local_pipeline.h"

namespace strata::serve {

Result<ThreadPins> pins_of(const ModelOptions& options, size_t pools) {
  const auto mode = TRY(parse_pin_mode(options.pin).with_context("--pin"));
  return choose_pins({.mode = mode,
                      .threads = options.threads > 0 ? options.threads : usable_core_count(),
                      .pools = static_cast<int>(pools)});
}

Status check_model_options(const ModelOptions& options) {
  TRY(parse_kv_type(options.kv_type));
  TRY(parse_pin_mode(options.pin).with_context("--pin"));
  if (options.split) TRY(coordinator::parse_split(*options.split));
  // A name that is none; what this processor lacks is no wrong use.
  const Status isa = cpu::choose_isa(options.isa).status();
  return isa.code() == StatusCode::invalid_argument ? isa : ok_status();
}

Result<std::unique_ptr<DeviceRegistry>> open_devices(const ModelOptions& options) {
  auto registry = std::make_unique<DeviceRegistry>();
  TRY(register_all(*registry, {.isa = options.isa}));
  return registry;
}

Result<std::vector<LayerRange>> stage_ranges(const ModelOptions& options, const Hparams& hparams) {
  if (!options.split) {
    return std::vector<LayerRange>{
        {.begin = 0, .end = hparams.n_layer, .has_embedding = true, .has_head = true}};
  }
  std::vector<int32_t> counts;
  for (const coordinator::SplitEntry& entry :
       TRY(coordinator::parse_split(*options.split, static_cast<uint32_t>(hparams.n_layer)))) {
    if (!entry.node.empty()) {
      return invalid_argument(
          fmt::format("--split {}: stages in one process have no names", *options.split),
          "give layers alone, such as 10,12,8");
    }
    counts.push_back(static_cast<int32_t>(entry.layers));
  }
  return worker::split_layers(hparams.n_layer, counts);
}

Result<DType> parse_kv_type(const std::string& name) {
  return kv_type_from_name(name).with_context("--kv-type");
}

}  // namespace strata::serve
