// LocalScheduler: the Scheduler over backends of this process. See scheduler.h for what it does.
//
// Order between backends. Every backend has a queue, or none and then everything is done when a
// call returns. Nothing here waits on the host if both ends of a copy have queues:
//   - a copy is queued on the maker of the tensor, behind its work (Backend::copy_async);
//   - before that, the maker waits until the reader is done with the copy's memory: until the split
//     that read this set of copies last, if the copy has memory of its own and no other plan ran
//     since, else until everything queued on the reader;
//   - backends that can read each other's memory hand over: a split waits for all of them first.
// Where an end has no queue, or there is no direct way, the host waits instead.
//
// Threads: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/memory/graph_allocator.h"
#include "runtime/sched/assignment.h"
#include "runtime/sched/scheduler.h"
#include "runtime/sched/splitter.h"

namespace strata {

class LocalScheduler final : public Scheduler {
 public:
  LocalScheduler(std::vector<std::unique_ptr<Backend>> backends, const SchedulerOptions& options);
  ~LocalScheduler() override;

  int backend_count() const override { return static_cast<int>(lanes_.size()); }
  Backend& backend(int index) const override { return *lane(index).backend; }
  void pin(const Tensor& node, int backend_index) override;

  Status reserve(std::span<Graph* const> graphs) override;
  Status prepare(Graph& graph) override;
  Status set_input(Tensor& input, std::span<const std::byte> bytes) override;
  Status compute(Graph& graph) override;
  Status compute_async(Graph& graph) override;
  Status synchronize() override;
  Status read_output(const Tensor& output, std::span<std::byte> bytes) override;
  Status read_output_async(const Tensor& output, std::span<std::byte> bytes) override;
  Status reset() override;

  std::vector<SchedulerMemory> memory() const override;
  Result<std::string> describe_splits(Graph& graph) override;

 private:
  // A backend and what the scheduler knows of its queue.
  struct Lane {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Event> ready;  // recorded whenever others are to wait; null without a queue
    std::vector<int> shares;       // lanes whose memory it reads directly, or that read its own
    bool busy = false;             // something was started since the last synchronize()
  };
  struct Plan {
    const Graph* graph = nullptr;
    std::weak_ptr<const void> lifetime;
    size_t node_count = 0;
    size_t output_count = 0;
    SplitPlan split;
    AllocationPlan allocation;
    bool placed = false;
    bool moved = false;                       // was placed, until some of its memory was given up
    std::vector<std::vector<uint64_t>> uids;  // by split and set
    std::vector<std::vector<std::unique_ptr<Event>>> read_done;  // by split and set; may be null
    size_t next_set = 0;
  };

  Lane& lane(int index) { return lanes_[static_cast<size_t>(index)]; }
  const Lane& lane(int index) const { return lanes_[static_cast<size_t>(index)]; }

  Plan* find(const Graph& graph);
  Result<Plan*> plan_for(const Graph& graph);
  Result<std::unique_ptr<Plan>> make_plan(const Graph& graph) const;
  // Backends keep nothing for the plan's numbers any more.
  void forget_parts(const Plan& plan);
  Status grow(const AllocationPlan& allocation);
  Status place(Plan& plan);
  void forget_all_places();
  void forget_places(std::span<const Buffer* const> given_up);

  Status run(Plan& plan);
  Status run_split(Plan& plan, size_t split_index, size_t set);
  Status bring(Plan& plan, size_t split_index, const SplitInput& input, size_t set);
  Status bring_from_elsewhere(int target, const Tensor& source, const Tensor& copy);
  Status wait_for(int waiting, int other);
  Status wait_for_sharers(int index);
  Status let_wait(int waiting, Event* event, int recorded_on);
  Status fail(Status error);
  int owner_of(const Tensor& tensor) const;

  const SchedulerOptions options_;
  std::vector<Lane> lanes_;
  std::vector<const Device*> devices_;  // by lane
  GraphAllocator allocator_;
  std::vector<NodePin> pins_;
  std::unordered_map<const Graph*, std::unique_ptr<Plan>> plans_;
  Plan* last_plan_ = nullptr;  // the one that ran last
  uint64_t next_uid_ = 1;
  // Bytes of inputs on their way to a backend with a queue; reused after synchronize().
  std::deque<std::vector<std::byte>> staging_;
  size_t staging_used_ = 0;
};

}  // namespace strata
