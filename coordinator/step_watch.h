// StepWatch: whether a stage's steps take as long as the plan foretold.
//
// A speed is measured once, when a worker starts; a machine that is throttled, or busy with
// something else, is slower afterwards, and everybody waits for it. Heartbeats say how much a stage
// has done and for how long it computed; over windows of some seconds that is compared with the
// forecast.
//
// Pure. Threads: externally synchronised (the coordinator's control thread).
#pragma once

#include <optional>
#include <string>

#include "backends/remote/cluster_records.h"
#include "coordinator/planner/plan.h"
#include "runtime/base/clock.h"

namespace strata::coordinator {

class StepWatch {
 public:
  explicit StepWatch(const StepForecast& forecast) : forecast_(forecast) {}

  // True when the stage has just become slow, for the first time.
  bool observe(const remote::Heartbeat& beat, TimePoint now);

  // Of a step in the last window that was long enough; nothing before.
  struct Times {
    double took_us = 0;
    double forecast_us = 0;
  };
  const std::optional<Times>& times() const { return times_; }
  // Far from the forecast in two windows one after the other, and in the last one.
  bool is_slow() const { return slow_windows_ >= kSlowWindows; }
  // "its steps take 14.5 ms, 4.2 times ...". Requires: is_slow().
  std::string slow_text() const;

 private:
  static constexpr int kSlowWindows = 2;

  const StepForecast forecast_;
  std::optional<remote::Heartbeat> begin_;  // of the window
  TimePoint begin_at_;
  std::optional<Times> times_;
  int slow_windows_ = 0;
  bool was_slow_ = false;
};

}  // namespace strata::coordinator
