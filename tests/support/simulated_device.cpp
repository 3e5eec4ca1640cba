#include "tests/support/simulated_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/human.h"
#include "runtime/base/mutex.h"
#include "runtime/memory/host_buffer.h"
#include "tests/support/reference_ops.h"

namespace strata::testing {
namespace {

constexpr int kPoison = 0xff;  // NaN as F32, -1 as I32

class SimulatedBuffer final : public Buffer {
 public:
  SimulatedBuffer(const BufferType& type, SimulatedCounters& counters, std::byte* base,
                  uint64_t size)
      : type_(type), counters_(counters), base_(base), bytes_(size, std::byte{kPoison}) {
    counters_.allocated_bytes += static_cast<int64_t>(size);
  }
  ~SimulatedBuffer() override {
    munmap(base_, std::max<size_t>(bytes_.size(), 1));
    counters_.allocated_bytes -= static_cast<int64_t>(bytes_.size());
  }

  const BufferType& type() const override { return type_; }
  std::byte* base() const override { return base_; }
  uint64_t size() const override { return bytes_.size(); }
  Status write(const Tensor& tensor, uint64_t offset, std::span<const std::byte> bytes) override {
    STRATA_CHECK(range_fits(offset, bytes.size(), tensor.size_bytes()), describe(tensor));
    if (!bytes.empty()) std::memcpy(real(tensor) + offset, bytes.data(), bytes.size());
    return ok_status();
  }
  Status read(const Tensor& tensor, uint64_t offset, std::span<std::byte> bytes) const override {
    STRATA_CHECK(range_fits(offset, bytes.size(), tensor.size_bytes()), describe(tensor));
    if (!bytes.empty()) std::memcpy(bytes.data(), real(tensor) + offset, bytes.size());
    return ok_status();
  }
  void fill(std::byte value) override { std::fill(bytes_.begin(), bytes_.end(), value); }

  std::byte* real(const Tensor& tensor) const {
    const uint64_t offset = static_cast<uint64_t>(tensor.data - base_);
    STRATA_CHECK(range_fits(offset, tensor.size_bytes(), bytes_.size()), describe(tensor));
    return bytes_.data() + offset;
  }

 private:
  const BufferType& type_;
  SimulatedCounters& counters_;
  std::byte* base_;
  mutable std::vector<std::byte> bytes_;
};

// Set once; waited for by any thread.
class Flag {
 public:
  void set() {
    const MutexLock lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  void wait() {
    const MutexLock lock(mutex_);
    while (!set_) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ STRATA_GUARDED_BY(mutex_) = false;
};

class SimulatedEvent final : public Event {
 public:
  Status synchronize() override {
    if (flag != nullptr) flag->wait();
    return ok_status();
  }
  std::shared_ptr<Flag> flag;  // of the newest recording; null: never recorded
};

// Jobs in order on a thread of its own. After an error, jobs are dropped until drain() reports it.
class Queue {
 public:
  using Job = std::function<Status()>;

  Queue() : thread_([this] { work(); }) {}
  ~Queue() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  // Jobs that others wait for run even after an error: `always`.
  void add(Job job, bool always = false) {
    const MutexLock lock(mutex_);
    jobs_.push_back({std::move(job), always});
    changed_.notify_all();
  }
  Status drain() {
    const MutexLock lock(mutex_);
    while (!jobs_.empty()) changed_.wait(mutex_);
    return std::exchange(error_, Status());
  }

 private:
  struct Entry {
    Job job;
    bool always;
  };

  void work() {
    while (true) {
      Entry* entry = nullptr;
      bool skip = false;
      {
        const MutexLock lock(mutex_);
        while (jobs_.empty() && !stopping_) changed_.wait(mutex_);
        if (jobs_.empty()) return;
        entry = &jobs_.front();
        skip = !error_.ok() && !entry->always;
      }
      const Status status = skip ? ok_status() : entry->job();
      const MutexLock lock(mutex_);
      if (error_.ok()) error_ = status;
      jobs_.pop_front();
      changed_.notify_all();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<Entry> jobs_ STRATA_GUARDED_BY(mutex_);
  Status error_ STRATA_GUARDED_BY(mutex_);
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

class SimulatedBackend final : public Backend {
 public:
  explicit SimulatedBackend(const SimulatedDevice& device) : device_(device) {
    if (device.options().has_queue) queue_ = std::make_unique<Queue>();
  }

  const Device& device() const override { return device_; }
  Status compute(const GraphView& graph) override {
    return submit([this, nodes = graph.nodes] { return run(nodes); });
  }
  Status synchronize() override { return queue_ ? queue_->drain() : ok_status(); }
  Status write_async(const Tensor& tensor, uint64_t offset,
                     std::span<const std::byte> bytes) override {
    return submit([&tensor, offset, bytes] { return tensor.buffer->write(tensor, offset, bytes); });
  }
  Status read_async(const Tensor& tensor, uint64_t offset, std::span<std::byte> bytes) override {
    return submit([&tensor, offset, bytes] { return tensor.buffer->read(tensor, offset, bytes); });
  }
  Result<bool> copy_async(Backend& from, const Tensor& source, const Tensor& target) override;

  std::unique_ptr<Event> create_event() override {
    return queue_ ? std::make_unique<SimulatedEvent>() : nullptr;
  }
  Status record(Event& event) override {
    auto flag = std::make_shared<Flag>();
    dynamic_cast<SimulatedEvent&>(event).flag = flag;
    queue_->add([flag] { return flag->set(), ok_status(); }, true);
    return ok_status();
  }
  Status wait(Event& event) override {
    const std::shared_ptr<Flag> flag = dynamic_cast<SimulatedEvent&>(event).flag;
    if (flag != nullptr) queue_->add([flag] { return flag->wait(), ok_status(); }, true);
    return ok_status();
  }

 private:
  Status submit(Queue::Job job) {
    if (!queue_) return job();
    queue_->add(std::move(job));
    return ok_status();
  }
  Status run(std::span<Tensor* const> nodes);
  Status check(const Tensor& node) const;

  const SimulatedDevice& device_;
  std::unique_ptr<Queue> queue_;
};

Status SimulatedBackend::check(const Tensor& node) const {
  if (!device_.supports(node)) {
    return internal_error("asked to run what it refuses: " + describe(node));
  }
  for (const Tensor* source : node.sources) {
    if (source->buffer == nullptr) return internal_error("not placed: " + describe(*source));
    if (!device_.supports_buffer_type(source->buffer->type())) {
      return internal_error(fmt::format("{} cannot read {} in {} memory", device_.name(),
                                        describe(*source), source->buffer->type().name()));
    }
  }
  return ok_status();
}

Status SimulatedBackend::run(std::span<Tensor* const> nodes) {
  SimulatedCounters& counters = device_.counters();
  const uint64_t running = ++counters.running;
  uint64_t most = counters.running_max;
  while (running > most && !counters.running_max.compare_exchange_weak(most, running)) {
  }
  ++counters.computes;
  std::this_thread::sleep_for(device_.options().compute_delay);
  Status status;
  for (const Tensor* node : nodes) {
    if (node->op == Op::view) continue;
    std::this_thread::sleep_for(device_.options().node_delay);
    status = check(*node);
    if (status.ok()) status = run_reference(*node, simulated_address);
    if (!status.ok()) break;
    ++counters.nodes;
  }
  --counters.running;
  return status;
}

Result<bool> SimulatedBackend::copy_async(Backend& from, const Tensor& source,
                                          const Tensor& target) {
  auto* maker = dynamic_cast<SimulatedBackend*>(&from);
  if (maker == nullptr || !device_.options().copies_directly) return false;
  ++device_.counters().direct_copies;
  const auto copy = [&source, &target] {
    std::memcpy(simulated_address(target), simulated_address(source), source.size_bytes());
    return ok_status();
  };
  if (!maker->queue_) {
    // Queued here, it would read the source too late; the caller has waited for the target.
    return copy().ok();
  }
  auto arrived = std::make_shared<Flag>();
  maker->queue_->add(copy);
  maker->queue_->add([arrived] { return arrived->set(), ok_status(); }, true);
  const auto arrival = [arrived] { return arrived->wait(), ok_status(); };
  if (queue_) {
    queue_->add(arrival, true);
  } else {
    TRY(arrival());
  }
  return true;
}

}  // namespace

class SimulatedDevice::Memory final : public BufferType {
 public:
  Memory(const SimulatedDeviceOptions& options, SimulatedCounters& counters)
      : options_(options), name_(options.name + " memory"), counters_(counters) {}

  std::string_view name() const override { return name_; }
  uint64_t alignment() const override { return 256; }
  uint64_t max_size() const override { return options_.max_buffer_bytes; }
  bool is_host() const override { return false; }
  uint64_t free_bytes() const {
    const uint64_t taken = static_cast<uint64_t>(counters_.allocated_bytes.load());
    return options_.total_bytes - std::min(options_.total_bytes, taken);
  }
  Result<std::unique_ptr<Buffer>> allocate(uint64_t size) const override {
    if (size > options_.max_buffer_bytes || size > free_bytes()) {
      return resource_exhausted(fmt::format(
          "{} needs {}, has {} free of {}, at most {} in one buffer", options_.name,
          human_bytes(size), human_bytes(free_bytes()), human_bytes(options_.total_bytes),
          human_bytes(std::min(options_.max_buffer_bytes, options_.total_bytes))));
    }
    void* base = mmap(nullptr, std::max<uint64_t>(size, 1), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return resource_exhausted("no address space");
    return std::unique_ptr<Buffer>(
        new SimulatedBuffer(*this, counters_, static_cast<std::byte*>(base), size));
  }

 private:
  const SimulatedDeviceOptions& options_;
  const std::string name_;
  SimulatedCounters& counters_;
};

SimulatedDevice::SimulatedDevice(SimulatedDeviceOptions options,
                                 std::shared_ptr<SimulatedCounters> counters)
    : options_(std::move(options)),
      counters_(counters ? std::move(counters) : std::make_shared<SimulatedCounters>()),
      memory_(std::make_unique<Memory>(options_, *counters_)) {}

SimulatedDevice::~SimulatedDevice() = default;

DeviceMemory SimulatedDevice::memory() const {
  return {memory_->free_bytes(), options_.total_bytes};
}

const BufferType& SimulatedDevice::compute_buffer_type() const {
  if (options_.host_memory) return host_buffer_type();
  return *memory_;
}

std::vector<const BufferType*> SimulatedDevice::weight_buffer_types() const {
  return {&compute_buffer_type()};
}

bool SimulatedDevice::supports(const Tensor& node) const {
  return !options_.refused.contains(node.op) && reference_supports(node);
}

bool SimulatedDevice::supports_buffer_type(const BufferType& type) const {
  return &type == &compute_buffer_type() || (options_.reads_host && type.is_host());
}

Result<std::unique_ptr<Backend>> SimulatedDevice::create_backend(const BackendOptions&) const {
  return std::unique_ptr<Backend>(new SimulatedBackend(*this));
}

std::byte* simulated_address(const Tensor& tensor) {
  const auto* buffer = dynamic_cast<const SimulatedBuffer*>(tensor.buffer);
  return buffer != nullptr ? buffer->real(tensor) : tensor.data;
}

}  // namespace strata::testing
