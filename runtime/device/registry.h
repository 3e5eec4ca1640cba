// The devices of this process, in the order in which they were added.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/device/device.h"

namespace strata {

// Owns the devices. Threads: filled by one thread, then read by any.
class DeviceRegistry {
 public:
  // Errors: ALREADY_EXISTS if a device of that name is there.
  Status add(std::unique_ptr<Device> device);

  std::vector<Device*> devices() const;
  Device* find(std::string_view name) const;
  // The first of the kind, or null.
  Device* first(DeviceKind kind) const;

 private:
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace strata
