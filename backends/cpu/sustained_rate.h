// SustainedRate: how often something can be done in a second, for as long as one likes.
//
// A control group's quota, or a host that hands out processors by the slice, lets a process run at
// full speed for some milliseconds of each 100 and not at all for the rest. The time of one round
// says nothing then; rounds counted over a span of several such periods do.
//
// Threads: the caller's.
#pragma once

#include <algorithm>

namespace strata::cpu {

struct RateSpans {
  int count = 1;         // the best one counts: a moment in which another process ran does not
  double seconds = 0.3;  // of each: three periods of a quota, as the kernel sets them
  // Of the time that a quota allows, if one is known. A group that was idle begins with quota in
  // hand; no span counts more than this part of the fastest round's rate.
  double share = 1;
};

// Rounds per second, after one that does not count. `now_s`: seconds of a steady clock; `stop`:
// true to end early.
template <typename Now, typename Stop, typename Round>
double sustained_rate(const RateSpans& spans, const Now& now_s, const Stop& stop,
                      const Round& round) {
  constexpr double kShortest = 1e-9;
  round();  // touches memory, wakes threads
  double best_span = 0;
  double best_round = 0;
  for (int i = 0; i < spans.count && !stop(); ++i) {
    const double begin = now_s();
    double now = begin;
    int rounds = 0;
    do {
      const double start = now;
      round();
      now = now_s();
      best_round = std::max(best_round, 1 / std::max(now - start, kShortest));
      ++rounds;
    } while (now - begin < spans.seconds && !stop());
    best_span = std::max(best_span, rounds / std::max(now - begin, kShortest));
  }
  return std::min(best_span, best_round * std::min(spans.share, 1.0));
}

}  // namespace strata::cpu
