// The rule of an object: its names as one automaton with the register's guards, members in any
// order.
//
//   '{' ws  ( '}' | '"' name '"' ws ':' ws value ws ( ',' ws '"' name ... | '}' ) )
#include <algorithm>
#include <map>

#include "runtime/grammar/byte_emitter.h"
#include "runtime/grammar/schema_emitter.h"

namespace strata::grammar {
namespace {

void add_reach(Reach& to, const Reach& from) {
  for (size_t i = 0; i < to.keys.size(); ++i) to.keys[i] |= from.keys[i];
  to.other = to.other || from.other;
}

}  // namespace

struct SchemaEmitter::Names {
  const ObjectAlternative& object;
  CharDfa automaton = {};
  uint32_t control = 0;
  StateId begin = 0;    // after the opening quote
  StateId members = 0;  // after a member's value
};

RuleId SchemaEmitter::object_rule(const ObjectAlternative& object) {
  const RuleId rule = pda_->add_rule();
  Names names{.object = object};
  names.automaton = object.names;
  for (CharDfa::State& state : names.automaton.states) {
    if (state.label == 0) continue;
    const ObjectAlternative::Label& label = object.labels[state.label - 1];
    if (!values_[label.value].possible)
      state.label = 0;
    else if (label.key == kUnlimited)
      pda_->tracks_keys = true;
  }
  minimise(names.automaton);
  const bool has_limits = object.min > 0 || object.max != kUnlimited;
  if (has_limits || !object.keys.empty()) {
    names.control = static_cast<uint32_t>(pda_->controls.size());
    pda_->controls.push_back({.kind = Control::Kind::object,
                              .min = object.min,
                              .max = object.max,
                              .key_count = static_cast<uint32_t>(object.keys.size()),
                              .required = object.required,
                              .dependents = object.dependents});
  }
  const uint32_t control = names.control;
  const StateId start = pda_->rules[rule];
  pda_->states[start].control = control;
  StateId open = pda_->add_state(control);
  pda_->add_edge(start, '{', open);
  open = after_space(open);
  const OpId close = op(Op::Kind::close, control);
  pda_->add_edge(open, '}', end_, close);
  if (object.max == 0 || names.automaton.empty()) return rule;

  names.members = pda_->add_state(control);
  const StateId next = after_space(names.members);
  emit_names(names);
  pda_->add_edge(open, '"', names.begin);
  pda_->add_edge(next, '}', end_, close);
  const StateId comma = pda_->add_state(control);
  pda_->states[comma].guard = pda_->states[names.begin].guard;
  pda_->add_edge(next, ',', comma);
  pda_->add_edge(after_space(comma), '"', names.begin);
  return rule;
}

void SchemaEmitter::emit_names(Names& names) {
  const uint32_t control = names.control;
  const auto begin = static_cast<StateId>(pda_->states.size());
  const Spelling spelling = is_checking() ? Spelling::json : Spelling::json_short;
  const std::vector<StateId> states = grammar::emit(names.automaton, spelling, control, *pda_);
  const auto end = static_cast<StateId>(pda_->states.size());
  names.begin = states[0];
  // After the name: one way to the value for all names with the same.
  std::map<ValueId, StateId> after_name;
  for (size_t s = 0; s < states.size() && s < names.automaton.states.size(); ++s) {
    const uint32_t label_number = names.automaton.states[s].label;
    if (label_number == 0) continue;
    const ObjectAlternative::Label& label = names.object.labels[label_number - 1];
    const auto [entry, is_new] = after_name.try_emplace(label.value, 0);
    if (is_new) {
      entry->second = pda_->add_state(control);
      const StateId colon = pda_->add_state(control);
      pda_->add_edge(after_space(entry->second), ':', colon);
      pda_->add_call(after_space(colon), value_rule(label.value), names.members);
    }
    const OpId add = label.key == kUnlimited ? op(Op::Kind::other_key, control)
                                             : op(Op::Kind::key, control, label.key);
    pda_->add_edge(states[s], '"', entry->second, add);
  }
  if (control != 0) set_guards(names, begin, end);
}

// Tells each state inside a name which members it can still become, so that a name is not begun
// that cannot come any more.
void SchemaEmitter::set_guards(const Names& names, StateId begin, StateId end) {
  const size_t count = end - begin;
  Reach none{.keys = Bits((names.object.keys.size() + 63) / 64), .other = false};
  std::vector<Reach> reaches(count, none);
  std::vector<std::vector<uint32_t>> sources(count);
  std::vector<uint32_t> work;
  for (uint32_t s = 0; s < count; ++s) {
    for (const Pda::Edge& edge : pda_->states[begin + s].edges) {
      if (edge.target >= begin && edge.target < end) {
        sources[edge.target - begin].push_back(s);
        continue;
      }
      const Op& op = pda_->ops[edge.op];
      if (op.kind == Op::Kind::other_key) reaches[s].other = true;
      if (op.kind == Op::Kind::key)
        reaches[s].keys[op.value / 64] |= uint64_t{1} << (op.value % 64);
      work.push_back(s);
    }
  }
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (const uint32_t source : sources[state]) {
      const Reach before = reaches[source];
      add_reach(reaches[source], reaches[state]);
      const bool changed =
          before.keys != reaches[source].keys || before.other != reaches[source].other;
      if (changed) work.push_back(source);
    }
  }
  std::map<std::pair<Bits, bool>, OpId> guards;
  for (uint32_t s = 0; s < count; ++s) {
    // Without a maximum, another name may always come.
    if (reaches[s].other && names.object.max == kUnlimited) continue;
    const auto [entry, is_new] = guards.try_emplace({reaches[s].keys, reaches[s].other}, kNoOp);
    if (is_new) {
      pda_->reaches.push_back(reaches[s]);
      entry->second =
          op(Op::Kind::reach, names.control, static_cast<uint32_t>(pda_->reaches.size() - 1));
    }
    pda_->states[begin + s].guard = entry->second;
  }
}

}  // namespace strata::grammar
