// Sequence: one request's state inside the engine.
//
// `tokens` (prompt and accepted tokens) with the request's sampling parameters is all that is
// needed to run the sequence again from the start with the same result: the generator counts by
// position. That is how a sequence that was pushed out for want of blocks goes on, and what a
// recovery after a lost stage replays.
//
//   tokens    [ prompt ............ | accepted ... ]
//   planned   ------------------------------------------>  positions that some step has taken
//                                                   ^ at most kLookahead past the last accepted
//
// Threads: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/engine/block_manager.h"
#include "coordinator/engine/request.h"
#include "runtime/base/clock.h"

namespace strata::coordinator {

// Sampled rows of one sequence that may be under way: one at the tail, and one that waits at the
// head for the tail's token, so that the coordinator is never waited for.
inline constexpr uint32_t kLookahead = 2;

struct Sequence {
  RequestId request_id = 0;
  Request request;
  RequestListener listener;
  uint64_t arrival = 0;  // order among all requests; kept when pushed out

  std::vector<int32_t> tokens;     // the request's prompt, then what was accepted
  uint32_t max_new_tokens = 0;     // as the context allows
  uint32_t last_position_end = 0;  // positions that are ever fed: all but the last token
  uint32_t logits_reported = 0;    // prompt positions whose logits the client has
  uint32_t progress_reported = 0;  // prompt positions that the client knows to be computed

  // While in the queue, after the tail was not ready: when to try again, and how often it was not.
  std::optional<TimePoint> ready_at;
  uint32_t postponements = 0;

  // While on a slot.
  uint64_t sequence_id = 0;  // 0: waits in the queue
  uint32_t slot = 0;
  BlockTables tables;
  uint32_t replay_tokens = 0;  // tokens that were known when the slot was opened
  uint32_t planned = 0;        // positions [0, planned) are in some step
  uint32_t samples_in_flight = 0;
  uint32_t rows_in_flight = 0;
  uint64_t last_served = 0;  // step
  bool opened = false;       // the OpenSequence record was sent

  uint32_t prompt_size() const { return static_cast<uint32_t>(request.prompt.size()); }
  uint32_t token_count() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t new_tokens() const { return token_count() - prompt_size(); }
  bool live() const { return sequence_id != 0; }
  // Known tokens that no step has taken yet.
  uint32_t prompt_left() const { return replay_tokens > planned ? replay_tokens - planned : 0; }
  // Of them, those that the next step may take.
  uint32_t prompt_left_in_step() const {
    const uint32_t border = request.step_border;
    return planned < border ? std::min(prompt_left(), border - planned) : prompt_left();
  }
  bool decoding() const { return live() && planned >= replay_tokens && planned > 0; }
  // One more decoding row may be sent: positions are left, and not too many are under way.
  bool decode_ready() const {
    return decoding() && planned < last_position_end && samples_in_flight < kLookahead;
  }
};

}  // namespace strata::coordinator
