#include "coordinator/cluster_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/remote/stream_gate.h"
#include "runtime/base/human.h"

namespace strata::coordinator {
namespace {

constexpr Duration kRetryDelay = std::chrono::milliseconds(500);
// After which blame fades for those that have served.
constexpr Duration kGoodService = std::chrono::minutes(1);

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

}  // namespace

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
    lose(before, why, Charge::kDiedServing, now, actions);
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
  if (membership_.size() == 1) first_join_ = now;
  last_join_ = now;
  if (phase_ == ClusterPhase::waiting) try_plan(now, actions);
  next_look_ = now;
}

void ClusterState::on_message(MemberId id, const remote::FromWorker& message, TimePoint now,
                              ClusterActions& actions) {
  const Member* member = membership_.find(id);
  if (member == nullptr) return;
  if (const auto* beat = std::get_if<remote::Heartbeat>(&message)) {
    on_heartbeat(*member, *beat, now, actions);
  } else if (const auto* done = std::get_if<remote::CommandDone>(&message)) {
    on_done(id, *done, now, actions);
  } else if (const auto* lost = std::get_if<remote::PeerLost>(&message)) {
    on_peer_lost(*member, *lost, now, actions);
  } else if (const auto* leaving = std::get_if<remote::Leaving>(&message)) {
    lose(id, unavailable(leaving->reason.empty() ? "it is leaving" : leaving->reason), 0, now,
         actions);
    actions.push_back(EndStream{id, ok_status()});
  }
}

void ClusterState::on_heartbeat(const Member& member, const remote::Heartbeat& beat, TimePoint now,
                                ClusterActions& actions) {
  membership_.heartbeat(member.id, beat, now);
  StageState* stage = stage_of(member.id);
  if (stage == nullptr || beat.epoch != epoch_) return;
  if (stage->watch.observe(beat, now)) {
    actions.push_back(
        warning(fmt::format("{} is slow: {}", member.hello.name, stage->watch.slow_text())));
  }
  if (phase_ != ClusterPhase::loading || stage->command_id == 0) return;
  on_load_progress(*stage, beat, now, actions);
}

// A worker knows of the streams that it writes to, and of nobody else: who reads from a stream has
// nothing but the name in its header, and whoever wrote it says himself that it broke.
bool ClusterState::writes_to(size_t stage_index, const std::string& peer) const {
  const bool is_tail = stage_index + 1 == stages_.size();
  if (peer == remote::kCoordinatorNode) return true;
  return is_tail ? stage_index > 0 && name_of(0) == peer : name_of(stage_index + 1) == peer;
}

void ClusterState::on_peer_lost(const Member& member, const remote::PeerLost& lost, TimePoint now,
                                ClusterActions& actions) {
  const bool has_streams = phase_ == ClusterPhase::starting || phase_ == ClusterPhase::ready;
  const StageState* stage = stage_of(member.id);
  if (lost.epoch != epoch_ || !has_streams || stage == nullptr) return;
  if (!writes_to(static_cast<size_t>(stage - stages_.data()), lost.peer)) return;
  const std::string name = member.hello.name;
  if (lost.peer == remote::kCoordinatorNode) {
    accuse(member.id, "it does not get through to the coordinator");
  } else {
    accuse(membership_.find(lost.peer)->id, fmt::format("{} does not get through to it", name));
    accusations_.back().accuser = name;
  }
  const std::string& why = lost.status.message();
  const bool names_peer = why.starts_with(fmt::format("lost {}", lost.peer));
  const std::string did = phase_ == ClusterPhase::ready
                              ? (names_peer ? why : fmt::format("lost {}: {}", lost.peer, why))
                              : fmt::format("could not start: {}", why);
  end_epoch(
      unavailable(fmt::format("{} {}", name, did),
                  fmt::format("see the logs of {} and {} and the network between them; send the "
                              "request again, it waits for the next plan",
                              name, lost.peer)),
      now, actions);
}

void ClusterState::on_stream_end(MemberId id, const Status& why, TimePoint now,
                                 ClusterActions& actions) {
  lose(id, unavailable(why.ok() ? "its connection was closed" : why.message()),
       phase_ == ClusterPhase::ready ? Charge::kDiedServing : Charge::kDiedLoading, now, actions);
}

void ClusterState::lose(MemberId id, const Status& why, uint32_t points, TimePoint now,
                        ClusterActions& actions) {
  const Member* found = membership_.find(id);
  if (found == nullptr) return;
  const Member member = *found;
  const bool in_plan = phase_ != ClusterPhase::waiting && stage_of(id) != nullptr;
  std::string what = member.hello.name;
  if (in_plan) {
    const size_t index = static_cast<size_t>(stage_of(id) - stages_.data());
    what += fmt::format(" ({})", layer_range_text(plan_->stages[index].range));
    if (points > 0) blame_.charge(member.hello.name, points, "it was lost", now);
  }
  membership_.remove(id);
  holders_.erase(id);
  spares_told_.erase(id);
  actions.push_back(warning(fmt::format("lost {}: {}", what, why.message())));
  const bool was_in_last_plan =
      std::find(ran_on_.begin(), ran_on_.end(), member.hello.name) != ran_on_.end();
  if (in_plan) {
    end_epoch(unavailable(fmt::format("lost worker {}: {}", what, why.message()),
                          "try again once it is back or the model has been placed anew"),
              now, actions);
  } else if (phase_ != ClusterPhase::waiting || !was_in_last_plan) {
    return;
  }
  // Whichever notice of the loss came first.
  not_before_ = std::max(not_before_, now + options_.rejoin_grace);
  plan_wanted_ = true;
  awaits_return_ = true;
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

const std::string& ClusterState::name_of(size_t stage_index) const {
  return membership_.find(stages_[stage_index].member)->hello.name;
}

void ClusterState::blame(const std::string& node, uint32_t starting, uint32_t serving,
                         const std::string& why, TimePoint now) {
  blame_.charge(node, phase_ == ClusterPhase::ready ? serving : starting, why, now);
}

void ClusterState::accuse(MemberId accused, std::string why) {
  accusations_.push_back({.accused = accused,
                          .why = std::move(why),
                          .accuser = {},
                          .in_service = phase_ == ClusterPhase::ready});
}

// A stream breaks before its end's death is noticed: who is gone by the time of the next plan was
// killed, and that is no fault of the way to it, nor of who noticed.
void ClusterState::settle_accusations(TimePoint now) {
  for (const Accusation& accusation : accusations_) {
    const Member* accused = membership_.find(accusation.accused);
    if (accused == nullptr) continue;
    const bool in_service = accusation.in_service;
    blame_.charge(accused->hello.name, in_service ? Charge::kServiceFailed : Charge::kStartFailed,
                  accusation.why, now);
    if (accusation.accuser.empty()) continue;
    blame_.charge(accusation.accuser, in_service ? Charge::kServiceAccuser : Charge::kStartAccuser,
                  fmt::format("it does not get through to {}", accused->hello.name), now);
  }
  accusations_.clear();
}

void ClusterState::on_pipeline_proven(uint64_t epoch, TimePoint now, ClusterActions& actions) {
  if (epoch != epoch_ || !proof_deadline_) return;
  phase_ = ClusterPhase::ready;
  proof_deadline_.reset();
  was_ready_ = true;
  failures_in_row_ = 0;
  obstacle_ = ok_status();
  ran_on_.clear();
  for (size_t i = 0; i < stages_.size(); ++i) ran_on_.push_back(name_of(i));
  served_since_ = now;
  quiet_since_ = now;
  next_look_ = now;
  actions.push_back(PipelineReady{.epoch = epoch_, .nodes = ran_on_});
}

void ClusterState::on_pipeline_failure(uint64_t epoch, const Status& why, TimePoint now,
                                       ClusterActions& actions) {
  if (epoch != epoch_ || phase_ == ClusterPhase::waiting || stages_.empty()) return;
  if (phase_ == ClusterPhase::loading) return;
  accuse(stages_[0].member, "the coordinator does not get through to it");
  end_epoch(why, now, actions);
}

void ClusterState::on_pipeline_stall(uint64_t epoch, const Status& why, TimePoint now,
                                     ClusterActions& actions) {
  if (epoch != epoch_) return;
  if (phase_ != ClusterPhase::ready && !proof_deadline_) return;
  if (give_up_hung_stage(now, actions)) return;
  const std::string where = blame_lost_step(now);
  end_epoch(Status(why.code(), fmt::format("{}: {}", why.message(), where), why.hint()), now,
            actions);
}

bool ClusterState::give_up_hung_stage(TimePoint now, ClusterActions& actions) {
  for (const StageState& stage : stages_) {
    const Member& member = *membership_.find(stage.member);
    const bool computes = member.heartbeat.activity == remote::StageActivity::computing;
    // Half: the engine may have noticed first, and heartbeats come now and then.
    const Duration patience = phase_ == ClusterPhase::ready ? membership_.stall_limit(member) / 2
                                                            : options_.start_timeout / 2;
    if (!computes || now < member.progress_since + patience) continue;
    const Status stuck =
        unavailable(fmt::format("its stage has computed on step {} for {}", member.heartbeat.step,
                                human_duration(now - member.progress_since)));
    const MemberId id = member.id;
    lose(id, stuck, phase_ == ClusterPhase::ready ? Charge::kServiceFailed : Charge::kStartFailed,
         now, actions);
    actions.push_back(EndStream{id, stuck});
    return true;
  }
  return false;
}

// By what the stages say: the first that has not seen what the one before it has done.
std::string ClusterState::blame_lost_step(TimePoint now) {
  for (size_t i = 1; i < stages_.size(); ++i) {
    const remote::Heartbeat& before = membership_.find(stages_[i - 1].member)->heartbeat;
    const remote::Heartbeat& here = membership_.find(stages_[i].member)->heartbeat;
    const bool before_has_done = before.activity == remote::StageActivity::idle;
    const uint64_t done =
        before_has_done ? before.step : before.step - std::min<uint64_t>(before.step, 1);
    if (here.step >= done) continue;
    for (const size_t index : {i - 1, i}) {
      blame(name_of(index), Charge::kStartAccuser, Charge::kServiceAccuser,
            fmt::format("a step was lost between {} and {}", name_of(i - 1), name_of(i)), now);
    }
    return fmt::format("{} has done step {}, and {} is at step {}", name_of(i - 1), done,
                       name_of(i), here.step);
  }
  const std::string& tail = name_of(stages_.size() - 1);
  blame(tail, Charge::kStartAccuser, Charge::kServiceAccuser, "its results did not come", now);
  return fmt::format("{} has done its part, and the result did not come", tail);
}

void ClusterState::stop_epoch(const Status& why, ClusterActions& actions) {
  actions.push_back(StopPipeline{epoch_, why});
  phase_ = ClusterPhase::waiting;
  obstacle_ = why;
  stages_.clear();
  plan_.reset();
  proof_deadline_.reset();
  next_look_.reset();
  spares_told_.clear();
}

void ClusterState::end_epoch(const Status& why, TimePoint now, ClusterActions& actions) {
  if (phase_ == ClusterPhase::ready) failures_in_row_ = 0;
  actions.push_back(warning(fmt::format("epoch {} ended: {}", epoch_, why.to_string())));
  stop_epoch(why, actions);
  const Duration backoff = std::min<Duration>(kRetryDelay * (1U << std::min(failures_in_row_, 8U)),
                                              options_.retry_delay_max);
  ++failures_in_row_;
  not_before_ = now + backoff;
  plan_wanted_ = true;
  awaits_return_ = false;
}

void ClusterState::on_done(MemberId id, const remote::CommandDone& done, TimePoint now,
                           ClusterActions& actions) {
  StageState* stage = stage_of(id);
  if (stage == nullptr || stage->command_id == 0 || stage->command_id != done.command_id) return;
  const Member& member = *membership_.find(id);
  const bool loading = phase_ == ClusterPhase::loading;
  if (!done.status.ok()) {
    const std::string could_not = loading ? "could not load its layers" : "could not start";
    blame(member.hello.name, Charge::kStartFailed, Charge::kServiceFailed, "it " + could_not, now);
    end_epoch(done.status.with_context(fmt::format("{} {}", member.hello.name, could_not)), now,
              actions);
    return;
  }
  stage->command_id = 0;
  if (loading) {
    stage->memory = done.memory;
    actions.push_back(note(fmt::format(
        "{} loaded its weights, {} in memory{}", member.hello.name,
        human_bytes(done.memory.weights_bytes),
        done.memory.received_bytes > 0
            ? fmt::format("; {} of the model's file came over the network",
                          human_bytes(done.memory.received_bytes))
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
  // Two steps of one token, by the plan's allowance for a token.
  proof_deadline_ = now + options_.start_timeout + 2 * plan_->token_allowance();
  obstacle_ = unavailable("a first step goes round the pipeline", "try again in a moment");
  const Member& head = *membership_.find(stages_[0].member);
  actions.push_back(StartPipeline{.epoch = epoch_,
                                  .plan = *plan_,
                                  .head_name = head.hello.name,
                                  .head_address = head.address,
                                  .stream_key = stream_key_});
}

void ClusterState::on_load_progress(StageState& stage, const remote::Heartbeat& beat, TimePoint now,
                                    ClusterActions& actions) {
  const remote::LoadProgress load = beat.load.value_or(remote::LoadProgress{});
  const bool moves = load.done_bytes != stage.load.done_bytes || beat.progress != stage.progress;
  if (moves || !stage.has_answered) stage.deadline = now + options_.load_timeout;
  stage.has_answered = true;
  stage.progress = beat.progress;
  if (!beat.load) return;
  if (percent(load) / 10 != percent(stage.load) / 10) {
    actions.push_back(
        note(fmt::format("{} loads: {:3}% of {}", membership_.find(stage.member)->hello.name,
                         percent(load), human_bytes(load.total_bytes))));
  }
  stage.load = load;
}

// --- Time ----------------------------------------------------------------------------------------

void ClusterState::set_serving(bool is_serving, TimePoint now) {
  if (is_serving || is_serving_) quiet_since_ = now;
  is_serving_ = is_serving;
}

// Loads and starts that take too long, and the first step.
void ClusterState::end_late_commands(TimePoint now, ClusterActions& actions) {
  if (proof_deadline_ && now >= *proof_deadline_) {
    on_pipeline_stall(epoch_, deadline_exceeded("a first step did not come round in time"), now,
                      actions);
    return;
  }
  if (phase_ != ClusterPhase::loading && phase_ != ClusterPhase::starting) return;
  std::string who;
  const std::string did_not =
      phase_ == ClusterPhase::loading ? "load its layers" : "connect to its neighbours";
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i].command_id == 0 || now < stages_[i].deadline) continue;
    who += (who.empty() ? "" : ", ") + name_of(i);
    blame(name_of(i), Charge::kStartFailed, Charge::kStartFailed,
          fmt::format("it did not {} in time", did_not), now);
  }
  if (who.empty()) return;
  end_epoch(deadline_exceeded(fmt::format("{} did not {} in time", who, did_not),
                              "see that worker's log; it may hang, or its disk or network may"),
            now, actions);
}

void ClusterState::on_tick(TimePoint now, ClusterActions& actions) {
  for (const Membership::Dead& dead : membership_.dead(now)) {
    lose(dead.id, dead.why, Charge::kServiceFailed, now, actions);
    actions.push_back(EndStream{dead.id, dead.why});
  }
  end_late_commands(now, actions);
  if (phase_ == ClusterPhase::ready && now >= served_since_ + kGoodService) {
    served_since_ = now;
    for (size_t i = 0; i < stages_.size(); ++i) blame_.fade(name_of(i));
  }
  if (phase_ == ClusterPhase::waiting && plan_wanted_ && now >= not_before_) try_plan(now, actions);
  look_for_better(now, actions);
}

std::optional<TimePoint> ClusterState::next_wakeup() const {
  std::optional<TimePoint> next = membership_.next_check();
  const auto consider = [&](TimePoint time) {
    if (!next || time < *next) next = time;
  };
  for (const StageState& stage : stages_) {
    if (stage.command_id != 0) consider(stage.deadline);
  }
  if (proof_deadline_) consider(*proof_deadline_);
  if (phase_ == ClusterPhase::ready && next_look_) consider(*next_look_);
  if (phase_ == ClusterPhase::waiting && plan_wanted_) consider(not_before_);
  return next;
}

}  // namespace strata::coordinator
