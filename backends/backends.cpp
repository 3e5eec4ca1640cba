#include "backends/backends.h"

#include <utility>

#include "backends/cpu/cpu_device.h"

namespace strata {

Status register_all(DeviceRegistry& registry, const BackendsOptions& options) {
  auto cpu = TRY(cpu::make_cpu_device({.isa = options.isa}));
  return registry.add(std::move(cpu));
}

}  // namespace strata
