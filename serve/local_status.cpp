// LocalEngine::status(): its stages as nodes.
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/base/base_name.h"
#include "serve/local_engine.h"

namespace strata::serve {
namespace {

remote::NodeStatus stage_status(const worker::LocalStage& stage, size_t index, size_t count) {
  const StageModel& model = stage.model();
  const worker::StageCounters counters = stage.counters();
  remote::NodeStatus node;
  node.name = count == 1 ? "this process" : fmt::format("this process, stage {}", index);
  node.state = "ready";
  for (const Device* device : model.options().devices) {
    node.devices.push_back({.name = std::string(device->name()),
                            .description = std::string(device->description()),
                            .kind = device->kind(),
                            .memory = device->memory(),
                            .speed = {}});
  }
  node.range = model.options().range;
  node.stage_index = static_cast<uint32_t>(index);
  node.memory = {.weights_bytes = model.weights_bytes(),
                 .cache_bytes = model.cache_bytes(),
                 .compute_bytes = model.compute_bytes(),
                 .received_bytes = 0};
  node.used_bytes = node.memory.weights_bytes + node.memory.cache_bytes + node.memory.compute_bytes;
  node.steps_done = counters.steps_done;
  if (counters.steps_done > 0) {
    node.step_us =
        static_cast<double>(counters.busy_ns) / 1e3 / static_cast<double>(counters.steps_done);
  }
  node.process_id = static_cast<uint64_t>(getpid());
  return node;
}

}  // namespace

remote::ClusterStatus LocalEngine::status() const {
  const coordinator::EngineCounters counters = engine_.counters();
  remote::ClusterStatus status;
  status.state = "ready";
  status.epoch = shape_.epoch;
  status.model.base_name = base_name(file_->path());
  for (size_t i = 0; i < pipeline_->stage_count(); ++i) {
    status.nodes.push_back(stage_status(pipeline_->stage(i), i, pipeline_->stage_count()));
  }
  // All stages share the machine's memory: it stands with the first one.
  for (const remote::DeviceReport& device : status.nodes.front().devices) {
    status.nodes.front().memory_limit_bytes += device.memory.total_bytes;
  }
  status.live_sequences = counters.live;
  status.waiting_sequences = counters.queued;
  const MutexLock lock(rate_mutex_);
  status.measured_tokens_per_s = rate_.look(counters.tokens_sampled, SystemClock().now());
  return status;
}

}  // namespace strata::serve
