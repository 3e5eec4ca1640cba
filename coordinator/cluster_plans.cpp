// ClusterState: when to plan and with whom; see cluster_state.h.
#include <fmt/format.h>

#include <algorithm>

#include "backends/remote/stream_gate.h"
#include "coordinator/cluster_state.h"
#include "runtime/base/human.h"
#include "runtime/base/random.h"

namespace strata::coordinator {
namespace {

constexpr size_t kStreamKeyBytes = 16;
// A plan that is better by so much is worth loading the model anew.
constexpr double kWorthLoading = 1.2;
// A better plan waits for quiet, and is looked at again.
constexpr Duration kLookAgain = std::chrono::seconds(1);

Note plan_note(std::string text) { return {.is_warning = false, .text = std::move(text)}; }
Note plan_warning(std::string text) { return {.is_warning = true, .text = std::move(text)}; }

bool is_same_placement(const Plan& a, const Plan& b) {
  return std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const PlannedStage& one, const PlannedStage& other) {
                      return one.node_name == other.node_name && one.range == other.range;
                    });
}

// How often as quick, by the plans' goal.
double gain(const Plan& next, const Plan& present) {
  const auto rate = [](const Plan& plan) {
    return plan.goal == PlanGoal::one ? plan.predicted_tokens_per_s()
                                      : plan.predicted_pipelined_tokens_per_s();
  };
  return rate(present) > 0 ? rate(next) / rate(present) : 1;
}

}  // namespace

// --- With whom -----------------------------------------------------------------------------------

bool ClusterState::are_back(const std::vector<std::string>& names) const {
  return !names.empty() && std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return membership_.find(name) != nullptr;
  });
}

Result<Plan> ClusterState::plan_for(const Members& members) const {
  std::vector<PlannerNode> nodes;
  for (const Member* member : members) nodes.push_back(planner_node(*member));
  return make_plan(options_.profile, nodes, options_.plan);
}

// Over those that no failure names; if they do not suffice, the least blamed of the others join
// them one by one.
Result<Plan> ClusterState::plan_members(Members& members, TimePoint now) const {
  Members blamed;
  members.clear();
  for (const Member* member : membership_.members()) {
    const bool is_out = blame_.left_out_until(member->hello.name, now).has_value();
    (is_out ? blamed : members).push_back(member);
  }
  std::stable_sort(blamed.begin(), blamed.end(), [&](const Member* a, const Member* b) {
    return blame_.points(a->hello.name) < blame_.points(b->hello.name);
  });
  auto next = blamed.begin();
  if (members.empty() && next != blamed.end()) members.push_back(*next++);
  Result<Plan> plan = plan_for(members);
  while (!plan.ok() && next != blamed.end()) {
    members.push_back(*next++);
    plan = plan_for(members);
  }
  return plan;
}

// --- When ----------------------------------------------------------------------------------------

bool ClusterState::is_excluded(const Member& member) const {
  const std::vector<std::string>& excluded = options_.plan.exclude;
  return std::find(excluded.begin(), excluded.end(), member.hello.name) != excluded.end();
}

size_t ClusterState::usable_members() const {
  const Members members = membership_.members();
  return static_cast<size_t>(std::count_if(
      members.begin(), members.end(), [&](const Member* member) { return !is_excluded(*member); }));
}

// True if the first plan waits for the number of workers that was asked for.
bool ClusterState::awaits_number(TimePoint now) {
  const size_t joined = usable_members();
  if (was_ready_ || joined >= options_.workers || are_back(options_.last_nodes)) return false;
  obstacle_ = unavailable(fmt::format("{} of {} workers have joined", joined, options_.workers),
                          "start the others, or start the coordinator with fewer --workers");
  if (options_.last_nodes.empty()) return true;
  // With fewer than that it has run before: then it does not wait for all without end.
  not_before_ = last_join_ + options_.rejoin_grace;
  plan_wanted_ = now < not_before_;
  return plan_wanted_;
}

// True if the first plan, which is possible, waits a moment for more workers.
bool ClusterState::awaits_more(TimePoint now) {
  const bool is_free = options_.workers == 0 && options_.plan.split.empty();
  if (was_ready_ || !is_free || are_back(options_.last_nodes)) return false;
  obstacle_ = unavailable("waiting a moment for more workers to join", "try again in a moment");
  not_before_ = std::min(last_join_ + options_.settle, first_join_ + options_.settle_max);
  plan_wanted_ = now < not_before_;
  return plan_wanted_;
}

void ClusterState::try_plan(TimePoint now, ClusterActions& actions) {
  const bool all_are_back =
      awaits_return_ && are_back(ran_on_) && usable_members() >= options_.workers;
  const bool backs_off = plan_wanted_ && (was_ready_ || failures_in_row_ > 0);
  if (backs_off && now < not_before_ && !all_are_back) return;
  plan_wanted_ = false;
  settle_accusations(now);
  if (usable_members() == 0) {
    if (membership_.size() > 0) {
      obstacle_ = unavailable("--exclude leaves out all workers that have joined",
                              "start others, or exclude fewer");
    }
    return;
  }
  if (awaits_number(now)) return;
  Members members;
  Result<Plan> plan = plan_members(members, now);
  if (plan.ok() && awaits_more(now)) return;
  awaits_return_ = false;
  if (!plan.ok()) {
    if (obstacle_.message() != plan.status().message()) {
      actions.push_back(plan_warning(plan.status().to_string()));
    }
    obstacle_ = plan.status();
    return;
  }
  begin_load(std::move(plan).value(), members, now, actions);
}

// Fewer stages than workers were asked for, and one more now; or quicker by a fifth.
bool ClusterState::is_worth_it(const Plan& plan, size_t members) const {
  const size_t asked_for = std::min<size_t>(options_.workers, members);
  const bool fills_up =
      plan_->stages.size() < asked_for && plan.stages.size() > plan_->stages.size();
  return fills_up || gain(plan, *plan_) >= kWorthLoading;
}

void ClusterState::look_for_better(TimePoint now, ClusterActions& actions) {
  if (phase_ != ClusterPhase::ready || !next_look_ || now < *next_look_) return;
  next_look_.reset();
  Members members;
  bool has_spare = false;
  for (const Member* member : membership_.members()) {
    if (is_excluded(*member)) continue;
    const bool is_spare = stage_of(member->id) == nullptr;
    const auto until = blame_.not_for_improvement_until(member->hello.name, now);
    if (is_spare && until) {
      next_look_ = std::min(next_look_.value_or(*until), *until);
      continue;
    }
    has_spare = has_spare || is_spare;
    members.push_back(member);
  }
  if (!has_spare) return;
  Result<Plan> plan = plan_for(members);
  if (!plan.ok() || !is_worth_it(*plan, members.size())) {
    if (plan.ok()) tell_spares(*plan, members, actions);
    return;
  }
  if (!is_serving_ && now >= quiet_since_ + options_.quiet) {
    const std::string text =
        fmt::format("the model is placed anew, over {} workers", plan->stages.size());
    place_anew(std::move(plan).value(), members, text, now, actions);
    return;
  }
  next_look_ = now + kLookAgain;
  for (const Member* member : members) {
    tell_spare(*member,
               fmt::format("it gets layers once nobody has been served for {} (predicted: {:.1f} "
                           "times as quick), or at once by strata replan",
                           human_duration(options_.quiet), gain(*plan, *plan_)),
               actions);
  }
}

void ClusterState::tell_spares(const Plan& plan, const Members& members, ClusterActions& actions) {
  for (const Member* member : members) {
    const auto why =
        std::find_if(plan.left_out.begin(), plan.left_out.end(),
                     [&](const LeftOut& node) { return node.node == member->hello.name; });
    tell_spare(*member,
               why != plan.left_out.end()
                   ? why->why
                   : fmt::format("with it the best plan is predicted to be {:.2f} times as quick, "
                                 "and loading anew is worth {:.1f} times; strata replan takes it "
                                 "at once",
                                 gain(plan, *plan_), kWorthLoading),
               actions);
  }
}

// Once for each spare and pipeline.
void ClusterState::tell_spare(const Member& member, const std::string& why,
                              ClusterActions& actions) {
  if (stage_of(member.id) != nullptr || !spares_told_.emplace(member.id, why).second) return;
  actions.push_back(plan_note(fmt::format("{} is a spare: {}", member.hello.name, why)));
}

void ClusterState::place_anew(Plan plan, const Members& members, const std::string& why,
                              TimePoint now, ClusterActions& actions) {
  actions.push_back(plan_note(fmt::format("epoch {} ends: {}", epoch_, why)));
  stop_epoch(unavailable(why, "send the request again, it waits for the next plan"), actions);
  begin_load(std::move(plan), members, now, actions);
}

std::string ClusterState::replan(TimePoint now, ClusterActions& actions) {
  if (phase_ == ClusterPhase::loading || phase_ == ClusterPhase::starting) {
    return fmt::format("epoch {} is being loaded already; ask again once it stands", epoch_);
  }
  blame_.forgive_all();
  accusations_.clear();
  if (phase_ == ClusterPhase::waiting) {
    not_before_ = now;
    try_plan(now, actions);
    if (phase_ == ClusterPhase::waiting) return "no plan is possible: " + obstacle_.to_string();
    return fmt::format("epoch {} is being loaded, over {} workers", epoch_, stages_.size());
  }
  const Members members = membership_.members();
  Result<Plan> plan = plan_for(members);
  if (!plan.ok() || is_same_placement(*plan, *plan_)) {
    return fmt::format("the plan in use is the best for the {} workers that have joined",
                       members.size());
  }
  const std::string text = fmt::format(
      "the model is placed anew, over {} workers, as a person asked for", plan->stages.size());
  place_anew(std::move(plan).value(), members, text, now, actions);
  return fmt::format("epoch {} is being loaded, over {} workers", epoch_, stages_.size());
}

// --- Commands ------------------------------------------------------------------------------------

void ClusterState::begin_load(Plan plan, const Members& members, TimePoint now,
                              ClusterActions& actions) {
  epoch_ = std::max(epoch_, membership_.highest_epoch()) + 1;
  actions.push_back(SaveEpoch{epoch_});
  membership_.set_token_allowance(plan.token_allowance());
  phase_ = ClusterPhase::loading;
  obstacle_ = unavailable("the workers are loading the model", "try again in a moment");
  const TimePoint answer_by = now + std::min(options_.answer_timeout, options_.load_timeout);
  stages_.clear();
  std::set<MemberId> placed;
  stream_key_ = random_hex(kStreamKeyBytes);
  ExpectStreams streams{.epoch = epoch_, .key = stream_key_, .stages = {}};
  for (const PlannedStage& stage : plan.stages) streams.stages.push_back(stage.node_name);
  const std::vector<std::string> names = streams.stages;
  actions.push_back(std::move(streams));
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlannedStage& stage = plan.stages[i];
    const MemberId member = members[stage.node]->id;
    placed.insert(member);
    stages_.push_back({.member = member,
                       .command_id = next_command_,
                       .deadline = answer_by,
                       .watch = StepWatch(stage.forecast)});
    actions.push_back(SendToMember{
        member,
        {.command_id = next_command_++,
         .command =
             remote::LoadStage{.epoch = epoch_,
                               .model = options_.model,
                               .range = stage.range,
                               .kv_type = options_.kv_type,
                               .context_tokens = plan.context,
                               .blocks_per_group = plan.group_blocks,
                               .max_step_tokens = options_.plan.step_tokens,
                               .max_sequences = options_.slots,
                               .threads = 0,
                               .max_outputs = options_.max_outputs,
                               .stream_key = stream_key_,
                               .steps_from = i == 0 ? remote::kCoordinatorNode : names[i - 1],
                               .results_from = i == 0 && names.size() > 1 ? names.back() : ""}}});
  }
  for (const MemberId holder : holders_) {
    if (placed.contains(holder)) continue;
    actions.push_back(SendToMember{
        holder, {.command_id = next_command_++, .command = remote::Unload{.epoch = epoch_}}});
  }
  holders_ = std::move(placed);
  actions.push_back(plan_note(fmt::format("plan of epoch {}:\n{}", epoch_, plan_table(plan))));
  plan_ = std::move(plan);
}

void ClusterState::begin_start(TimePoint now, ClusterActions& actions) {
  phase_ = ClusterPhase::starting;
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
    stages_[i].deadline = now + options_.start_timeout;
    actions.push_back(SendToMember{stages_[i].member,
                                   {.command_id = next_command_++, .command = std::move(start)}});
  }
}

}  // namespace strata::coordinator
