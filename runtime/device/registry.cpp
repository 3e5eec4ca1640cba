#include "runtime/device/registry.h"

#include <string>

namespace strata {

Status DeviceRegistry::add(std::unique_ptr<Device> device) {
  if (find(device->name()) != nullptr) {
    return Status(StatusCode::already_exists,
                  "two devices are named '" + std::string(device->name()) + "'");
  }
  devices_.push_back(std::move(device));
  return ok_status();
}

std::vector<Device*> DeviceRegistry::devices() const {
  std::vector<Device*> all;
  for (const auto& device : devices_) all.push_back(device.get());
  return all;
}

Device* DeviceRegistry::find(std::string_view name) const {
  for (const auto& device : devices_) {
    if (device->name() == name) return device.get();
  }
  return nullptr;
}

Device* DeviceRegistry::first(DeviceKind kind) const {
  for (const auto& device : devices_) {
    if (device->kind() == kind) return device.get();
  }
  return nullptr;
}

}  // namespace strata
