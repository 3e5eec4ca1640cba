// The one place that names every backend.
//
// Registration is an explicit call: static constructors would be dropped from static libraries, and
// run in no defined order. Threads: as DeviceRegistry.
#pragma once

#include <string>

#include "runtime/device/registry.h"

namespace strata {

struct BackendsOptions {
  // The CPU's vector path (scalar, avx2, avx512); empty for the best that the processor has.
  std::string isa;
};

// Adds the devices of this machine. Errors: those of the devices, ALREADY_EXISTS if called twice on
// one registry.
Status register_all(DeviceRegistry& registry, const BackendsOptions& options);

}  // namespace strata
