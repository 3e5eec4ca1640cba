// ClusterState: from joined workers to a running pipeline, and back when one is lost.
//
//            enough workers              all loaded                all started
//   waiting ----------------> loading ----------------> starting ----------------> ready
//      ^                         |                          |                        |
//      +-------------------------+--------------------------+------------------------+
//              a worker of the plan is lost, or a command fails: next epoch
//
// Pure: what workers say, what happens to their streams and time go in; commands to workers, and
// the beginning and end of a pipeline come out. Each plan has an epoch, higher than any that a
// member has ever seen; answers to commands of an older one are ignored.
//
// After a loss the plan waits a moment for the worker to come back (a restarted process is back in
// about a second), then goes on with those that remain, if they suffice.
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
  MembershipOptions membership;
  Duration rejoin_grace = std::chrono::milliseconds(2000);
  Duration load_timeout = std::chrono::minutes(30);  // without any progress of a load
  Duration start_timeout = std::chrono::seconds(15);
  Duration retry_delay_max = std::chrono::seconds(10);
};

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
// All stages stand: connect to the head and attach the engine.
struct StartPipeline {
  uint64_t epoch = 0;
  Plan plan;
  std::string head_name;
  std::string head_address;
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
using ClusterAction =
    std::variant<SendToMember, SaveEpoch, EndStream, StartPipeline, StopPipeline, Note>;
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
  // The pipeline of `epoch` cannot go on: the head could not be reached, or a stream broke.
  void on_pipeline_failure(uint64_t epoch, const Status& why, TimePoint now,
                           ClusterActions& actions);
  // The engine has waited for a step too long. Looks for the stage that holds it up and gives it
  // up, if one does; else says between whom the step was lost.
  void on_pipeline_stall(uint64_t epoch, const Status& why, TimePoint now, ClusterActions& actions);
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
    remote::StageMemory memory;
    StepWatch watch;
  };

  void lose(MemberId id, const Status& why, TimePoint now, ClusterActions& actions);
  void end_epoch(const Status& why, TimePoint now, ClusterActions& actions);
  std::string where_step_is_lost() const;
  void try_plan(TimePoint now, ClusterActions& actions);
  size_t usable_members() const;
  Result<Plan> plan_members(std::vector<const Member*>& members) const;
  void begin_load(Plan plan, const std::vector<const Member*>& members, TimePoint now,
                  ClusterActions& actions);
  void begin_start(TimePoint now, ClusterActions& actions);
  void on_done(MemberId id, const remote::CommandDone& done, TimePoint now,
               ClusterActions& actions);
  void on_load_progress(const Member& member, const remote::LoadProgress& progress, TimePoint now,
                        ClusterActions& actions);
  StageState* stage_of(MemberId id);
  const StageState* stage_of(MemberId id) const;
  std::string why_spare(const std::string& name) const;
  remote::NodeStatus node_status(const Member& member, TimePoint now) const;

  ClusterOptions options_;
  Membership membership_;
  ClusterPhase phase_ = ClusterPhase::waiting;
  uint64_t epoch_;
  std::optional<Plan> plan_;
  std::vector<StageState> stages_;  // as plan_->stages
  uint64_t next_command_ = 1;

  bool was_ready_ = false;         // there has been a pipeline
  size_t members_when_ready_ = 0;  // at the last one
  Status obstacle_;                // why there is none now
  TimePoint phase_deadline_;       // of loading and starting
  TimePoint not_before_;           // the next plan
  bool plan_wanted_ = false;       // at not_before_ if that is to come
  uint32_t failures_in_row_ = 0;
  std::map<MemberId, uint32_t> load_percent_noted_;
  std::set<MemberId> holders_;  // were told to load a stage and not to drop it
};

}  // namespace strata::coordinator
