// The processor of this machine as a Device.
#pragma once

#include <memory>
#include <string>

#include "runtime/device/device.h"

namespace strata::cpu {

struct CpuOptions {
  // The vector path as choose_isa() takes it; empty for the best.
  std::string isa;
};

// Named "CPU". Weights live in packed memory (packed_buffer_type.h) or, slower but with the same
// bits, in host memory and mapped files. Errors: those of choose_isa().
Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options);

// The processor's name as the kernel gives it, or "CPU".
std::string processor_name();
// Physical memory, less what limits of control groups and of the process (ulimit -v) take away.
// `root`: where to look for /proc and /sys; tests say.
DeviceMemory host_memory(const std::string& root = "");

}  // namespace strata::cpu
