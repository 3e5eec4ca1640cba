#include "coordinator/step_watch.h"

#include <fmt/format.h>

#include "runtime/base/human.h"

namespace strata::coordinator {
namespace {

constexpr Duration kWindow = std::chrono::seconds(2);
// Computing that a window must hold: less is all noise.
constexpr double kLeastBusyUs = 50e3;
// A forecast leaves out what it does not know, such as how well attention uses the memory: a stage
// is far from it beyond this.
constexpr double kFar = 3;
// Beyond this many tokens to a step, steps are prompts', bound by attention that no forecast has.
constexpr double kDecodingTokens = 16;
// Beside products and reading: graphs, threads that wake up, the sampler.
constexpr double kOverheadUs = 500;

double grown(uint64_t before, uint64_t after) { return static_cast<double>(after - before); }

std::string time_text(double us) {
  return human_duration(std::chrono::nanoseconds(static_cast<int64_t>(us * 1e3)));
}

}  // namespace

bool StepWatch::observe(const remote::Heartbeat& beat, TimePoint now) {
  const bool goes_on = begin_ && begin_->epoch == beat.epoch && begin_->busy_ns <= beat.busy_ns &&
                       begin_->steps_done <= beat.steps_done &&
                       begin_->tokens_done <= beat.tokens_done &&
                       begin_->positions_read <= beat.positions_read;
  if (!goes_on) {
    begin_ = beat;
    begin_at_ = now;
    return false;
  }
  if (now - begin_at_ < kWindow) return false;
  const double steps = grown(begin_->steps_done, beat.steps_done);
  const double tokens = grown(begin_->tokens_done, beat.tokens_done);
  const double positions = grown(begin_->positions_read, beat.positions_read);
  const double busy_us = grown(begin_->busy_ns, beat.busy_ns) / 1e3;
  begin_ = beat;
  begin_at_ = now;
  if (steps == 0 || busy_us < kLeastBusyUs || tokens > steps * kDecodingTokens) return false;
  const double forecast_us = steps * (forecast_.read_us + kOverheadUs) +
                             tokens * forecast_.token_us + positions * forecast_.position_us;
  times_ = Times{.took_us = busy_us / steps, .forecast_us = forecast_us / steps};
  slow_windows_ = busy_us > kFar * forecast_us ? slow_windows_ + 1 : 0;
  if (!is_slow() || was_slow_) return false;
  was_slow_ = true;
  return true;
}

std::string StepWatch::slow_text() const {
  return fmt::format(
      "its steps take {}, {:.1f} times the {} that its measured speed foretold: its processors may "
      "be throttled or busy with something else; started anew it is measured again",
      time_text(times_->took_us), times_->took_us / times_->forecast_us,
      time_text(times_->forecast_us));
}

}  // namespace strata::coordinator
