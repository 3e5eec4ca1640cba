// Matcher: how far a text fits a grammar, byte by byte.
//
// A matcher is small and copied cheaply, so that a sequence can go on in several ways (speculation,
// several answers), and it is a function of the bytes alone, so that it can be rebuilt from the
// tokens so far. Matchers of one grammar should share a StateSpace: what one of them has found out
// about the automaton helps the others.
//
// Threads: externally synchronised, together with all that share the space.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/grammar/key_tracker.h"
#include "runtime/grammar/state_space.h"

namespace strata::grammar {

class Matcher {
 public:
  // Where the grammar cannot even begin, as its first state hits a bound, nothing is ever accepted
  // and failure() says why.
  explicit Matcher(std::shared_ptr<StateSpace> space);
  explicit Matcher(std::shared_ptr<const Pda> pda)
      : Matcher(std::make_shared<StateSpace>(std::move(pda))) {}

  // True if all bytes fit; else nothing has changed, and `failure()` may say why: a bound that was
  // hit, a name that came twice.
  bool accept(std::string_view bytes);
  // The bytes of it that fit, from the beginning. Stays behind those.
  size_t accept_some(std::string_view bytes);

  // The text may end here.
  bool can_end() const { return space_->ends(situation_); }
  // Whether a member's name that is begun, or due after a comma, can end as one that its object
  // does not have yet. True where no name is awaited; and where none of some thousand ways ends,
  // since then there are more.
  bool can_end_name() const;
  // Bytes that any continuation begins with, up to `bytes_max` of them; empty where there is a
  // choice, which ending is one of.
  std::string forced_bytes(size_t bytes_max) const;
  // What may come, for an error: "'\"', a digit or '-'".
  std::string expected() const;
  const Status& failure() const { return failure_; }

  StateSpace& space() const { return *space_; }
  const std::shared_ptr<StateSpace>& shared_space() const { return space_; }
  SituationId situation() const { return situation_; }
  // Goes on in another space of the same Pda.
  void move_to(std::shared_ptr<StateSpace> space);

 private:
  bool accept_byte(uint8_t byte);

  std::shared_ptr<StateSpace> space_;
  SituationId situation_;
  KeyTracker keys_;  // used if the Pda asks for it
  Status failure_;
};

}  // namespace strata::grammar
