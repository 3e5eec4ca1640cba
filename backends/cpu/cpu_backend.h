// CpuBackend: runs graphs on the cores of this machine.
//
// compute() compiles a graph to a plan the first time it sees its uid, and keeps the plan until
// forget(); after that a run allocates nothing. Everything is done when a call returns.
// Threads: one at a time; it is thread 0 of the pool that the backend owns.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/isa.h"
#include "backends/cpu/plan.h"
#include "runtime/device/device.h"

namespace strata::cpu {

// What plans take besides tensors: the largest of each part, since nothing outlives a run.
struct WorkspaceSize {
  uint64_t shared_bytes = 0;
  uint64_t thread_bytes = 0;  // for each thread

  void cover(const Plan& plan);
  bool covers(const Plan& plan) const;
  uint64_t total(int threads) const;
};

// The kernels of a vector path. Requires: the processor has it.
const KernelTable& kernels_of(Isa isa);

class CpuBackend final : public Backend {
 public:
  // `cpus`: see BackendOptions. Requires: threads >= 1, the processor has the vector path, `device`
  // outlives the backend.
  CpuBackend(const Device& device, Isa isa, int threads, std::span<const int> cpus = {});
  ~CpuBackend() override;

  const Device& device() const override { return device_; }

  // Errors: UNIMPLEMENTED for a node that the device does not support, RESOURCE_EXHAUSTED when the
  // workspace cannot be had, INVALID_ARGUMENT for ids, cells or positions out of range.
  Status compute(const GraphView& graph) override;
  Status reserve(const GraphView& graph) override;
  void forget(uint64_t uid) override;
  uint64_t workspace_bytes() const override { return memory_ == nullptr ? 0 : memory_->size(); }
  Status synchronize() override { return ok_status(); }
  Status write_async(const Tensor& tensor, uint64_t offset,
                     std::span<const std::byte> bytes) override;
  Status read_async(const Tensor& tensor, uint64_t offset, std::span<std::byte> bytes) override;
  Result<bool> copy_async(Backend& from, const Tensor& source, const Tensor& target) override;

  // Compiled plans that are kept.
  size_t plan_count() const { return plans_.size(); }
  int thread_count() const { return pool_.thread_count(); }

 private:
  struct CachedPlan {
    uint64_t uid = 0;
    std::unique_ptr<Plan> plan;
  };

  Result<const Plan*> plan_of(const GraphView& graph);
  Status make_room(const Plan& plan);

  const Device& device_;
  const KernelTable& kernels_;
  const MatmulKernels& matmul_;
  ThreadPool pool_;
  std::vector<CachedPlan> plans_;   // of the graphs that live: see forget()
  std::unique_ptr<Plan> unkept_;    // of a graph without a uid, during its run
  std::unique_ptr<Buffer> memory_;  // workspace, then the threads' scratch
  WorkspaceSize size_;
};

}  // namespace strata::cpu
