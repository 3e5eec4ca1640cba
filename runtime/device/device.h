// Device and Backend: the seam between the runtime and whatever computes.
//
// A Device describes a piece of hardware: what it is, its memory, which nodes it can run and from
// which kinds of memory. A Backend is a running instance of it with a queue of its own: it runs
// parts of graphs, copies tensors, and records events. The runtime knows these interfaces only;
// backends/ implements them and registers devices by an explicit call (backends/backends.h).
//
// Threads: Device from any thread. A Backend belongs to one thread at a time; its work may go on
// after a call returns, until synchronize().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/memory/buffer.h"

namespace strata {

enum class DeviceKind : uint8_t { cpu, accelerator, gpu, remote };
std::string_view device_kind_name(DeviceKind kind);

struct DeviceMemory {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

// What a probe measured; zero where it has not run.
struct DeviceSpeed {
  double read_bytes_per_s = 0;  // weights streamed from memory
  double int8_ops_per_s = 0;    // multiply and add count as two
  double f32_ops_per_s = 0;
};

class Backend;

// A point in a backend's queue. It may be recorded again: who waits already waits for the earlier
// point. One that was never recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the calling thread until the point is reached.
  virtual Status synchronize() = 0;
};

struct BackendOptions {
  int threads = 0;  // CPU only; 0: one for each core that this process may use
  // CPU only: thread i runs on processor cpus[i]; those beyond the list, and all without one, run
  // anywhere.
  std::vector<int> cpus = {};
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;         // short and unique, such as "CPU" or "CUDA0"
  virtual std::string_view description() const = 0;  // for people: the processor's name
  virtual DeviceKind kind() const = 0;
  virtual DeviceMemory memory() const = 0;

  // Memory for activations and caches.
  virtual const BufferType& compute_buffer_type() const = 0;
  // Memory for weights, best first; each can be read by the device's mul_mat and get_rows.
  virtual std::vector<const BufferType*> weight_buffer_types() const = 0;
  // Host memory from which the device copies fastest; null if ordinary memory is as good.
  virtual const BufferType* pinned_buffer_type() const { return nullptr; }
  // A buffer over host memory (a mapped file), or null if the device cannot use it.
  virtual Result<std::unique_ptr<Buffer>> wrap_host(std::span<const std::byte>,
                                                    std::shared_ptr<const void>) const {
    return std::unique_ptr<Buffer>();
  }

  // Whether the device can run this node with its op, types and shapes. Must not depend on where
  // the sources are; that is supports_buffer_type.
  virtual bool supports(const Tensor& node) const = 0;
  // Whether nodes on this device can read sources from such memory.
  virtual bool supports_buffer_type(const BufferType& type) const = 0;
  // Whether it pays to copy weights here for this node although they live elsewhere.
  virtual bool wants(const Tensor&) const { return false; }

  virtual Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) const = 0;
  // Bytes that a backend with these options takes besides the tensors, once it is to run each of
  // these parts of graphs. Requires: weights and caches are placed or described; results need not.
  virtual Result<uint64_t> workspace_bytes(std::span<const GraphView>,
                                           const BackendOptions&) const {
    return uint64_t{0};
  }
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const Device& device() const = 0;

  // Runs the nodes in order. May return before they are done; errors of the work itself then come
  // from synchronize(). Requires: all tensors are placed, in memory that the device supports.
  virtual Status compute(const GraphView& graph) = 0;
  // Makes the workspace large enough for a part of a graph like this one, whose results need not be
  // placed yet. Errors: RESOURCE_EXHAUSTED.
  virtual Status reserve(const GraphView&) { return ok_status(); }
  // Drops what compute() keeps under a number (GraphView::uid): its part of a graph is gone, or its
  // tensors lie elsewhere and the part has another number. Does nothing for one that it never saw.
  virtual void forget(uint64_t) {}
  // Bytes held besides the tensors.
  virtual uint64_t workspace_bytes() const { return 0; }
  virtual Status synchronize() = 0;

  // In queue order with compute(). `bytes` must stay valid until synchronize().
  virtual Status write_async(const Tensor& tensor, uint64_t offset,
                             std::span<const std::byte> bytes) = 0;
  virtual Status read_async(const Tensor& tensor, uint64_t offset, std::span<std::byte> bytes) = 0;
  // Copies source, which lives in `from`'s memory, into target, in this backend's memory: after the
  // work queued on `from`, before later work on `from` (which may overwrite the source) and before
  // later work here. It does not wait for work queued here that may still use the target: the
  // caller lets `from` wait for that first. If `from` has no queue, the source has been read when
  // this returns. False if there is no direct way: the caller then goes through the host.
  virtual Result<bool> copy_async(Backend& from, const Tensor& source, const Tensor& target) = 0;

  // Null where the backend has no queue: everything is done when a call returns.
  virtual std::unique_ptr<Event> create_event() { return nullptr; }
  virtual Status record(Event&) { return ok_status(); }
  // Makes later work on this backend wait for the event, which may be another backend's.
  virtual Status wait(Event&) { return ok_status(); }
};

// The bytes of `source` into `target`, of equal type and shape, whatever memory they are in; done
// when it returns. Synchronises nothing: the caller does.
Status copy_tensor(const Tensor& source, const Tensor& target);

}  // namespace strata
