#include "runtime/grammar/free_runs.h"

#include <algorithm>
#include <bit>

namespace strata::grammar {
namespace {

// Targets and guards of more kinds than these are not followed.
constexpr size_t kTargetsMax = 64;
constexpr size_t kGuardsMax = 8;
// States that are looked at for one run: more would take longer than the walk it spares...
constexpr size_t kExploredMax = 64;
// ...but once a grammar, where all of its states may turn out to lead to each other.
constexpr size_t kExploredOnceMax = 4096;
// A run that was found on the way is good enough if it is this long: few tokens are longer.
constexpr uint32_t kLongEnough = 16;

int size_of(ClassSet set) { return std::popcount(set); }

// Those of the characters that begin with the edge's bytes; beyond ASCII this is not told apart.
ClassSet classes_begun(const Pda::Edge& edge) {
  ClassSet classes = edge.last >= 0x80 ? kWideClasses : 0;
  for (uint32_t byte = edge.first; byte <= edge.last && byte < 0x80; ++byte) {
    classes |= class_of(byte);
  }
  return classes;
}

ClassSet everything_possible(const Pda::State& state) {
  ClassSet classes = 0;
  for (const Pda::Edge& edge : state.edges) classes |= classes_begun(edge);
  return classes;
}

// False if there is no room for it.
bool add_guard(std::vector<OpId>& guards, OpId guard) {
  if (guard == kNoOp || std::find(guards.begin(), guards.end(), guard) != guards.end()) return true;
  if (guards.size() >= kGuardsMax) return false;
  guards.push_back(guard);
  return true;
}

}  // namespace

FreeRuns::FreeRuns(std::shared_ptr<const Pda> pda, uint32_t characters_max)
    : pda_(std::move(pda)),
      characters_max_(std::max(characters_max, 1U)),
      steps_(pda_->states.size()),
      known_(pda_->states.size()),
      marks_(pda_->states.size()) {}

FreeRuns::Run FreeRuns::of(StateId state, uint32_t reg, Registers& registers) {
  if (known_[state] == nullptr) find_run(state);
  const Known& known = *known_[state];
  Run run = known.run;
  for (const OpId guard : known.guards) {
    if (registers.apply(guard, reg) == kRefused) return {};
  }
  if (known.count != kNoOp) {
    const Control& control = pda_->controls[pda_->ops[known.count].control];
    const uint32_t room = control.max > reg ? control.max - reg : 0;
    if (control.max != kUnlimited && room < run.characters) {
      run.characters = room;
      run.is_exact = known.ends_with_counter;
    }
  }
  return run.characters == 0 ? Run{} : run;
}

// The classes that go on for longest, as far as one look ahead tells: without those that lead
// elsewhere, such as the quote that ends a string.
ClassSet FreeRuns::lasting(StateId state) {
  const Steps& here = steps(state);
  ClassSet kept = here.classes;
  for (const Steps::Target& target : here.targets) {
    if (2 * size_of(steps(target.state).classes & here.classes) < size_of(here.classes)) {
      kept &= ~target.classes;
    }
  }
  ClassSet common = kept;
  for (const Steps::Target& target : here.targets) {
    if ((target.classes & kept) != 0) common &= steps(target.state).classes;
  }
  if (common != 0) return common;
  // Before the last character: what leads to the same place.
  for (const Steps::Target& target : here.targets) {
    const ClassSet alike = target.classes & here.classes;
    if (size_of(alike) > size_of(common)) common = alike;
  }
  return common;
}

void FreeRuns::find_run(StateId state) {
  const ClassSet classes = lasting(state);
  Exploration found = explore(state, classes, kExploredMax);
  if (found.was_cut && may_explore_far_) {
    may_explore_far_ = false;
    found = explore(state, classes, kExploredOnceMax);
  }
  const Known& known = found.known;
  known_[state] = std::make_unique<Known>(known);
  // What was passed on the way has a run too, shorter by the way.
  const bool endless = found.is_closed;
  for (const Reached& passed : found.reached) {
    if (!endless && known.run.characters < passed.distance + kLongEnough) break;
    if (known_[passed.state] != nullptr) continue;
    if (2 * size_of(classes) < size_of(steps(passed.state).classes)) continue;
    Known rest = known;
    if (!endless) rest.run.characters -= passed.distance;
    known_[passed.state] = std::make_unique<Known>(std::move(rest));
  }
}

// Breadth first over what the classes lead to, up to the nearest state that does not take them all.
FreeRuns::Exploration FreeRuns::explore(StateId state, ClassSet classes, size_t states_max) {
  Exploration result;
  if (classes == 0) return result;
  ++round_;
  Known& known = result.known;
  known.run = {classes, characters_max_};
  std::vector<Reached>& reached = result.reached;
  reached.push_back({state, 0});
  marks_[state] = round_;
  for (size_t i = 0; i < reached.size(); ++i) {
    const Reached at = reached[i];
    if (at.distance >= characters_max_) {
      result.is_closed = false;
      break;
    }
    const Steps& here = steps(at.state);
    result.was_cut = i >= states_max;
    bool takes_all = (classes & ~here.classes) == 0 && !result.was_cut;
    if (here.count != kNoOp) {
      takes_all = takes_all && (known.count == kNoOp || known.count == here.count);
      if (takes_all) known.count = here.count;
    }
    for (const OpId guard : here.guards) takes_all = takes_all && add_guard(known.guards, guard);
    for (const Steps::Target& target : here.targets) {
      if (!takes_all) break;
      if ((target.classes & classes) == 0 || marks_[target.state] == round_) continue;
      marks_[target.state] = round_;
      takes_all = add_guard(known.guards, pda_->states[target.state].guard);
      reached.push_back({target.state, at.distance + 1});
    }
    if (takes_all) continue;
    known.run.characters = at.distance;
    result.is_closed = false;
    break;
  }
  // One way without a branch, and at its end nothing of the classes: that is all there is.
  const bool one_way = std::all_of(reached.begin(), reached.end(), [&](const Reached& at) {
    return goes_one_way(at.state, classes);
  });
  const StateId last = reached.back().state;
  const bool is_endless = known.run.characters == characters_max_;
  known.run.is_exact = one_way && !is_endless && known.guards.empty() && !result.was_cut &&
                       (everything_possible(pda_->states[last]) & classes) == 0;
  known.ends_with_counter = one_way && is_endless && reached.size() == 1 && steps(state).all_count;
  return result;
}

// Whether the state is left by a character only, and all of the classes lead to one state.
bool FreeRuns::goes_one_way(StateId id, ClassSet classes) {
  const Pda::State& state = pda_->states[id];
  if (state.accepts || !state.calls.empty()) return false;
  const std::vector<Steps::Target>& targets = steps(id).targets;
  return std::count_if(targets.begin(), targets.end(), [classes](const Steps::Target& target) {
           return (target.classes & classes) != 0;
         }) <= 1;
}

ClassSet FreeRuns::possible(StateId state, uint32_t reg, Registers& registers) const {
  ClassSet classes = 0;
  for (const Pda::Edge& edge : pda_->states[state].edges) {
    if (registers.apply(edge.op, reg) != kRefused) classes |= classes_begun(edge);
  }
  return classes;
}

const FreeRuns::Steps& FreeRuns::steps(StateId id) {
  if (steps_[id] != nullptr) return *steps_[id];
  Steps& steps = *(steps_[id] = std::make_unique<Steps>());
  const Pda::State& state = pda_->states[id];
  if (state.edges.empty()) return steps;
  look_at_ascii(state, steps);
  for (const WideClass& wide : wide_classes()) {
    const bool all = std::all_of(
        wide.sequences.begin(), wide.sequences.end(),
        [&](const ByteSequence& sequence) { return takes(state, sequence, 0, wide.set, steps); });
    if (all) steps.classes |= wide.set;
  }
  return steps;
}

void FreeRuns::look_at_ascii(const Pda::State& state, Steps& steps) {
  ClassSet refused = 0;
  uint32_t byte = 0;
  for (const Pda::Edge& edge : state.edges) {
    for (; byte < edge.first && byte < 128; ++byte) refused |= class_of(byte);
    if (byte >= 128) break;
    ClassSet read = 0;
    for (; byte <= edge.last && byte < 128; ++byte) read |= class_of(byte);
    if (!allows_op(edge, steps) || !reaches(edge.target, read, steps)) refused |= read;
  }
  for (; byte < 128; ++byte) refused |= class_of(byte);
  steps.classes = kAsciiClasses & ~refused;
}

// Whether all characters that the sequence spells from byte `at` on are taken. Depth: at most 4.
bool FreeRuns::takes(const Pda::State& state, const ByteSequence& sequence, uint32_t at,
                     ClassSet set, Steps& steps) {
  const ByteSequence::Range range = sequence.bytes[at];
  auto edge = std::upper_bound(state.edges.begin(), state.edges.end(), range.first,
                               [](uint8_t byte, const Pda::Edge& e) { return byte < e.first; });
  if (edge == state.edges.begin()) return false;
  --edge;
  const Pda::Edge* last_looked_at = nullptr;
  for (uint32_t byte = range.first; byte <= range.last; ++edge) {
    if (edge == state.edges.end() || edge->first > byte || edge->last < byte) return false;
    byte = edge->last + 1U;
    if (at == 0 ? !allows_op(*edge, steps) : edge->op != kNoOp) return false;
    if (last_looked_at != nullptr && last_looked_at->target == edge->target) continue;
    last_looked_at = &*edge;
    if (at + 1 == sequence.count) {
      if (!reaches(edge->target, set, steps)) return false;
      continue;
    }
    const Pda::State& next = pda_->states[edge->target];
    if (!add_guard(steps.guards, next.guard)) return false;
    if (!takes(next, sequence, at + 1, set, steps)) return false;
  }
  return true;
}

// A state that reads on is alive whatever waits on the stack.
bool FreeRuns::reaches(StateId target, ClassSet set, Steps& steps) const {
  if (pda_->states[target].edges.empty()) return false;
  for (Steps::Target& known : steps.targets) {
    if (known.state != target) continue;
    known.classes |= set;
    return true;
  }
  if (steps.targets.size() >= kTargetsMax) return false;
  steps.targets.push_back({target, set});
  return true;
}

bool FreeRuns::allows_op(const Pda::Edge& edge, Steps& steps) const {
  if (edge.op == kNoOp) {
    steps.all_count = false;
    return true;
  }
  if (pda_->ops[edge.op].kind != Op::Kind::count) return false;
  if (steps.count == kNoOp) steps.count = edge.op;
  return steps.count == edge.op;
}

}  // namespace strata::grammar
