#include "runtime/sched/local_scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace strata {
namespace {

std::vector<const BufferType*> compute_types(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<const BufferType*> types;
  for (const std::unique_ptr<Backend>& backend : backends) {
    types.push_back(&backend->device().compute_buffer_type());
  }
  return types;
}

Status check_size(const Tensor& tensor, size_t size) {
  if (tensor.size_bytes() == size) return ok_status();
  return invalid_argument(
      fmt::format("{} takes {} bytes, given {}", describe(tensor), tensor.size_bytes(), size));
}

}  // namespace

LocalScheduler::LocalScheduler(std::vector<std::unique_ptr<Backend>> backends,
                               const SchedulerOptions& options)
    : options_(options), allocator_(compute_types(backends)) {
  for (std::unique_ptr<Backend>& backend : backends) {
    devices_.push_back(&backend->device());
    Lane& added = lanes_.emplace_back();
    added.ready = backend->create_event();
    added.backend = std::move(backend);
  }
  for (int a = 0; a < backend_count(); ++a) {
    for (int b = 0; b < backend_count(); ++b) {
      const Device& left = lane(a).backend->device();
      const Device& right = lane(b).backend->device();
      if (a != b && (left.supports_buffer_type(right.compute_buffer_type()) ||
                     right.supports_buffer_type(left.compute_buffer_type()))) {
        lane(a).shares.push_back(b);
      }
    }
  }
}

LocalScheduler::~LocalScheduler() {
  // Nothing may run in memory that is about to go.
  for (Lane& each : lanes_) {
    if (each.busy) static_cast<void>(each.backend->synchronize().ok());
  }
  forget_all_places();
}

// No graph keeps an address in memory that goes.
void LocalScheduler::forget_all_places() {
  std::vector<const Buffer*> all;
  for (int b = 0; b < backend_count(); ++b) {
    for (const Buffer* buffer : allocator_.buffers(b)) all.push_back(buffer);
  }
  forget_places(all);
}

void LocalScheduler::pin(const Tensor& node, int backend_index) {
  STRATA_CHECK(backend_index >= 0 && backend_index < backend_count(), "a pin to no backend");
  pins_.push_back({&node, backend_index});
}

LocalScheduler::Plan* LocalScheduler::find(const Graph& graph) {
  Plan* plan = nullptr;
  if (last_plan_ != nullptr && last_plan_->graph == &graph) {
    plan = last_plan_;
  } else {
    const auto found = plans_.find(&graph);
    if (found == plans_.end()) return nullptr;
    plan = found->second.get();
  }
  const bool same_graph = !plan->lifetime.expired() && plan->node_count == graph.nodes().size() &&
                          plan->output_count == graph.outputs().size();
  return same_graph ? plan : nullptr;
}

Result<std::unique_ptr<LocalScheduler::Plan>> LocalScheduler::make_plan(const Graph& graph) const {
  auto plan = std::make_unique<Plan>();
  plan->graph = &graph;
  plan->lifetime = graph.lifetime();
  plan->node_count = graph.nodes().size();
  plan->output_count = graph.outputs().size();
  const Assignment assignment = TRY(assign_backends(graph, devices_, pins_));
  plan->split = split_graph(graph, assignment, devices_, options_.n_copies);
  plan->allocation = TRY(allocator_.plan(plan->split.request));
  for (const Split& split : plan->split.splits) {
    plan->uids.emplace_back(split.nodes.size());
    std::vector<std::unique_ptr<Event>>& events = plan->read_done.emplace_back();
    for (size_t set = 0; set < split.nodes.size(); ++set) {
      const bool pipelined = options_.n_copies > 1 && !split.inputs.empty();
      events.push_back(pipelined ? lane(split.backend).backend->create_event() : nullptr);
    }
  }
  return plan;
}

Result<LocalScheduler::Plan*> LocalScheduler::plan_for(const Graph& graph) {
  if (Plan* known = find(graph)) return known;
  std::unique_ptr<Plan> fresh = TRY(make_plan(graph));
  std::erase_if(plans_, [&](const auto& entry) {
    const bool gone = entry.second->lifetime.expired() || entry.first == &graph;
    if (gone && entry.second.get() == last_plan_) last_plan_ = nullptr;
    if (gone) forget_parts(*entry.second);
    return gone;
  });
  Plan* plan = fresh.get();
  plans_.emplace(&graph, std::move(fresh));
  return plan;
}

void LocalScheduler::forget_parts(const Plan& plan) {
  for (size_t s = 0; s < plan.uids.size(); ++s) {
    for (const uint64_t uid : plan.uids[s]) {
      if (uid != 0) lane(plan.split.splits[s].backend).backend->forget(uid);
    }
  }
}

// Addresses in these buffers are of no use from now on; the graphs are placed anew when they come
// again.
void LocalScheduler::forget_places(std::span<const Buffer* const> given_up) {
  const auto forget = [&](Tensor& tensor) {
    if (!tensor.planned) return false;
    if (std::find(given_up.begin(), given_up.end(), tensor.buffer) == given_up.end()) return false;
    tensor.buffer = nullptr;
    return true;
  };
  for (auto& [graph, plan] : plans_) {
    if (plan->lifetime.expired()) continue;
    // What it reads of another graph may be among the addresses.
    bool any = !given_up.empty() && plan->allocation.pins_any();
    for (const AllocationInput& input : plan->split.request.inputs) any |= forget(*input.tensor);
    for (const AllocationStep& step : plan->split.request.steps) any |= forget(*step.result);
    if (!any) continue;
    plan->placed = false;
    plan->moved = true;
  }
}

Status LocalScheduler::grow(const AllocationPlan& allocation) {
  if (!allocator_.must_grow(allocation)) return ok_status();
  TRY(synchronize());  // nothing may run in memory that moves
  forget_places(allocator_.outgrown(allocation));
  return allocator_.grow(allocation).status();
}

Status LocalScheduler::place(Plan& plan) {
  TRY(grow(plan.allocation));
  allocator_.place(plan.allocation, plan.split.request);
  for (const StandIn& stand_in : plan.split.stand_ins) {
    stand_in.tensor->buffer = stand_in.original->buffer;
    stand_in.tensor->data = stand_in.original->data;
  }
  for (Tensor* view : plan.split.copied_views) place_view(*view);
  forget_parts(plan);
  for (std::vector<uint64_t>& uids : plan.uids) {
    for (uint64_t& uid : uids) uid = next_uid_++;
  }
  plan.placed = true;
  return ok_status();
}

Status LocalScheduler::reserve(std::span<Graph* const> graphs) {
  for (const Graph* graph : graphs) {
    const Plan* plan = TRY(plan_for(*graph));
    TRY(grow(plan->allocation));
    for (const Split& split : plan->split.splits) {
      TRY(lane(split.backend).backend->reserve({split.nodes.front(), 0}));
    }
  }
  return ok_status();
}

Status LocalScheduler::prepare(Graph& graph) {
  Plan* plan = TRY(plan_for(graph));
  if (plan->placed) return ok_status();
  if (plan->moved && plan->allocation.pins_any()) {
    // What it reads of another graph may have moved since it was planned.
    forget_parts(*plan);
    if (last_plan_ == plan) last_plan_ = nullptr;
    plans_.erase(&graph);
    plan = TRY(plan_for(graph));
  }
  return place(*plan);
}

int LocalScheduler::owner_of(const Tensor& tensor) const {
  return tensor.buffer != nullptr ? allocator_.index_of(tensor.buffer) : -1;
}

Status LocalScheduler::set_input(Tensor& input, std::span<const std::byte> bytes) {
  if (input.buffer == nullptr) {
    return failed_precondition("input " + describe(input) +
                               " is written before its graph is prepared");
  }
  TRY(check_size(input, bytes.size()));
  const int owner = owner_of(input);
  if (owner < 0 || lane(owner).ready == nullptr) {
    if (owner >= 0) TRY(wait_for_sharers(owner));
    return input.buffer->write(input, 0, bytes);
  }
  TRY(wait_for_sharers(owner));
  if (staging_used_ == staging_.size()) staging_.emplace_back();
  std::vector<std::byte>& held = staging_[staging_used_++];
  held.assign(bytes.begin(), bytes.end());
  lane(owner).busy = true;
  return lane(owner).backend->write_async(input, 0, held);
}

Status LocalScheduler::compute(Graph& graph) {
  TRY(compute_async(graph));
  return synchronize();
}

Status LocalScheduler::compute_async(Graph& graph) {
  Plan* plan = find(graph);
  if (plan == nullptr || !plan->placed) {
    TRY(prepare(graph));
    plan = find(graph);
  }
  const Status status = run(*plan);
  last_plan_ = plan;
  return status.ok() ? status : fail(status);
}

Status LocalScheduler::run(Plan& plan) {
  const size_t set = plan.next_set;
  plan.next_set = (set + 1) % static_cast<size_t>(options_.n_copies);
  for (size_t s = 0; s < plan.split.splits.size(); ++s) TRY(run_split(plan, s, set));
  return ok_status();
}

Status LocalScheduler::run_split(Plan& plan, size_t split_index, size_t set) {
  const Split& split = plan.split.splits[split_index];
  Lane& here = lane(split.backend);
  TRY(wait_for_sharers(split.backend));
  for (const SplitInput& input : split.inputs) TRY(bring(plan, split_index, input, set));
  here.busy = true;
  const Status status =
      here.backend->compute(GraphView{split.nodes[set], plan.uids[split_index][set]});
  if (!status.ok()) return status.with_context(here.backend->device().name());
  Event* done = plan.read_done[split_index][set].get();
  return done != nullptr ? here.backend->record(*done) : ok_status();
}

// `waiting` continues only after what is queued on `other` so far.
Status LocalScheduler::wait_for(int waiting, int other) {
  Lane& there = lane(other);
  if (!there.busy) return ok_status();
  if (there.ready == nullptr) return there.backend->synchronize();
  TRY(there.backend->record(*there.ready));
  return let_wait(waiting, there.ready.get(), other);
}

// `waiting` continues only after the event; on the host if it has no queue of its own.
Status LocalScheduler::let_wait(int waiting, Event* event, int recorded_on) {
  if (event == nullptr) return lane(recorded_on).backend->synchronize();
  if (lane(waiting).ready == nullptr) return event->synchronize();
  lane(waiting).busy = true;
  return lane(waiting).backend->wait(*event);
}

Status LocalScheduler::wait_for_sharers(int index) {
  for (const int other : lane(index).shares) TRY(wait_for(index, other));
  return ok_status();
}

Status LocalScheduler::bring(Plan& plan, size_t split_index, const SplitInput& input, size_t set) {
  const int target = plan.split.splits[split_index].backend;
  const Tensor& copy = *input.copy(set);
  const int from = input.from >= 0 ? input.from : owner_of(*input.source);
  if (from < 0) return bring_from_elsewhere(target, *input.source, copy);
  if (input.persistent && last_plan_ == &plan) {
    TRY(let_wait(from, plan.read_done[split_index][set].get(), target));
  } else {
    TRY(wait_for(from, target));
  }
  lane(from).busy = lane(target).busy = true;
  if (TRY(lane(target).backend->copy_async(*lane(from).backend, *input.source, copy))) {
    return ok_status();
  }
  // The wait above is in the maker's queue, so that this covers the reader, too.
  TRY(lane(from).backend->synchronize());
  return copy_tensor(*input.source, copy);
}

Status LocalScheduler::bring_from_elsewhere(int target, const Tensor& source, const Tensor& copy) {
  const Buffer& buffer = *source.buffer;
  if (buffer.type().is_host() && buffer.usage == BufferUsage::weights) {
    // Nobody changes weights: no need to wait for anything.
    lane(target).busy = true;
    return lane(target).backend->write_async(copy, 0, {source.data, copy.size_bytes()});
  }
  // A cache: whoever owns it may still be writing.
  for (Lane& each : lanes_) {
    if (each.busy) TRY(each.backend->synchronize());
  }
  return copy_tensor(source, copy);
}

Status LocalScheduler::synchronize() {
  Status first;
  for (Lane& each : lanes_) {
    if (!each.busy) continue;
    const Status status = each.backend->synchronize();
    each.busy = false;
    if (first.ok() && !status.ok()) first = status.with_context(each.backend->device().name());
  }
  staging_used_ = 0;
  return first;
}

// Nothing goes on after an error; its cause is what the caller gets.
Status LocalScheduler::fail(Status error) {
  static_cast<void>(synchronize().ok());
  return error;
}

Status LocalScheduler::read_output(const Tensor& output, std::span<std::byte> bytes) {
  if (output.buffer == nullptr) {
    return failed_precondition("output " + describe(output) + " is read before its graph ran");
  }
  TRY(check_size(output, bytes.size()));
  TRY(synchronize());
  return output.buffer->read(output, 0, bytes);
}

Status LocalScheduler::read_output_async(const Tensor& output, std::span<std::byte> bytes) {
  const int owner = owner_of(output);
  if (owner < 0 || lane(owner).ready == nullptr) return read_output(output, bytes);
  TRY(check_size(output, bytes.size()));
  TRY(wait_for_sharers(owner));
  lane(owner).busy = true;
  return lane(owner).backend->read_async(output, 0, bytes);
}

Status LocalScheduler::reset() {
  const Status status = synchronize();
  forget_all_places();
  for (const auto& [graph, plan] : plans_) forget_parts(*plan);
  plans_.clear();
  last_plan_ = nullptr;
  pins_.clear();
  return status;
}

std::vector<SchedulerMemory> LocalScheduler::memory() const {
  std::vector<SchedulerMemory> result;
  for (int b = 0; b < backend_count(); ++b) {
    result.push_back({std::string(backend(b).device().name()),
                      allocator_.held_bytes(b) + backend(b).workspace_bytes()});
  }
  return result;
}

Result<std::string> LocalScheduler::describe_splits(Graph& graph) {
  const Plan* plan = TRY(plan_for(graph));
  return strata::describe_splits(graph, plan->split, devices_);
}

}  // namespace strata
