#include "runtime/grammar/pda.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"

namespace strata::grammar {
namespace {

// States that each rule can be in before it has read anything; `nullable` calls are passed over.
std::vector<StateId> before_reading(const Pda& pda, RuleId rule, const std::vector<bool>& nullable,
                                    std::vector<uint32_t>& mark) {
  std::vector<StateId> states = {pda.rules[rule]};
  mark[states[0]] = rule + 1;
  for (size_t i = 0; i < states.size(); ++i) {
    for (const Pda::Call& call : pda.states[states[i]].calls) {
      if (!nullable[call.rule] || mark[call.next] == rule + 1) continue;
      mark[call.next] = rule + 1;
      states.push_back(call.next);
    }
  }
  return states;
}

std::vector<bool> nullable_rules(const Pda& pda) {
  std::vector<bool> nullable(pda.rules.size());
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<uint32_t> mark(pda.states.size());
    for (RuleId rule = 0; rule < pda.rules.size(); ++rule) {
      if (nullable[rule]) continue;
      const std::vector<StateId> states = before_reading(pda, rule, nullable, mark);
      nullable[rule] = std::any_of(states.begin(), states.end(),
                                   [&](StateId s) { return pda.states[s].accepts; });
      changed = changed || nullable[rule];
    }
  }
  return nullable;
}

Status check_left_recursion(const Pda& pda, const std::vector<std::string>& names) {
  const std::vector<bool> nullable = nullable_rules(pda);
  const size_t count = pda.rules.size();
  std::vector<std::vector<RuleId>> first_calls(count);
  std::vector<uint32_t> callers(count);
  std::vector<uint32_t> mark(pda.states.size());
  for (RuleId rule = 0; rule < count; ++rule) {
    for (const StateId state : before_reading(pda, rule, nullable, mark)) {
      for (const Pda::Call& call : pda.states[state].calls) {
        first_calls[rule].push_back(call.rule);
        ++callers[call.rule];
      }
    }
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
