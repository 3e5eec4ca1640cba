#include "runtime/sched/assignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace strata {
namespace {

constexpr int kNone = -1;

class Assigner {
 public:
  Assigner(const Graph& graph, std::span<const Device* const> devices,
           std::span<const NodePin> pins)
      : graph_(graph), devices_(devices), pins_(pins), backends_(graph.nodes().size(), kNone) {}

  Result<Assignment> run();

 private:
  void index_graph();
  Status assign_written();
  Status assign_pinned();
  void assign_by_sources();
  void spread(bool forwards, bool from_last);
  Status assign_rest();
  void assign_inputs();
  void assign_views();

  int last() const { return static_cast<int>(devices_.size()) - 1; }
  const Tensor& node(size_t i) const { return *graph_.nodes()[i]; }
  bool works(size_t i) const { return node(i).op != Op::view; }
  bool supports(int backend, const Tensor& node) const {
    return devices_[static_cast<size_t>(backend)]->supports(node);
  }
  bool reads(int backend, const BufferType& type) const {
    return devices_[static_cast<size_t>(backend)]->supports_buffer_type(type);
  }
  bool is_own_memory(int backend, const BufferType& type) const;
  // Placed by somebody else than the scheduler for this graph.
  const Buffer* placed(const Tensor* tensor) const;
  int home(const BufferType& type, const Tensor& node) const;
  int offloaded(int home_backend, const Tensor& node) const;
  uint64_t readable_bytes(int backend, const Tensor& node) const;
  Status nobody_runs(const Tensor& node) const;

  const Graph& graph_;
  const std::span<const Device* const> devices_;
  const std::span<const NodePin> pins_;
  std::vector<int> backends_;                             // by node
  std::vector<int> inputs_;                               // by input
  std::unordered_map<const Tensor*, size_t> node_index_;  // of the graph's nodes
  std::unordered_map<const Tensor*, size_t> input_index_;
};

bool Assigner::is_own_memory(int backend, const BufferType& type) const {
  const Device& device = *devices_[static_cast<size_t>(backend)];
  if (&device.compute_buffer_type() == &type) return true;
  const std::vector<const BufferType*> types = device.weight_buffer_types();
  return std::find(types.begin(), types.end(), &type) != types.end();
}

const Buffer* Assigner::placed(const Tensor* tensor) const {
  const Tensor* storage = storage_of(tensor);
  const bool own = node_index_.contains(storage) || input_index_.contains(storage);
  return own && storage->planned ? nullptr : storage->buffer;
}

// The device whose own memory it is; else the first that can read it; among those that can run the
// node at all.
int Assigner::home(const BufferType& type, const Tensor& node) const {
  for (int b = 0; b <= last(); ++b) {
    if (is_own_memory(b, type) && supports(b, node)) return b;
  }
  for (int b = 0; b <= last(); ++b) {
    if (reads(b, type) && supports(b, node)) return b;
  }
  return kNone;
}

int Assigner::offloaded(int home_backend, const Tensor& node) const {
  for (int b = 0; b < home_backend; ++b) {
    if (devices_[static_cast<size_t>(b)]->wants(node) && supports(b, node)) return b;
  }
  return home_backend;
}

Status Assigner::nobody_runs(const Tensor& node) const {
  std::string sources;
  for (const Tensor* source : node.sources) sources += "; " + describe(*source);
  std::string names;
  for (const Device* device : devices_) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", device->name());
  }
  return unimplemented(fmt::format("no device runs the node {} ({}) of sources{} (asked: {})",
                                   describe(node), op_name(node.op), sources, names));
}

Result<Assignment> Assigner::run() {
  index_graph();
  if (devices_.size() == 1) {
    for (size_t i = 0; i < backends_.size(); ++i) {
      if (works(i) && !supports(0, node(i))) return nobody_runs(node(i));
    }
    return Assignment{std::vector<int>(backends_.size(), 0),
                      std::vector<int>(graph_.inputs().size(), 0)};
  }
  TRY(assign_written());
  TRY(assign_pinned());
  assign_by_sources();
  spread(true, false);
  spread(false, false);
  spread(true, true);
  spread(false, true);
  TRY(assign_rest());
  assign_inputs();
  assign_views();
  return Assignment{std::move(backends_), std::move(inputs_)};
}

void Assigner::index_graph() {
  for (size_t i = 0; i < graph_.nodes().size(); ++i) node_index_.emplace(graph_.nodes()[i], i);
  for (size_t i = 0; i < graph_.inputs().size(); ++i) input_index_.emplace(graph_.inputs()[i], i);
}

Status Assigner::assign_written() {
  for (size_t i = 0; i < backends_.size(); ++i) {
    if (!works(i)) continue;
    const Buffer* target = placed(&node(i));
    if (target == nullptr) continue;
    backends_[i] = home(target->type(), node(i));
    if (backends_[i] == kNone) {
      return nobody_runs(node(i)).with_context(
          fmt::format("it writes to {} memory", target->type().name()));
    }
  }
  return ok_status();
}

Status Assigner::assign_pinned() {
  for (const NodePin& pin : pins_) {
    const auto found = node_index_.find(pin.node);
    if (found == node_index_.end() || backends_[found->second] != kNone) continue;
    if (!works(found->second)) continue;
    const Device& device = *devices_[static_cast<size_t>(pin.backend)];
    if (!device.supports(*pin.node)) {
      return unimplemented(fmt::format("node {} ({}) is pinned to {}, which cannot run it",
                                       describe(*pin.node), op_name(pin.node->op), device.name()));
    }
    backends_[found->second] = pin.backend;
  }
  return ok_status();
}

void Assigner::assign_by_sources() {
  for (size_t i = 0; i < backends_.size(); ++i) {
    if (!works(i) || backends_[i] != kNone) continue;
    const Buffer* largest = nullptr;
    uint64_t largest_bytes = 0;
    for (const Tensor* source : node(i).sources) {
      const Buffer* buffer = placed(source);
      if (buffer == nullptr || source->size_bytes() < largest_bytes) continue;
      largest = buffer;
      largest_bytes = source->size_bytes();
    }
    if (largest == nullptr) continue;
    backends_[i] = home(largest->type(), node(i));
    if (backends_[i] != kNone && largest->usage == BufferUsage::weights &&
        largest->type().is_host()) {
      backends_[i] = offloaded(backends_[i], node(i));
    }
  }
}

void Assigner::spread(bool forwards, bool from_last) {
  int current = kNone;
  for (size_t step = 0; step < backends_.size(); ++step) {
    const size_t i = forwards ? step : backends_.size() - 1 - step;
    if (!works(i)) continue;
    if (backends_[i] != kNone) {
      current = backends_[i] == last() && !from_last ? kNone : backends_[i];
    } else if (current != kNone && supports(current, node(i))) {
      backends_[i] = current;
    }
  }
}

uint64_t Assigner::readable_bytes(int backend, const Tensor& node) const {
  uint64_t sum = 0;
  for (const Tensor* source : node.sources) {
    const Buffer* buffer = placed(source);
    const auto made = node_index_.find(storage_of(source));
    const bool here = buffer != nullptr
                          ? reads(backend, buffer->type())
                          : made != node_index_.end() && backends_[made->second] == backend;
    if (here) sum += source->size_bytes();
  }
  return sum;
}

Status Assigner::assign_rest() {
  for (size_t i = 0; i < backends_.size(); ++i) {
    if (!works(i) || backends_[i] != kNone) continue;
    uint64_t best = 0;
    for (int b = 0; b <= last(); ++b) {
      if (!supports(b, node(i))) continue;
      const uint64_t readable = readable_bytes(b, node(i));
      if (backends_[i] != kNone && readable <= best) continue;
      backends_[i] = b;
      best = readable;
    }
    if (backends_[i] == kNone) return nobody_runs(node(i));
  }
  return ok_status();
}

void Assigner::assign_inputs() {
  inputs_.assign(graph_.inputs().size(), kNone);
  for (size_t i = 0; i < backends_.size(); ++i) {
    if (!works(i)) continue;
    for (const Tensor* source : node(i).sources) {
      const auto found = input_index_.find(storage_of(source));
      if (found != input_index_.end() && inputs_[found->second] == kNone) {
        inputs_[found->second] = backends_[i];
      }
    }
  }
  // Inputs that nobody reads.
  std::replace(inputs_.begin(), inputs_.end(), kNone, last());
}

void Assigner::assign_views() {
  for (size_t i = 0; i < backends_.size(); ++i) {
    if (works(i)) continue;
    const Tensor* storage = storage_of(&node(i));
    const auto made = node_index_.find(storage);
    const auto given = input_index_.find(storage);
    if (made != node_index_.end()) {
      backends_[i] = backends_[made->second];
    } else if (given != input_index_.end()) {
      backends_[i] = inputs_[given->second];
    } else {
      backends_[i] = last();
    }
  }
}

}  // namespace

Result<Assignment> assign_backends(const Graph& graph, std::span<const Device* const> devices,
                                   std::span<const NodePin> pins) {
  return Assigner(graph, devices, pins).run();
}

}  // namespace strata
