// TokenRate: tokens per second lately, of a counter that somebody looks at now and then.
//
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "runtime/base/clock.h"

namespace strata::coordinator {

class TokenRate {
 public:
  // Since the last look that was at least a second before; until then that look's rate.
  double look(uint64_t tokens, TimePoint now) {
    const double seconds = std::chrono::duration<double>(now - since_).count();
    if (seconds >= 1) {
      rate_ = static_cast<double>(tokens - tokens_) / seconds;
      tokens_ = tokens;
      since_ = now;
    }
    return rate_;
  }

 private:
  TimePoint since_;
  uint64_t tokens_ = 0;
  double rate_ = 0;
};

}  // namespace strata::coordinator
