#include "runtime/grammar/schema_emitter.h"

#include <algorithm>

#include "runtime/grammar/byte_emitter.h"

namespace strata::grammar {
namespace {

// White space that a model may put between two parts: none, a space, or one or two line ends with
// an indentation.
constexpr int kIndentationMax = 20;

// The automaton as a text, to find equal ones.
std::string key_of(const CharDfa& dfa) {
  std::string key;
  const auto add = [&key](uint32_t value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const CharDfa::State& state : dfa.states) {
    add(state.label);
    add(static_cast<uint32_t>(state.edges.size()));
    for (const CharDfa::Edge& edge : state.edges) {
      add(edge.first);
      add(edge.last);
      add(edge.target);
    }
  }
  return key;
}

}  // namespace

Result<std::shared_ptr<const Pda>> SchemaEmitter::emit(const std::vector<ValueDef>& values,
                                                       Strictness strictness, Budget& budget) {
  SchemaEmitter emitter(values, strictness, budget);
  emitter.emit_root();
  while (!emitter.open_.empty()) {
    const ValueId id = emitter.open_.back();
    emitter.open_.pop_back();
    TRY(emitter.emit_value(id));
    if (emitter.pda_->states.size() > kPdaStatesMax) break;
  }
  const std::vector<std::string> names(emitter.pda_->rules.size(), "a part of the schema");
  TRY(finish(*emitter.pda_, names));
  return std::shared_ptr<const Pda>(std::move(emitter.pda_));
}

void SchemaEmitter::emit_root() {
  const RuleId root = pda_->add_rule();
  end_ = pda_->add_state();
  pda_->states[end_].accepts = true;
  if (!is_checking()) {
    space_rule_ = pda_->add_rule();
    const StateId begin = pda_->rules[space_rule_];
    pda_->states[begin].accepts = true;
    pda_->add_edge(begin, ' ', end_);
    const StateId line = pda_->add_state();
    pda_->add_edge(begin, '\n', line);
    pda_->states[line].accepts = true;
    StateId indentation = pda_->add_state();
    pda_->add_edge(line, '\n', indentation);
    StateId last = line;
    for (int i = 0; i <= kIndentationMax; ++i) {
      pda_->states[indentation].accepts = true;
      if (i == kIndentationMax) break;
      const StateId next = pda_->add_state();
      for (const char blank : {' ', '\t'}) {
        if (last == line) pda_->add_edge(line, blank, next);
        pda_->add_edge(indentation, blank, next);
      }
      last = indentation;
      indentation = next;
    }
  }
  const StateId begin = is_checking() ? after_space(pda_->rules[root]) : pda_->rules[root];
  const StateId end = pda_->add_state();
  pda_->states[end].accepts = true;
  pda_->add_call(begin, value_rule(0), end);
  if (is_checking()) after_space(end);
}

// The state after what white space there may be.
StateId SchemaEmitter::after_space(StateId from) {
  if (is_checking()) {
    for (const char space : {' ', '\t', '\n', '\r'}) pda_->add_edge(from, space, from);
    return from;
  }
  const StateId to = pda_->add_state(pda_->states[from].control);
  pda_->add_call(from, space_rule_, to);
  return to;
}

OpId SchemaEmitter::op(Op::Kind kind, uint32_t control, uint32_t value) {
  if (control == 0) return kNoOp;
  return pda_->add_op({kind, control, value});
}

RuleId SchemaEmitter::value_rule(ValueId id) {
  if (rules_[id] == 0) {
    rules_[id] = pda_->add_rule();
    open_.push_back(id);
  }
  return rules_[id];
}

Status SchemaEmitter::emit_value(ValueId id) {
  const ValueDef& value = values_[id];
  const StateId start = pda_->rules[rules_[id]];
  const auto call = [&](RuleId rule) { pda_->add_call(start, rule, end_); };
  std::vector<std::string> words;
  if (value.has_null) words.emplace_back("null");
  if (value.has_true) words.emplace_back("true");
  if (value.has_false) words.emplace_back("false");
  if (!words.empty()) call(plain_rule(any_of_texts(words)));
  if (!value.numbers.empty()) call(plain_rule(value.numbers));
  CharDfa texts;
  for (const StringAlternative& strings : value.strings) {
    if (strings.counted)
      call(counted_rule(strings.min, strings.max));
    else
      texts = texts.empty() ? strings.texts : TRY(unite(texts, strings.texts, budget_));
  }
  if (!texts.empty()) call(string_rule(texts));
  for (const ArrayAlternative& array : value.arrays) call(array_rule(array));
  for (const ObjectAlternative& object : value.objects) call(object_rule(object));
  return ok_status();
}

RuleId SchemaEmitter::plain_rule(const CharDfa& texts) {
  const auto [entry, is_new] = plain_rules_.try_emplace(key_of(texts), 0);
  if (!is_new) return entry->second;
  const std::vector<StateId> states = grammar::emit(texts, Spelling::plain, 0, *pda_);
  for (size_t s = 0; s < states.size(); ++s) {
    pda_->states[states[s]].accepts = texts.states[s].label != 0;
  }
  pda_->rules.push_back(states[0]);
  return entry->second = static_cast<RuleId>(pda_->rules.size() - 1);
}

RuleId SchemaEmitter::string_rule(const CharDfa& texts) {
  const auto [entry, is_new] = string_rules_.try_emplace(key_of(texts), 0);
  if (!is_new) return entry->second;
  const RuleId rule = entry->second = pda_->add_rule();
  const std::vector<StateId> states = grammar::emit(texts, Spelling::json, 0, *pda_);
  pda_->add_edge(pda_->rules[rule], '"', states[0]);
  for (size_t s = 0; s < states.size(); ++s) {
    if (texts.states[s].label != 0) pda_->add_edge(states[s], '"', end_);
  }
  return rule;
}

RuleId SchemaEmitter::counted_rule(uint32_t min, uint32_t max) {
  const auto [entry, is_new] = counted_rules_.try_emplace(std::pair(min, max), 0);
  if (!is_new) return entry->second;
  const RuleId rule = entry->second = pda_->add_rule();
  uint32_t control = 0;
  if (min > 0 || max != kUnlimited) {
    control = static_cast<uint32_t>(pda_->controls.size());
    pda_->controls.push_back({.kind = Control::Kind::counter,
                              .min = min,
                              .max = max,
                              .key_count = 0,
                              .required = {},
                              .dependents = {}});
  }
  const StateId inside = grammar::emit(any_text(), Spelling::json, control, *pda_)[0];
  // Counted where a character begins, so that none is begun that there is no room for.
  const OpId count = op(Op::Kind::count, control);
  for (Pda::Edge& edge : pda_->states[inside].edges) edge.op = count;
  pda_->states[pda_->rules[rule]].control = control;
  pda_->add_edge(pda_->rules[rule], '"', inside);
  pda_->add_edge(inside, '"', end_, op(Op::Kind::enough, control));
  return rule;
}

RuleId SchemaEmitter::array_rule(const ArrayAlternative& array) {
  const RuleId rule = pda_->add_rule();
  // Where an element cannot be, the list ends.
  uint32_t max = array.max;
  for (uint32_t i = 0; i <= array.prefix.size() && i < max; ++i) {
    const ValueId element = i < array.prefix.size() ? array.prefix[i] : array.rest;
    if (!values_[element].possible) max = i;
  }
  const auto prefix = static_cast<uint32_t>(std::min<size_t>(array.prefix.size(), max));
  ArrayAlternative rest = array;
  rest.min = array.min > prefix ? array.min - prefix : 0;
  rest.max = max == kUnlimited ? kUnlimited : max - prefix;
  uint32_t control = 0;
  if (rest.max > 0 && (rest.min > 0 || rest.max != kUnlimited)) {
    control = static_cast<uint32_t>(pda_->controls.size());
    pda_->controls.push_back({.kind = Control::Kind::counter,
                              .min = rest.min,
                              .max = rest.max,
                              .key_count = 0,
                              .required = {},
                              .dependents = {}});
  }
  pda_->states[pda_->rules[rule]].control = control;
  StateId at = pda_->add_state(control);
  pda_->add_edge(pda_->rules[rule], '[', at);
  at = after_space(at);
  for (uint32_t i = 0;; ++i) {
    if (i >= array.min) pda_->add_edge(at, ']', end_);
    if (i == max) break;
    // The first element follows the bracket, all others a comma.
    StateId element = at;
    if (i > 0) {
      element = pda_->add_state(control);
      pda_->add_edge(at, ',', element);
      element = after_space(element);
    }
    if (i == prefix) {
      emit_rest(rest, element, control);
      break;
    }
    StateId next = pda_->add_state(control);
    pda_->add_call(element, value_rule(array.prefix[i]), next);
    at = after_space(next);
  }
  return rule;
}

// Elements after the prefix; `first` is before the first of them.
void SchemaEmitter::emit_rest(const ArrayAlternative& array, StateId first, uint32_t control) {
  const RuleId element = value_rule(array.rest);
  const OpId count = op(Op::Kind::count, control);
  StateId next = pda_->add_state(control);
  pda_->add_call(first, element, next, count);
  next = after_space(next);
  pda_->add_edge(next, ']', end_, op(Op::Kind::enough, control));
  const StateId comma = pda_->add_state(control);
  pda_->add_edge(next, ',', comma, count);
  // Back to the state before the white space that follows an element.
  const StateId again = after_space(comma);
  const StateId done = pda_->states[first].calls.back().next;
  pda_->add_call(again, element, done);
}

Result<std::shared_ptr<const Pda>> compile_schema(std::string_view schema, Strictness strictness) {
  Budget budget;
  return compile_schema(schema, strictness, budget);
}

Result<std::shared_ptr<const Pda>> compile_schema(std::string_view schema, Strictness strictness,
                                                  Budget& budget) {
  const JsonDocument document = TRY(JsonDocument::parse(schema, "schema"));
  const std::vector<ValueDef> values = TRY(SchemaValues::compile(document, strictness, budget));
  if (!values[0].possible) {
    return invalid_argument("the schema matches no document: its keywords contradict each other");
  }
  return SchemaEmitter::emit(values, strictness, budget);
}

}  // namespace strata::grammar
