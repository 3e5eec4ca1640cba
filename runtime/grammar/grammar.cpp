#include "runtime/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/grammar/byte_emitter.h"
#include "runtime/grammar/composed.h"
#include "runtime/grammar/gbnf.h"
#include "runtime/grammar/regex.h"

namespace strata::grammar {
namespace {

// Which rules match some text: whose start leads to an accepting state without calls of rules that
// never end. A call waits until that is known of its rule, so that each edge is followed once.
std::vector<bool> productive_rules(const std::vector<CharDfa>& rules) {
  struct Place {
    uint32_t rule;
    uint32_t state;
  };
  std::vector<bool> productive(rules.size());
  std::vector<std::vector<bool>> reached;
  std::vector<std::vector<Place>> waiting(rules.size());
  std::vector<Place> work;
  const auto reach = [&](Place place) {
    if (reached[place.rule][place.state]) return;
    reached[place.rule][place.state] = true;
    work.push_back(place);
  };
  for (uint32_t rule = 0; rule < rules.size(); ++rule) {
    reached.emplace_back(rules[rule].states.size());
    if (!rules[rule].empty()) reach({rule, 0});
  }
  while (!work.empty()) {
    const Place at = work.back();
    work.pop_back();
    const CharDfa::State& state = rules[at.rule].states[at.state];
    if (state.label != 0 && !productive[at.rule]) {
      productive[at.rule] = true;
      for (const Place& place : waiting[at.rule]) reach(place);
      waiting[at.rule].clear();
    }
    for (const CharDfa::Edge& edge : state.edges) {
      const Place next{at.rule, edge.target};
      if (is_call(edge.first) && !productive[called_rule(edge.first)])
        waiting[called_rule(edge.first)].push_back(next);
      else
        reach(next);
    }
  }
  return productive;
}

// No edges for rules that match nothing.
void prune_calls(CharDfa& dfa, const std::vector<bool>& productive) {
  size_t pruned = 0;
  for (CharDfa::State& state : dfa.states) {
    pruned += std::erase_if(state.edges, [&](const CharDfa::Edge& edge) {
      return is_call(edge.first) && !productive[called_rule(edge.first)];
    });
  }
  if (pruned > 0) minimise(dfa);
}

Result<std::shared_ptr<const Pda>> assemble(std::vector<CharDfa> rules,
                                            const std::vector<std::string>& names) {
  const std::vector<bool> productive = productive_rules(rules);
  if (!productive[0]) {
    return invalid_argument("the grammar matches no text: 'root' has no way to end");
  }
  auto pda = std::make_shared<Pda>();
  for (size_t rule = 0; rule < rules.size(); ++rule) pda->rules.push_back(0);
  for (size_t rule = 0; rule < rules.size(); ++rule) {
    if (!productive[rule]) rules[rule].states.clear();
    prune_calls(rules[rule], productive);
    if (rules[rule].empty()) {
      pda->rules[rule] = pda->add_state();
      continue;
    }
    const std::vector<StateId> states = emit(rules[rule], Spelling::plain, 0, *pda);
    if (states.size() != rules[rule].states.size() || pda->states.size() > kPdaStatesMax) break;
    for (size_t s = 0; s < states.size(); ++s) {
      pda->states[states[s]].accepts = rules[rule].states[s].label != 0;
    }
    pda->rules[rule] = states[0];
  }
  TRY(finish(*pda, names));
  return std::shared_ptr<const Pda>(std::move(pda));
}

}  // namespace

Result<std::shared_ptr<const Pda>> compile_gbnf(std::string_view text) {
  ExprPool pool;
  const GbnfRules rules = TRY(parse_gbnf(text, pool));
  Budget budget;
  std::vector<CharDfa> automata;
  for (size_t rule = 0; rule < rules.bodies.size(); ++rule) {
    automata.push_back(
        TRY(compile(pool, rules.bodies[rule], false, budget)
                .with_context(fmt::format("grammar, rule '{}'", printable(rules.names[rule])))));
  }
  return assemble(std::move(automata), rules.names);
}

Result<std::shared_ptr<const Pda>> compile_regex(std::string_view pattern) {
  std::vector<CharDfa> automata;
  Budget budget;
  automata.push_back(TRY(regex_dfa(pattern, false, budget)));
  if (automata[0].empty()) {
    return invalid_argument("the regular expression matches no text");
  }
  return assemble(std::move(automata), {"the regular expression"});
}

Result<std::shared_ptr<const Pda>> compile_grammar(const GrammarSpec& spec, Strictness strictness) {
  if (spec.text.size() > kGrammarBytesMax) {
    return invalid_argument(fmt::format("the {} has {} bytes, at most {} are supported",
                                        grammar_kind_name(spec.kind), spec.text.size(),
                                        kGrammarBytesMax));
  }
  switch (spec.kind) {
    case GrammarSpec::Kind::json_schema:
      return compile_schema(spec.text, strictness);
    case GrammarSpec::Kind::gbnf:
      return compile_gbnf(spec.text);
    case GrammarSpec::Kind::regex:
      return compile_regex(spec.text);
    case GrammarSpec::Kind::composed:
      return compile_composed(spec.text);
    case GrammarSpec::Kind::none:
      break;
  }
  return invalid_argument("no grammar is given");
}

}  // namespace strata::grammar
