// Time as a seam: code that waits or measures takes a Clock, so that tests can move it by hand.
#pragma once

#include <chrono>

namespace strata {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

// Threads: any.
class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; never wall-clock time, which jumps.
  virtual TimePoint now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace strata
