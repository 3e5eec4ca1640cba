// ClusterState: from joined workers to a running pipeline, and back when one is lost.
//
//            enough workers              all loaded              a step has gone round
//   waiting ----------------> loading ----------------> starting ----------------> ready
//      ^                         |                          |                        |
//      +-------------------------+--------------------------+------------------------+
//        a worker of the plan is lost, a command fails, a better plan: next epoch
//
// Pure: what workers say, what happens to their streams and time go in; commands to workers, and
// the beginning and end of a pipeline come out. Each plan has an epoch, higher than any that a
// member has ever seen; answers to commands of an older one are ignored.
//
// After a loss the plan waits a moment for the worker to come back (a restarted process is back in
// about a second), then goes on with those that remain, if they suffice. Whom failures name is left
// out of the next plans for a while (blame.h), unless the others do not suffice; what a worker says
// of another counts only for the streams that it writes itself. A worker that joins later is used
// at once if no pipeline stands; else when nobody is being served, if the plan with it is better by
// a fifth or there were fewer than the number asked for.
//
// cluster_state.cpp has members and epochs, cluster_plans.cpp when and with whom to plan,
// cluster_status.cpp what people are shown.
//
// Threads: externally synchronised (the coordinator's control thread).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "backends/remote/client_records.h"
#include "coordinator/blame.h"
#include "coordinator/membership.h"
#include "coordinator/planner/planner.h"
#include "coordinator/step_watch.h"

namespace strata::coordinator {

struct ClusterOptions {
  std::string cluster_id;
  remote::ModelName model;
  ModelProfile profile;
  PlanOptions plan;
  std::string kv_type = "f16";
  uint32_t slots = 16;
  // Waits for so many that are not excluded before the first plan, and uses them all (see
  // PlanOptions::use_all_nodes); 0: plans once those that have joined suffice.
  uint32_t workers = 0;
  uint64_t last_epoch = 0;   // the first plan gets a higher one
  uint32_t max_outputs = 0;  // positions of one step whose logits are wanted; 0: `slots`
  // On which nodes the last pipeline of this model and number of workers ran, before this
  // coordinator was started: they need not be joined by others.
  std::vector<std::string> last_nodes = {};
  MembershipOptions membership;
  Duration rejoin_grace = std::chrono::milliseconds(2000);
  // Without a number of workers the first plan waits for so long after the last that joined, and
  // at most so long in all.
  Duration settle = std::chrono::milliseconds(1500);
  Duration settle_max = std::chrono::seconds(5);
  Duration quiet = std::chrono::seconds(2);  // nobody served for so long: time for a better plan
  Duration answer_timeout = std::chrono::seconds(5);  // until a worker is seen to load
  Duration load_timeout = std::chrono::minutes(1);    // without any progress of a worker's load
  Duration start_timeout = std::chrono::seconds(15);
  Duration retry_delay_max = std::chrono::seconds(10);
};

// The node as the planner is told of it.
PlannerNode planner_node(const Member& member);

enum class ClusterPhase : uint8_t { waiting, loading, starting, ready };

// What the caller does after each event, in order.
struct SendToMember {
  MemberId member = 0;
  remote::ToWorker message;
};
// Must be on disk before any later action: a restarted coordinator begins above it.
struct SaveEpoch {
  uint64_t epoch = 0;
};
struct EndStream {
  MemberId member = 0;
  Status why;
};
// A plan's stages will open their streams of results here, with this key.
struct ExpectStreams {
  uint64_t epoch = 0;
  std::string key;
  std::vector<std::string> stages;  // nodes, the tail last
};
// All stages stand: connect to the head, attach the engine, send a first step round, and say
// on_pipeline_proven().
struct StartPipeline {
  uint64_t epoch = 0;
  Plan plan;
  std::string head_name;
  std::string head_address;
  std::string stream_key;
};
// The pipeline serves. `nodes` are worth knowing after a restart.
struct PipelineReady {
  uint64_t epoch = 0;
  std::vector<std::string> nodes;
};
// The pipeline is no more; requests end with `why`.
struct StopPipeline {
  uint64_t epoch = 0;
  Status why;
};
// One line for people: progress and what went wrong.
struct Note {
  bool is_warning = false;
  std::string text;
};
using ClusterAction = std::variant<SendToMember, SaveEpoch, EndStream, ExpectStreams, StartPipeline,
                                   PipelineReady, StopPipeline, Note>;
using ClusterActions = std::vector<ClusterAction>;

class ClusterState {
 public:
  explicit ClusterState(ClusterOptions options);

  // `address`: where others reach the worker.
  void on_hello(MemberId id, const remote::Hello& hello, const std::string& address, TimePoint now,
                ClusterActions& actions);
  void on_message(MemberId id, const remote::FromWorker& message, TimePoint now,
                  ClusterActions& actions);
  // The Join stream of a member ended.
  void on_stream_end(MemberId id, const Status& why, TimePoint now, ClusterActions& actions);
  // A step has gone through all stages of `epoch`, and its token from the tail to the head.
  void on_pipeline_proven(uint64_t epoch, TimePoint now, ClusterActions& actions);
  // The pipeline of `epoch` cannot go on: the coordinator's own stream to the head broke, or could
  // not be opened.
  void on_pipeline_failure(uint64_t epoch, const Status& why, TimePoint now,
                           ClusterActions& actions);
  // The engine has waited for a step too long. Looks for the stage that holds it up and gives it
  // up, if one does; else says between whom the step was lost.
  void on_pipeline_stall(uint64_t epoch, const Status& why, TimePoint now, ClusterActions& actions);
  // Whether somebody is being served, for a better plan's time. Call before on_tick().
  void set_serving(bool is_serving, TimePoint now);
  // A person wants the best plan of now: forgives all blame and places the model anew, if that
  // changes anything. What is done, for that person.
  std::string replan(TimePoint now, ClusterActions& actions);
  void on_tick(TimePoint now, ClusterActions& actions);
  std::optional<TimePoint> next_wakeup() const;

  ClusterPhase phase() const { return phase_; }
  uint64_t epoch() const { return epoch_; }
  // Why there is no pipeline: what clients are told meanwhile. OK when ready.
  Status obstacle() const;
  const std::optional<Plan>& plan() const { return plan_; }
  // True if a stage of the current plan is on the node of that name.
  bool has_stage_on(const std::string& node_name) const;
  // Without the engine's numbers.
  remote::ClusterStatus status(TimePoint now) const;

 private:
  struct StageState {
    MemberId member = 0;
    uint64_t command_id = 0;  // of the command that is waited for; 0: done
    remote::StageMemory memory = {};
    TimePoint deadline = {};    // of the command, moved on by what a load reports
    bool has_answered = false;  // the worker is seen to load
    remote::LoadProgress load = {};
    uint64_t progress = 0;  // Heartbeat::progress, of a load
    StepWatch watch;
  };
  // That the way to a member is broken; counts with the next plan, if the member still lives.
  struct Accusation {
    MemberId accused = 0;
    std::string why;
    std::string accuser;  // another member; empty for none
    bool in_service = false;
  };
  using Members = std::vector<const Member*>;

  // cluster_state.cpp
  void on_heartbeat(const Member& member, const remote::Heartbeat& beat, TimePoint now,
                    ClusterActions& actions);
  void on_peer_lost(const Member& member, const remote::PeerLost& lost, TimePoint now,
                    ClusterActions& actions);
  void on_done(MemberId id, const remote::CommandDone& done, TimePoint now,
               ClusterActions& actions);
  void on_load_progress(StageState& stage, const remote::Heartbeat& beat, TimePoint now,
                        ClusterActions& actions);
  // `points`: what the loss of a worker with a stage weighs.
  void lose(MemberId id, const Status& why, uint32_t points, TimePoint now,
            ClusterActions& actions);
  void end_epoch(const Status& why, TimePoint now, ClusterActions& actions);
  void stop_epoch(const Status& why, ClusterActions& actions);
  void end_late_commands(TimePoint now, ClusterActions& actions);
  // True if a stage has computed on one step for too long; its worker is then lost.
  bool give_up_hung_stage(TimePoint now, ClusterActions& actions);
  // Charges the two between whom a step was lost, and says who they are.
  std::string blame_lost_step(TimePoint now);
  // Charges the node by the phase: `starting` before the pipeline stands, `serving` later.
  void blame(const std::string& node, uint32_t starting, uint32_t serving, const std::string& why,
             TimePoint now);
  void accuse(MemberId accused, std::string why);
  void settle_accusations(TimePoint now);
  bool writes_to(size_t stage_index, const std::string& peer) const;
  const std::string& name_of(size_t stage_index) const;
  StageState* stage_of(MemberId id);
  const StageState* stage_of(MemberId id) const;

  // cluster_plans.cpp
  void try_plan(TimePoint now, ClusterActions& actions);
  // By a person, from all plans.
  bool is_excluded(const Member& member) const;
  size_t usable_members() const;
  bool awaits_number(TimePoint now);
  bool awaits_more(TimePoint now);
  bool are_back(const std::vector<std::string>& names) const;
  Result<Plan> plan_for(const Members& members) const;
  Result<Plan> plan_members(Members& members, TimePoint now) const;
  void begin_load(Plan plan, const Members& members, TimePoint now, ClusterActions& actions);
  void begin_start(TimePoint now, ClusterActions& actions);
  void look_for_better(TimePoint now, ClusterActions& actions);
  bool is_worth_it(const Plan& plan, size_t members) const;
  void tell_spares(const Plan& plan, const Members& members, ClusterActions& actions);
  void tell_spare(const Member& member, const std::string& why, ClusterActions& actions);
  void place_anew(Plan plan, const Members& members, const std::string& why, TimePoint now,
                  ClusterActions& actions);

  // cluster_status.cpp
  remote::NodeStatus node_status(const Member& member, TimePoint now) const;
  std::string why_spare(const Member& member, TimePoint now) const;

  ClusterOptions options_;
  Membership membership_;
  Blame blame_;
  std::vector<Accusation> accusations_;  // one or two for each epoch
  ClusterPhase phase_ = ClusterPhase::waiting;
  uint64_t epoch_;
  std::optional<Plan> plan_;
  std::vector<StageState> stages_;  // as plan_->stages
  std::string stream_key_;          // of the epoch, see backends/remote/stream_gate.h
  uint64_t next_command_ = 1;

  bool was_ready_ = false;                   // there has been a pipeline
  std::vector<std::string> ran_on_;          // the nodes of the last one
  Status obstacle_;                          // why there is none now
  std::optional<TimePoint> proof_deadline_;  // a first step goes round
  TimePoint not_before_;                     // the next plan
  bool plan_wanted_ = false;                 // at not_before_ if that is to come
  bool awaits_return_ = false;               // of a lost worker, until not_before_
  TimePoint first_join_;
  TimePoint last_join_;
  uint32_t failures_in_row_ = 0;
  TimePoint served_since_;  // the minute of service that fades blame
  TimePoint quiet_since_;   // nobody is being served
  bool is_serving_ = false;
  std::optional<TimePoint> next_look_;           // for a better plan
  std::map<MemberId, std::string> spares_told_;  // why they stay spares
  std::set<MemberId> holders_;                   // were told to load a stage and not to drop it
};

}  // namespace strata::coordinator
