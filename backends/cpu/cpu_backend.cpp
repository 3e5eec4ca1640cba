#include "backends/cpu/cpu_backend.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/matmul.h"
#include "runtime/memory/host_buffer.h"

namespace strata::cpu {
const KernelTable& kernels_of(Isa isa) {
  switch (isa.level) {
    case IsaLevel::avx512:
      return kernels_avx512();
    case IsaLevel::avx2:
      return kernels_avx2();
    case IsaLevel::scalar:
      break;
  }
  return kernels_scalar();
}

void WorkspaceSize::cover(const Plan& plan) {
  shared_bytes = std::max(shared_bytes, plan.workspace_bytes());
  thread_bytes = std::max(thread_bytes, plan.thread_scratch_bytes());
}

bool WorkspaceSize::covers(const Plan& plan) const {
  return plan.workspace_bytes() <= shared_bytes && plan.thread_scratch_bytes() <= thread_bytes;
}

uint64_t WorkspaceSize::total(int threads) const {
  return std::max<uint64_t>(shared_bytes + thread_bytes * static_cast<uint64_t>(threads), 64);
}

CpuBackend::CpuBackend(const Device& device, Isa isa, int threads, std::span<const int> cpus)
    : device_(device),
      kernels_(kernels_of(isa)),
      matmul_(matmul_kernels(isa)),
      pool_(threads, cpus) {}

CpuBackend::~CpuBackend() = default;

Status CpuBackend::compute(const GraphView& graph) {
  const Plan* plan = TRY(plan_of(graph));
  TRY(make_room(*plan));
  RunContext context{pool_, kernels_, matmul_};
  context.workspace = memory_->base();
  context.thread_scratch = memory_->base() + size_.shared_bytes;
  context.thread_scratch_bytes = size_.thread_bytes;
  return plan->run(context);
}

Result<const Plan*> CpuBackend::plan_of(const GraphView& graph) {
  if (graph.uid == 0) {
    unkept_ = TRY(Plan::compile(graph, pool_.thread_count()));
    return unkept_.get();
  }
  for (const CachedPlan& cached : plans_) {
    if (cached.uid == graph.uid) return cached.plan.get();
  }
  auto plan = TRY(Plan::compile(graph, pool_.thread_count()));
  plans_.push_back({graph.uid, std::move(plan)});
  return plans_.back().plan.get();
}

void CpuBackend::forget(uint64_t uid) {
  std::erase_if(plans_, [uid](const CachedPlan& cached) { return cached.uid == uid; });
}

Status CpuBackend::reserve(const GraphView& graph) {
  const std::unique_ptr<Plan> plan = TRY(Plan::compile(graph, pool_.thread_count()));
  return make_room(*plan);
}

// The workspace grows to the largest plan's and is shared by all: nothing in it outlives a run.
Status CpuBackend::make_room(const Plan& plan) {
  if (memory_ != nullptr && size_.covers(plan)) return ok_status();
  size_.cover(plan);
  memory_.reset();
  auto memory = host_buffer_type().allocate(size_.total(pool_.thread_count()));
  if (!memory.ok()) {
    size_ = {};
    return memory.status().with_context("workspace of the CPU backend");
  }
  memory_ = std::move(memory).value();
  return ok_status();
}

Status CpuBackend::write_async(const Tensor& tensor, uint64_t offset,
                               std::span<const std::byte> bytes) {
  return tensor.buffer->write(tensor, offset, bytes);
}

Status CpuBackend::read_async(const Tensor& tensor, uint64_t offset, std::span<std::byte> bytes) {
  return tensor.buffer->read(tensor, offset, bytes);
}

Result<bool> CpuBackend::copy_async(Backend& from, const Tensor& source, const Tensor& target) {
  if (source.buffer == nullptr || !source.buffer->type().is_host()) return false;
  TRY(from.synchronize());
  TRY(copy_tensor(source, target));
  return true;
}

}  // namespace strata::cpu
