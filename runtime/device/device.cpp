#include "runtime/device/device.h"

#include "runtime/base/check.h"

namespace strata {

std::string_view device_kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::accelerator:
      return "accelerator";
    case DeviceKind::gpu:
      return "gpu";
    case DeviceKind::remote:
      return "remote";
  }
  return "unknown";
}

Status copy_tensor(const Tensor& source, const Tensor& target) {
  STRATA_CHECK(source.dtype == target.dtype && source.same_shape(target),
               "copy of " + describe(source) + " into " + describe(target));
  STRATA_CHECK(source.is_contiguous() && target.is_contiguous(), "copy needs dense tensors");
  const uint64_t size = source.size_bytes();
  if (size == 0) return ok_status();
  if (source.buffer->type().is_host()) {
    return target.buffer->write(target, 0, {source.data, static_cast<size_t>(size)});
  }
  if (target.buffer->type().is_host()) {
    return source.buffer->read(source, 0, {target.data, static_cast<size_t>(size)});
  }
  std::vector<std::byte> staging(size);
  TRY(source.buffer->read(source, 0, staging));
  return target.buffer->write(target, 0, staging);
}

}  // namespace strata
