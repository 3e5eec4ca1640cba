#include "runtime/grammar/pda.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "runtime/base/utf8.h"

namespace strata::grammar {
namespace {

// What each rule can do before it has read anything.
//
// A rule's states are followed through calls of rules that may be empty; calls of others wait until
// that is known of them, so that nothing is looked at twice.
class Beginnings {
 public:
  explicit Beginnings(const Pda& pda)
      : first_calls_(pda.rules.size()), nullable_(pda.rules.size()), waiting_(pda.rules.size()) {
    for (RuleId rule = 0; rule < pda.rules.size(); ++rule) reach(rule, pda.rules[rule]);
    while (!work_.empty()) {
      const auto [rule, id] = work_.back();
      work_.pop_back();
      const Pda::State& state = pda.states[id];
      if (state.accepts) set_nullable(rule);
      for (const Pda::Call& call : state.calls) {
        first_calls_[rule].push_back(call.rule);
        if (nullable_[call.rule])
          reach(rule, call.next);
        else
          waiting_[call.rule].push_back({rule, call.next});
      }
    }
  }

  // The rules that each rule may call first.
  const std::vector<std::vector<RuleId>>& first_calls() const { return first_calls_; }

 private:
  struct Place {
    RuleId rule;
    StateId state;
  };

  void reach(RuleId rule, StateId state) {
    if (seen_.insert((uint64_t{rule} << 32) | state).second) work_.push_back({rule, state});
  }
  void set_nullable(RuleId rule) {
    if (nullable_[rule]) return;
    nullable_[rule] = true;
    for (const Place& place : waiting_[rule]) reach(place.rule, place.state);
    waiting_[rule].clear();
  }

  std::vector<std::vector<RuleId>> first_calls_;
  std::vector<bool> nullable_;
  std::vector<std::vector<Place>> waiting_;  // by the rule that would have to be empty
  std::unordered_set<uint64_t> seen_;
  std::vector<Place> work_;
};

Status check_left_recursion(const Pda& pda, const std::vector<std::string>& names) {
  const Beginnings beginnings(pda);
  const std::vector<std::vector<RuleId>>& first_calls = beginnings.first_calls();
  const size_t count = pda.rules.size();
  std::vector<uint32_t> callers(count);
  for (const std::vector<RuleId>& calls : first_calls) {
    for (const RuleId called : calls) ++callers[called];
  }
  // Takes away rules that nobody is left to call first; what stays lies on a cycle or behind one.
  std::vector<RuleId> free;
  for (RuleId rule = 0; rule < count; ++rule) {
    if (callers[rule] == 0) free.push_back(rule);
  }
  size_t taken = 0;
  for (; taken < free.size(); ++taken) {
    for (const RuleId called : first_calls[free[taken]]) {
      if (--callers[called] == 0) free.push_back(called);
    }
  }
  if (taken == count) return ok_status();
  // Walking back over first callers that stay ends on the cycle.
  std::vector<RuleId> caller_of(count);
  RuleId rule = 0;
  for (RuleId caller = 0; caller < count; ++caller) {
    if (callers[caller] == 0) continue;
    rule = caller;
    for (const RuleId called : first_calls[caller]) caller_of[called] = caller;
  }
  for (size_t i = 0; i < count; ++i) rule = caller_of[rule];
  return invalid_argument(
      fmt::format("rule '{}' is left-recursive: it may call itself before it reads anything",
                  printable(names[rule])),
      "write the repetition with * or +, as in: list ::= item (\",\" item)*");
}

}  // namespace

Status finish(Pda& pda, const std::vector<std::string>& rule_names) {
  if (pda.states.size() > kPdaStatesMax) {
    return resource_exhausted(fmt::format("the grammar needs {} states, at most {} are supported",
                                          pda.states.size(), kPdaStatesMax),
                              "use smaller length limits and fewer alternatives");
  }
  for (Pda::State& state : pda.states) {
    std::sort(state.edges.begin(), state.edges.end(),
              [](const Pda::Edge& a, const Pda::Edge& b) { return a.first < b.first; });
  }
  return check_left_recursion(pda, rule_names);
}

}  // namespace strata::grammar
