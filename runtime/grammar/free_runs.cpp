#include "runtime/grammar/free_runs.h"

#include <algorithm>
#include <bit>

namespace strata::grammar {
namespace {

constexpr ClassSet kAsciiClasses = (uint64_t{1} << 43) - 1;
// Targets and guards of more kinds than these are not followed.
constexpr size_t kTargetsMax = 64;
constexpr size_t kGuardsMax = 8;
// States that are looked at for one run: more would take longer than the walk they spare.
constexpr size_t kExploredMax = 512;
// A run that was found on the way is good enough if it is this long: three of four tokens are not.
constexpr uint32_t kLongEnough = 12;

int size_of(ClassSet set) { return std::popcount(set); }

// False if there is no room for it.
bool add_guard(std::vector<OpId>& guards, OpId guard) {
  if (guard == kNoOp || std::find(guards.begin(), guards.end(), guard) != guards.end()) return true;
  if (guards.size() >= kGuardsMax) return false;
  guards.push_back(guard);
  return true;
}

}  // namespace

FreeRuns::FreeRuns(std::shared_ptr<const Pda> pda, uint32_t characters_max)
    : pda_(std::move(pda)), characters_max_(std::max(characters_max, 1U)) {}

FreeRuns::Run FreeRuns::of(StateId state, uint32_t reg, Registers& registers) {
  auto entry = known_.find(state);
  if (entry == known_.end()) entry = known_.emplace(state, explore(state)).first;
  const Known& known = entry->second;
  Run run = known.run;
  for (const OpId guard : known.guards) {
    if (registers.apply(guard, reg) == kRefused) return {};
  }
  if (known.count != kNoOp) {
    const Control& control = pda_->controls[pda_->ops[known.count].control];
    if (control.max != kUnlimited) {
      run.characters = std::min(run.characters, control.max > reg ? control.max - reg : 0);
    }
  }
  return run.characters == 0 ? Run{} : run;
}

// The classes that go on for longest, as far as one look ahead tells: without those that lead
// elsewhere, such as the quote that ends a string.
ClassSet FreeRuns::lasting(StateId state) {
  const Steps here = steps(state);  // copied: others are looked at
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
  return common;
}

// Breadth first over what the classes lead to, up to the nearest state that does not take them all.
FreeRuns::Known FreeRuns::explore(StateId state) {
  const ClassSet classes = lasting(state);
  if (classes == 0) return {};
  struct Found {
    StateId state;
    uint32_t distance;
  };
  std::vector<Found> found = {{state, 0}};
  std::unordered_map<StateId, bool> seen = {{state, true}};
  Known known{.run = {classes, characters_max_}, .count = kNoOp, .guards = {}};
  for (size_t i = 0; i < found.size(); ++i) {
    const Found at = found[i];
    if (at.distance >= characters_max_) break;
    const Steps& here = steps(at.state);
    bool takes_all = (classes & ~here.classes) == 0 && i < kExploredMax;
    if (here.count != kNoOp) {
      takes_all = takes_all && (known.count == kNoOp || known.count == here.count);
      if (takes_all) known.count = here.count;
    }
    for (const OpId guard : here.guards) takes_all = takes_all && add_guard(known.guards, guard);
    for (const Steps::Target& target : here.targets) {
      if (!takes_all) break;
      if ((target.classes & classes) == 0 || !seen.emplace(target.state, true).second) continue;
      takes_all = add_guard(known.guards, pda_->states[target.state].guard);
      found.push_back({target.state, at.distance + 1});
    }
    if (takes_all) continue;
    known.run.characters = at.distance;
    break;
  }
  // What was passed on the way has a run too, shorter by the way.
  for (const Found& passed : found) {
    const bool endless = known.run.characters == characters_max_;
    if (!endless && known.run.characters < passed.distance + kLongEnough) break;
    if (passed.state == state || lasting(passed.state) != classes) continue;
    Known rest = known;
    if (!endless) rest.run.characters -= passed.distance;
    known_.emplace(passed.state, std::move(rest));
  }
  return known;
}

const FreeRuns::Steps& FreeRuns::steps(StateId id) {
  const auto [entry, is_new] = steps_.try_emplace(id);
  Steps& steps = entry->second;
  if (!is_new) return steps;
  const Pda::State& state = pda_->states[id];
  if (state.edges.empty()) return steps;
  look_at_ascii(state, steps);
  for (const WideClass& wide : wide_classes()) {
    const bool all = std::all_of(
        wide.sequences.begin(), wide.sequences.end(), [&](const ByteSequence& sequence) {
          return takes(state, sequence, 0, wide.set, steps);
        });
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
  if (edge.op == kNoOp) return true;
  if (pda_->ops[edge.op].kind != Op::Kind::count) return false;
  if (steps.count == kNoOp) steps.count = edge.op;
  return steps.count == edge.op;
}

}  // namespace strata::grammar
