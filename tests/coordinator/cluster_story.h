// A cluster's story for tests of ClusterState: what workers say and what time does, and the
// commands that come of it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/cluster_state.h"

namespace strata::coordinator {

using std::chrono::milliseconds;

inline constexpr uint64_t kMiB = 1 << 20;

inline ClusterOptions options_for(uint32_t workers) {
  ClusterOptions options;
  options.cluster_id = "c1";
  options.model = {"tiny.gguf", "sha256:" + std::string(64, 'a')};
  ModelProfile& profile = options.profile;
  profile.name = "tiny.gguf";
  for (int i = 0; i < 12; ++i) {
    profile.layers.push_back({.weights_bytes = 2 * kMiB, .kv_block_bytes = 1024, .group = 0});
  }
  profile.input_bytes = kMiB;
  profile.output_bytes = kMiB;
  profile.compute_bytes = {{{kMiB, kMiB}, {kMiB, kMiB}}};
  profile.group_windows = {0};
  options.plan = {.context = 256, .sequences_wanted = 2, .step_tokens = 64};
  options.workers = workers;
  options.settle = Duration::zero();
  return options;
}

// A cluster whose workers obey at once, except where a test says otherwise.
class Story {
 public:
  explicit Story(const ClusterOptions& options) : state(options) {}

  MemberId join(const std::string& name, uint64_t memory_mib = 100, uint64_t last_epoch = 0) {
    const MemberId id = ++last_id_;
    remote::Hello hello;
    hello.name = name;
    hello.identity = fmt::format("{:032x}", id);
    hello.memory_limit_bytes = memory_mib * kMiB;
    hello.last_epoch = last_epoch;
    hello.process_id = 1000 + id;
    hello.cluster_id = cluster_id;
    if (reads_per_s > 0) {
      remote::DeviceReport& device = hello.devices.emplace_back();
      device.name = "CPU";
      device.memory = {hello.memory_limit_bytes, hello.memory_limit_bytes};
      device.speed = {static_cast<double>(reads_per_s), 1e11, 5e10};
    }
    ClusterActions actions;
    state.on_hello(id, hello, fmt::format("127.0.0.1:{}", 5000 + id), now, actions);
    take(actions);
    return id;
  }
  void lose(MemberId id) {
    ClusterActions actions;
    state.on_stream_end(id, unavailable("its connection broke"), now, actions);
    take(actions);
  }
  void say(MemberId id, const remote::FromWorker& message) {
    ClusterActions actions;
    state.on_message(id, message, now, actions);
    take(actions);
  }
  void beat(MemberId id, remote::StageActivity activity = remote::StageActivity::idle,
            uint64_t progress = 0, uint32_t step_tokens = 0) {
    remote::Heartbeat heartbeat;
    heartbeat.epoch = state.epoch();
    heartbeat.progress = progress;
    heartbeat.step = progress + 1;
    heartbeat.step_tokens = step_tokens;
    heartbeat.activity = activity;
    say(id, heartbeat);
  }
  void stall(uint64_t epoch) {
    ClusterActions actions;
    state.on_pipeline_stall(epoch, unavailable("step 5 was not answered"), now, actions);
    take(actions);
  }
  void pass(Duration time) {
    now += time;
    ClusterActions actions;
    state.on_tick(now, actions);
    take(actions);
  }
  // Those that nobody has answered, while workers do not obey.
  void finish_commands() {
    for (const auto& [member, done] : std::exchange(unanswered_, {})) say(member, done);
  }
  void proof(uint64_t epoch) {
    ClusterActions actions;
    state.on_pipeline_proven(epoch, now, actions);
    take(actions);
  }
  // Half seconds, in which the workers live.
  void live(Duration time, const std::vector<MemberId>& members) {
    for (const TimePoint end = now + time; now < end;) {
      for (const MemberId id : members) beat(id);
      pass(milliseconds(500));
    }
  }
  std::vector<std::string> stage_nodes() const {
    std::vector<std::string> names;
    if (!state.plan()) return names;
    for (const PlannedStage& stage : state.plan()->stages) names.push_back(stage.node_name);
    return names;
  }
  std::string replan() {
    ClusterActions actions;
    const std::string text = state.replan(now, actions);
    take(actions);
    return text;
  }
  void serve(bool is_serving) { state.set_serving(is_serving, now); }
  bool noted(const std::string& part) const {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const std::string& line) { return line.find(part) != line.npos; });
  }
  void fail_pipeline(uint64_t epoch) {
    ClusterActions actions;
    state.on_pipeline_failure(epoch, unavailable("step 4 was not answered"), now, actions);
    take(actions);
  }

  ClusterState state;
  TimePoint now{};
  bool obey = true;
  bool prove = true;         // a first step goes round
  uint64_t reads_per_s = 0;  // of workers that join
  std::string cluster_id;    // of workers that join
  Status load_result;
  std::vector<remote::LoadStage> loads;
  std::vector<std::string> trace;  // "load 1 0-5", "start 1", "pipeline 2 stages", ...
  std::vector<std::string> notes;
  std::map<MemberId, Status> ended;
  Status stop_reason;
  StartPipeline last_start;

 private:
  void take(const ClusterActions& actions) {
    std::vector<std::pair<MemberId, remote::CommandDone>> answers;
    uint64_t proven = 0;
    for (const ClusterAction& action : actions) {
      if (const auto* send = std::get_if<SendToMember>(&action)) {
        const remote::Command& command = send->message.command;
        remote::CommandDone done{.command_id = send->message.command_id,
                                 .epoch = state.epoch(),
                                 .status = {},
                                 .memory = {}};
        if (const auto* load = std::get_if<remote::LoadStage>(&command)) {
          loads.push_back(*load);
          trace.push_back(fmt::format("load {} {}", send->member, layer_range_text(load->range)));
          done.status = load_result;
          answers.emplace_back(send->member, done);
        } else if (const auto* start = std::get_if<remote::StartEpoch>(&command)) {
          trace.push_back(fmt::format("start {} next '{}' head '{}'", send->member,
                                      start->next.node, start->head.node));
          answers.emplace_back(send->member, done);
        } else if (std::holds_alternative<remote::Unload>(command)) {
          trace.push_back(fmt::format("unload {}", send->member));
        }
      } else if (const auto* end = std::get_if<EndStream>(&action)) {
        ended[end->member] = end->why;
      } else if (const auto* start = std::get_if<StartPipeline>(&action)) {
        last_start = *start;
        proven = start->epoch;
        trace.push_back(fmt::format("pipeline epoch {} over {} stages, head {}", start->epoch,
                                    start->plan.stages.size(), start->head_name));
      } else if (const auto* stop = std::get_if<StopPipeline>(&action)) {
        stop_reason = stop->why;
        trace.push_back(fmt::format("stop epoch {}", stop->epoch));
      } else if (const auto* line = std::get_if<Note>(&action)) {
        notes.push_back(line->text);
      }
    }
    if (!obey) {
      unanswered_.insert(unanswered_.end(), answers.begin(), answers.end());
      return;
    }
    for (const auto& [member, done] : answers) say(member, done);
    if (prove && proven > 0) this->proof(proven);
  }

  MemberId last_id_ = 0;
  std::vector<std::pair<MemberId, remote::CommandDone>> unanswered_;
};

}  // namespace strata::coordinator
