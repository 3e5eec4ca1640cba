// How a model is run in this process, as a person chooses it, and what follows from that.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/registry.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/hparams.h"
#include "runtime/model/layer_range.h"
#include "runtime/topology/thread_pins.h"

namespace strata::serve {

struct ModelOptions {
  std::string path;
  int threads = 0;                   // 0: one for each core that this process may use
  std::string pin = "auto";          // as parse_pin_mode() takes it
  std::string isa;                   // empty: the best
  std::string kv_type;               // as dtype_from_name() takes it
  std::optional<std::string> split;  // layers per stage, as parse_split() takes it; none: one stage
  bool mapped = false;               // weights stay in the file's mapping
};

// Where threads of `pools` stages in this process run. Errors: those of choose_pins().
Result<ThreadPins> pins_of(const ModelOptions& options, size_t pools);

// Errors: INVALID_ARGUMENT for options whose text means nothing.
Status check_model_options(const ModelOptions& options);

// The devices of this process, with the options' vector path. Errors: those of the device.
Result<std::unique_ptr<DeviceRegistry>> open_devices(const ModelOptions& options);

// The options' split of this model, or all of it as one range. Errors: those of parse_split();
// INVALID_ARGUMENT for a split that names workers.
Result<std::vector<LayerRange>> stage_ranges(const ModelOptions& options, const Hparams& hparams);

// f32, f16, q8_0 or q4_0. Errors: INVALID_ARGUMENT.
Result<DType> parse_kv_type(const std::string& name);

}  // namespace strata::serve
