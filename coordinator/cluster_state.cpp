#include "coordinator/cluster_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/human.h"

namespace strata::coordinator {
namespace {

constexpr Duration kRetryDelay = std::chrono::milliseconds(500);

Note note(std::string text) { return {.is_warning = false, .text = std::move(text)}; }
Note warning(std::string text) { return {.is_warning = true, .text = std::move(text)}; }

uint32_t percent(const remote::LoadProgress& progress) {
  if (progress.total_bytes == 0) return 0;
  return static_cast<uint32_t>(std::min(100.0, 100.0 * static_cast<double>(progress.done_bytes) /
                                                   static_cast<double>(progress.total_bytes)));
}

// Two digits of a measured number: equal machines then count as equal, and a plan does not change
// with the noise of a measurement.
double rounded(double value) {
  if (!(value > 0) || !std::isfinite(value)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

// The device that a stage runs on, as far as the planner is concerned.
PlannerNode planner_node(const Member& member) {
  PlannerNode node;
  node.name = member.hello.name;
  node.memory_bytes = member.hello.memory_limit_bytes;
  node.hop_us = rounded(member.hello.hop_us);
  node.memory_is_stated = member.hello.memory_is_stated;
  node.host = member.hello.host_id;
  for (const remote::DeviceReport& device : member.hello.devices) {
    if (!node.device.empty()) node.device += " + ";
    node.device += device.name;
    if (device.kind == DeviceKind::cpu) node.host_bytes = device.memory.free_bytes / 10 * 9;
    if (device.speed.read_bytes_per_s > node.read_bytes_per_s) {
      node.read_bytes_per_s = device.speed.read_bytes_per_s;
      node.int8_ops_per_s = device.speed.int8_ops_per_s;
    }
  }
  node.read_bytes_per_s = rounded(node.read_bytes_per_s);
  node.int8_ops_per_s = rounded(node.int8_ops_per_s);
  return node;
}

}  // namespace

ClusterState::ClusterState(ClusterOptions options)
    : options_(std::move(options)),
      membership_(options_.membership),
      epoch_(options_.last_epoch),
      obstacle_(unavailable("no workers have joined yet", "start workers with strata worker")) {
  if (options_.workers > 0) options_.plan.use_all_nodes = true;
}

// --- Members -------------------------------------------------------------------------------------

void ClusterState::on_hello(MemberId id, const remote::Hello& hello, const std::string& address,
                            TimePoint now, ClusterActions& actions) {
  const Member* known = membership_.find(hello.name);
  if (known != nullptr && known->hello.identity == hello.identity) {
    const MemberId before = known->id;
    const Status why = unavailable("it joined again over a new connection");
    lose(before, why, now, actions);
    actions.push_back(EndStream{before, why});
  }
  if (const Status joined = membership_.join(id, hello, address, now); !joined.ok()) {
    actions.push_back(EndStream{id, joined});
    actions.push_back(warning(
        fmt::format("refused worker '{}' from {}: {}", hello.name, address, joined.message())));
    return;
  }
  actions.push_back(SendToMember{
      id,
      {.command_id = 0,
       .command = remote::Welcome{.cluster_id = options_.cluster_id,
                                  .version = remote::kProtocolVersion,
                                  .epoch = epoch_,
                                  .heartbeat_ms = static_cast<uint32_t>(
                                      std::chrono::duration_cast<std::chrono::milliseconds>(
                                          options_.membership.heartbeat_interval)
                                          .count())}}});
  const PlannerNode node = planner_node(*membership_.find(id));
  actions.push_back(note(fmt::format(
      "{} joined from {}: {}, {} for a stage, reads {}/s", hello.name, address, node.device,
      human_bytes(node.memory_bytes), human_bytes(static_cast<uint64_t>(node.read_bytes_per_s)))));
  if (phase_ == ClusterPhase::waiting) try_plan(now, actions);
}

void ClusterState::on_message(MemberId id, const remote::FromWorker& message, TimePoint now,
                              ClusterActions& actions) {
  const Member* member = membership_.find(id);
  if (member == nullptr) return;
  if (const auto* beat = std::get_if<remote::Heartbeat>(&message)) {
    membership_.heartbeat(id, *beat, now);
    StageState* stage = stage_of(id);
    if (stage != nullptr && beat->epoch == epoch_ && stage->watch.observe(*beat, now)) {
      actions.push_back(
          warning(fmt::format("{} is slow: {}", member->hello.name, stage->watch.slow_text())));
    }
    if (beat->load && phase_ == ClusterPhase::loading && beat->epoch == epoch_) {
      on_load_progress(*member, *beat->load, now, actions);
    }
  } else if (const auto* done = std::get_if<remote::CommandDone>(&message)) {
    on_done(id, *done, now, actions);
  } else if (const auto* lost = std::get_if<remote::PeerLost>(&message)) {
    if (lost->epoch != epoch_ || phase_ == ClusterPhase::waiting) return;
    // A stream of the epoch before may be noticed as broken only now: its peer is in no stage.
    if (!has_stage_on(lost->peer)) return;
    end_epoch(unavailable(fmt::format("{} lost {}: {}", member->hello.name, lost->peer,
                                      lost->status.message())),
              now, actions);
  } else if (const auto* leaving = std::get_if<remote::Leaving>(&message)) {
    lose(id, unavailable(leaving->reason.empty() ? "it is leaving" : leaving->reason), now,
         actions);
    actions.push_back(EndStream{id, ok_status()});
  }
}

void ClusterState::on_stream_end(MemberId id, const Status& why, TimePoint now,
                                 ClusterActions& actions) {
  lose(id, unavailable(why.ok() ? "its connection was closed" : why.message()), now, actions);
}

void ClusterState::lose(MemberId id, const Status& why, TimePoint now, ClusterActions& actions) {
  const Member* found = membership_.find(id);
  if (found == nullptr) return;
  const Member member = *found;
  const bool in_plan = phase_ != ClusterPhase::waiting && stage_of(id) != nullptr;
  std::string what = member.hello.name;
  if (in_plan) {
    const size_t index = static_cast<size_t>(stage_of(id) - stages_.data());
    what += fmt::format(" ({})", layer_range_text(plan_->stages[index].range));
  }
  membership_.remove(id);
  holders_.erase(id);
  actions.push_back(warning(fmt::format("lost {}: {}", what, why.message())));
  if (in_plan) {
    end_epoch(unavailable(fmt::format("lost worker {}: {}", what, why.message()),
                          "try again once it is back or the model has been placed anew"),
              now, actions);
  }
}

// --- Epochs --------------------------------------------------------------------------------------

ClusterState::StageState* ClusterState::stage_of(MemberId id) {
  for (StageState& stage : stages_) {
    if (stage.member == id) return &stage;
  }
  return nullptr;
}

const ClusterState::StageState* ClusterState::stage_of(MemberId id) const {
  return const_cast<ClusterState*>(this)->stage_of(id);
}

bool ClusterState::has_stage_on(const std::string& node_name) const {
  return plan_ &&
         std::any_of(plan_->stages.begin(), plan_->stages.end(),
                     [&](const PlannedStage& stage) { return stage.node_name == node_name; });
}

void ClusterState::on_pipeline_failure(uint64_t epoch, const Status& why, TimePoint now,
                                       ClusterActions& actions) {
  if (epoch != epoch_ || phase_ == ClusterPhase::waiting) return;
  end_epoch(why, now, actions);
}

void ClusterState::on_pipeline_stall(uint64_t epoch, const Status& why, TimePoint now,
                                     ClusterActions& actions) {
  if (epoch != epoch_ || phase_ != ClusterPhase::ready) return;
  for (const StageState& stage : stages_) {
    const Member& member = *membership_.find(stage.member);
    const bool computes = member.heartbeat.activity == remote::StageActivity::computing;
    // Half: the engine may have noticed first, and heartbeats come now and then.
    if (!computes || now < member.progress_since + membership_.stall_limit(member) / 2) continue;
    const Status stuck =
        unavailable(fmt::format("its stage has computed on step {} for {}", member.heartbeat.step,
                                human_duration(now - member.progress_since)));
    const MemberId id = member.id;
    lose(id, stuck, now, actions);
    actions.push_back(EndStream{id, stuck});
    return;
  }
  end_epoch(
      Status(why.code(), fmt::format("{}: {}", why.message(), where_step_is_lost()), why.hint()),
      now, actions);
}

// By what the stages say: the first that has not seen what the one before it has done.
std::string ClusterState::where_step_is_lost() const {
  const auto name = [&](size_t i) { return membership_.find(stages_[i].member)->hello.name; };
  for (size_t i = 1; i < stages_.size(); ++i) {
    const remote::Heartbeat& before = membership_.find(stages_[i - 1].member)->heartbeat;
    const remote::Heartbeat& here = membership_.find(stages_[i].member)->heartbeat;
    const bool before_has_done = before.activity == remote::StageActivity::idle;
    const uint64_t done =
        before_has_done ? before.step : before.step - std::min<uint64_t>(before.step, 1);
    if (here.step < done) {
      return fmt::format("{} has done step {}, and {} is at step {}", name(i - 1), done, name(i),
                         here.step);
    }
  }
  return fmt::format("{} has done its part, and the result did not come", name(stages_.size() - 1));
}

void ClusterState::end_epoch(const Status& why, TimePoint now, ClusterActions& actions) {
  if (phase_ == ClusterPhase::ready) failures_in_row_ = 0;
  actions.push_back(StopPipeline{epoch_, why});
  actions.push_back(warning(fmt::format("epoch {} ended: {}", epoch_, why.to_string())));
  phase_ = ClusterPhase::waiting;
  obstacle_ = why;
  stages_.clear();
  plan_.reset();
  const Duration backoff = std::min<Duration>(kRetryDelay * (1U << std::min(failures_in_row_, 8U)),
                                              options_.retry_delay_max);
  ++failures_in_row_;
  const bool somebody_left = usable_members() < members_when_ready_;
  not_before_ = now + (somebody_left ? options_.rejoin_grace : backoff);
  plan_wanted_ = true;
}

// Without those that a person excluded.
size_t ClusterState::usable_members() const {
  const std::vector<std::string>& excluded = options_.plan.exclude;
  size_t count = 0;
  for (const Member* member : membership_.members()) {
    const bool is_excluded =
        std::find(excluded.begin(), excluded.end(), member->hello.name) != excluded.end();
    count += is_excluded ? 0 : 1;
  }
  return count;
}

Result<Plan> ClusterState::plan_members(std::vector<const Member*>& members) const {
  members = membership_.members();
  std::vector<PlannerNode> nodes;
  for (const Member* member : members) nodes.push_back(planner_node(*member));
  return make_plan(options_.profile, nodes, options_.plan);
}

void ClusterState::try_plan(TimePoint now, ClusterActions& actions) {
  const size_t joined = usable_members();
  const size_t complete = options_.workers > 0 ? options_.workers : members_when_ready_;
  if (plan_wanted_ && now < not_before_ && joined < complete) return;
  plan_wanted_ = false;
  if (joined == 0) {
    if (membership_.size() > 0) {
      obstacle_ = unavailable("--exclude leaves out all workers that have joined",
                              "start others, or exclude fewer");
    }
    return;
  }
  if (options_.workers > 0 && joined < options_.workers && !was_ready_) {
    obstacle_ = unavailable(fmt::format("{} of {} workers have joined", joined, options_.workers),
                            "start the others, or start the coordinator with fewer --workers");
    return;
  }
  std::vector<const Member*> members;
  Result<Plan> plan = plan_members(members);
  if (!plan.ok()) {
    if (obstacle_.message() != plan.status().message()) {
      actions.push_back(warning(plan.status().to_string()));
    }
    obstacle_ = plan.status();
    return;
  }
  begin_load(std::move(plan).value(), members, now, actions);
}

void ClusterState::begin_load(Plan plan, const std::vector<const Member*>& members, TimePoint now,
                              ClusterActions& actions) {
  epoch_ = std::max(epoch_, membership_.highest_epoch()) + 1;
  actions.push_back(SaveEpoch{epoch_});
  membership_.set_token_allowance(plan.token_allowance());
  phase_ = ClusterPhase::loading;
  obstacle_ = unavailable("the workers are loading the model", "try again in a moment");
  phase_deadline_ = now + options_.load_timeout;
  stages_.clear();
  load_percent_noted_.clear();
  std::set<MemberId> placed;
  for (const PlannedStage& stage : plan.stages) {
    const MemberId member = members[stage.node]->id;
    placed.insert(member);
    stages_.push_back({.member = member,
                       .command_id = next_command_,
                       .memory = {},
                       .watch = StepWatch(stage.forecast)});
    actions.push_back(
        SendToMember{member,
                     {.command_id = next_command_++,
                      .command = remote::LoadStage{.epoch = epoch_,
                                                   .model = options_.model,
                                                   .range = stage.range,
                                                   .kv_type = options_.kv_type,
                                                   .context_tokens = plan.context,
                                                   .blocks_per_group = plan.group_blocks,
                                                   .max_step_tokens = options_.plan.step_tokens,
                                                   .max_sequences = options_.slots,
                                                   .threads = 0,
                                                   .max_outputs = options_.max_outputs}}});
  }
  for (const MemberId holder : holders_) {
    if (placed.contains(holder)) continue;
    actions.push_back(SendToMember{
        holder, {.command_id = next_command_++, .command = remote::Unload{.epoch = epoch_}}});
  }
  holders_ = std::move(placed);
  actions.push_back(note(fmt::format("plan of epoch {}:\n{}", epoch_, plan_table(plan))));
  plan_ = std::move(plan);
}

void ClusterState::begin_start(TimePoint now, ClusterActions& actions) {
  phase_ = ClusterPhase::starting;
  phase_deadline_ = now + options_.start_timeout;
  const auto peer_of = [&](size_t index) {
    const Member* member = membership_.find(stages_[index].member);
    return remote::Peer{member->hello.name, member->address};
  };
  for (size_t i = 0; i < stages_.size(); ++i) {
    const bool tail = i + 1 == stages_.size();
    remote::StartEpoch start{.epoch = epoch_,
                             .stage_index = static_cast<uint32_t>(i),
                             .stage_count = static_cast<uint32_t>(stages_.size()),
                             .next = {},
                             .head = {}};
    if (!tail) start.next = peer_of(i + 1);
    if (tail && i > 0) start.head = peer_of(0);
    stages_[i].command_id = next_command_;
    actions.push_back(SendToMember{stages_[i].member,
                                   {.command_id = next_command_++, .command = std::move(start)}});
  }
}

void ClusterState::on_done(MemberId id, const remote::CommandDone& done, TimePoint now,
                           ClusterActions& actions) {
  StageState* stage = stage_of(id);
  if (stage == nullptr || stage->command_id == 0 || stage->command_id != done.command_id) return;
  const Member& member = *membership_.find(id);
  const bool loading = phase_ == ClusterPhase::loading;
  if (!done.status.ok()) {
    end_epoch(done.status.with_context(fmt::format("{} could not {}", member.hello.name,
                                                   loading ? "load its layers" : "start")),
              now, actions);
    return;
  }
  stage->command_id = 0;
  if (loading) {
    stage->memory = done.memory;
    phase_deadline_ = now + options_.load_timeout;
    actions.push_back(note(fmt::format(
        "{} loaded {}{}", member.hello.name, human_bytes(done.memory.weights_bytes),
        done.memory.received_bytes > 0
            ? fmt::format(", {} of it over the network", human_bytes(done.memory.received_bytes))
            : "")));
  }
  if (std::any_of(stages_.begin(), stages_.end(),
                  [](const StageState& other) { return other.command_id != 0; })) {
    return;
  }
  if (loading) {
    begin_start(now, actions);
    return;
  }
  phase_ = ClusterPhase::ready;
  was_ready_ = true;
  members_when_ready_ = usable_members();
  failures_in_row_ = 0;
  obstacle_ = ok_status();
  const Member& head = *membership_.find(stages_[0].member);
  actions.push_back(StartPipeline{
      .epoch = epoch_, .plan = *plan_, .head_name = head.hello.name, .head_address = head.address});
}

void ClusterState::on_load_progress(const Member& member, const remote::LoadProgress& progress,
                                    TimePoint now, ClusterActions& actions) {
  const uint32_t now_percent = percent(progress);
  uint32_t& noted = load_percent_noted_[member.id];
  if (now_percent == noted) return;
  phase_deadline_ = now + options_.load_timeout;
  if (now_percent / 10 != noted / 10) {
    actions.push_back(note(fmt::format("{} loads: {:3}% of {}", member.hello.name, now_percent,
                                       human_bytes(progress.total_bytes))));
  }
  noted = now_percent;
}

// --- Time ----------------------------------------------------------------------------------------

void ClusterState::on_tick(TimePoint now, ClusterActions& actions) {
  for (const Membership::Dead& dead : membership_.dead(now)) {
    lose(dead.id, dead.why, now, actions);
    actions.push_back(EndStream{dead.id, dead.why});
  }
  const bool working = phase_ == ClusterPhase::loading || phase_ == ClusterPhase::starting;
  if (working && now >= phase_deadline_) {
    std::string who;
    for (const StageState& stage : stages_) {
      if (stage.command_id == 0) continue;
      who += (who.empty() ? "" : ", ") + membership_.find(stage.member)->hello.name;
    }
    end_epoch(
        deadline_exceeded(fmt::format(
            "{} did not {} in time", who,
            phase_ == ClusterPhase::loading ? "load its layers" : "connect to its neighbours")),
        now, actions);
  }
  if (phase_ == ClusterPhase::waiting && plan_wanted_ && now >= not_before_) try_plan(now, actions);
}

std::optional<TimePoint> ClusterState::next_wakeup() const {
  std::optional<TimePoint> next = membership_.next_check();
  const auto consider = [&](TimePoint time) {
    if (!next || time < *next) next = time;
  };
  if (phase_ == ClusterPhase::loading || phase_ == ClusterPhase::starting)
    consider(phase_deadline_);
  if (phase_ == ClusterPhase::waiting && plan_wanted_) consider(not_before_);
  return next;
}

// --- Status --------------------------------------------------------------------------------------

Status ClusterState::obstacle() const { return obstacle_; }

std::string ClusterState::why_spare(const std::string& name) const {
  for (const LeftOut& node : plan_->left_out) {
    if (node.node == name) return node.why;
  }
  return "it joined after the plan was made";
}

remote::NodeStatus ClusterState::node_status(const Member& member, TimePoint now) const {
  remote::NodeStatus node;
  node.name = member.hello.name;
  node.address = member.address;
  node.devices = member.hello.devices;
  node.memory_limit_bytes = member.hello.memory_limit_bytes;
  node.used_bytes = member.heartbeat.used_bytes;
  node.steps_done = member.heartbeat.steps_done;
  node.process_id = member.hello.process_id;
  node.last_heartbeat_ms = static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - member.last_seen).count());
  const StageState* stage = stage_of(member.id);
  if (stage == nullptr) {
    node.state = phase_ == ClusterPhase::waiting ? "joined" : "spare";
    if (plan_) node.detail = why_spare(node.name);
    return node;
  }
  const size_t index = static_cast<size_t>(stage - stages_.data());
  node.range = plan_->stages[index].range;
  node.stage_index = static_cast<uint32_t>(index);
  node.memory = stage->memory;
  if (const auto& times = stage->watch.times()) {
    node.step_us = times->took_us;
    node.forecast_us = times->forecast_us;
  }
  if (stage->watch.is_slow()) node.detail = "slow: " + stage->watch.slow_text();
  node.state = phase_ == ClusterPhase::ready ? "ready" : "loading";
  if (phase_ == ClusterPhase::loading) node.load = member.heartbeat.load;
  return node;
}

remote::ClusterStatus ClusterState::status(TimePoint now) const {
  remote::ClusterStatus status;
  switch (phase_) {
    case ClusterPhase::waiting:
      status.state = was_ready_ ? "degraded" : "waiting";
      break;
    case ClusterPhase::loading:
    case ClusterPhase::starting:
      status.state = "loading";
      break;
    case ClusterPhase::ready:
      status.state = "ready";
      break;
  }
  status.detail = obstacle_.ok() ? "" : obstacle_.to_string();
  status.epoch = epoch_;
  status.model = options_.model;
  status.cluster_id = options_.cluster_id;
  status.version = remote::kProtocolVersion;
  if (plan_) status.predicted_tokens_per_s = plan_->predicted_tokens_per_s();
  for (const Member* member : membership_.members()) {
    status.nodes.push_back(node_status(*member, now));
  }
  return status;
}

}  // namespace strata::coordinator
