#include "runtime/grammar/state_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace strata::grammar {
namespace {

constexpr size_t kMarks = 4096;
static_assert(kMarks > 2 * kConfigurationsMax);
// Together about 150 MB at most.
constexpr size_t kSituationsMax = 400000;
constexpr size_t kConfigurationsTotalMax = 4000000;
constexpr size_t kNodesMax = 1000000;
constexpr size_t kTablesMax = 30000;
constexpr size_t kRegistersMax = 200000;

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ULL + (hash << 6) + (hash >> 2);
  hash *= 0xFF51AFD7ED558CCDULL;
  return hash ^ (hash >> 32);
}

uint64_t hash_of(const Configuration& c) { return mix(mix(mix(1, c.state), c.reg), c.node); }

// What a call leaves behind if nothing is left to do after it.
bool only_accepts(const Pda::State& state) {
  return state.accepts && state.edges.empty() && state.calls.empty() && state.guard == kNoOp;
}

}  // namespace

StateSpace::StateSpace(std::shared_ptr<const Pda> pda)
    : pda_(std::move(pda)), registers_(pda_), marks_(kMarks), mark_rounds_(kMarks) {
  nodes_.emplace_back();
  situations_.emplace_back();  // kDead
}

SituationId StateSpace::start() { return closed(pda_->rules[0], 0); }

SituationId StateSpace::closed(StateId state, uint32_t reg) {
  begin();
  visit({state, reg, kBottom});
  return close();
}

SituationId StateSpace::alone(StateId state, uint32_t reg) {
  readers_.assign(1, {state, reg, kBottom});
  return intern(false);
}

SituationId StateSpace::step(SituationId from, uint8_t byte) {
  begin();
  const Situation& situation = situations_[from];
  same_first_ = 0;
  same_last_ = 255;
  for (uint32_t i = 0; i < situation.count; ++i) {
    const Configuration& c = configurations_[situation.first + i];
    const std::vector<Pda::Edge>& edges = pda_->states[c.state].edges;
    auto edge = std::upper_bound(edges.begin(), edges.end(), byte,
                                 [](uint8_t value, auto& e) { return value < e.first; });
    if (edge != edges.end()) {
      same_last_ = std::min(same_last_, static_cast<uint8_t>(edge->first - 1));
    }
    if (edge == edges.begin()) continue;
    --edge;
    if (edge->last < byte) {
      same_first_ = std::max(same_first_, static_cast<uint8_t>(edge->last + 1));
      continue;
    }
    same_first_ = std::max(same_first_, edge->first);
    same_last_ = std::min(same_last_, edge->last);
    const uint32_t reg = registers_.apply(edge->op, c.reg);
    if (reg != kRefused) visit({edge->target, reg, c.node});
  }
  return close();
}

SituationId StateSpace::step_and_keep(SituationId from, uint8_t byte) {
  Situation& situation = situations_[from];
  // One walk may meet more situations than there should be tables for; then it goes without.
  if (situation.next == nullptr && tables_ >= kTablesMax) return step(from, byte);
  if (situation.next == nullptr) {
    situation.next = std::make_unique<SituationId[]>(256);
    std::fill_n(situation.next.get(), 256, kUnknown);
    ++tables_;
  }
  const SituationId to = step(from, byte);
  SituationId* const next = situations_[from].next.get();  // the reference above may be stale
  std::fill(next + same_first_, next + same_last_ + 1, to);
  return to;
}

std::vector<bool> StateSpace::next_bytes(SituationId id) {
  std::vector<bool> bytes(256);
  for (const Configuration& c : configurations(id)) {
    for (const Pda::Edge& edge : pda_->states[c.state].edges) {
      const uint32_t reg = registers_.apply(edge.op, c.reg);
      if (reg == kRefused) continue;
      const OpId guard = pda_->states[edge.target].guard;
      if (guard != kNoOp && registers_.apply(guard, reg) == kRefused) continue;
      for (unsigned byte = edge.first; byte <= edge.last; ++byte) bytes[byte] = true;
    }
  }
  return bytes;
}

bool StateSpace::full() const {
  return situations_.size() > kSituationsMax || nodes_.size() > kNodesMax ||
         configurations_.size() > kConfigurationsTotalMax || tables_ >= kTablesMax ||
         registers_.size() > kRegistersMax;
}

void StateSpace::begin() {
  work_.clear();
  readers_.clear();
  failure_ = ok_status();
  ++round_;
}

void StateSpace::visit(const Configuration& configuration) {
  size_t slot = hash_of(configuration) % kMarks;
  while (mark_rounds_[slot] == round_) {
    if (work_[marks_[slot]] == configuration) return;
    slot = (slot + 1) % kMarks;
  }
  if (work_.size() >= kConfigurationsMax) {
    failure_ = resource_exhausted(
        fmt::format("the grammar is too ambiguous: a text can be read in more than {} ways",
                    kConfigurationsMax),
        "give alternatives that begin alike one common beginning");
    return;
  }
  mark_rounds_[slot] = round_;
  marks_[slot] = static_cast<uint32_t>(work_.size());
  work_.push_back(configuration);
}

SituationId StateSpace::close() {
  bool ends = false;
  for (size_t i = 0; i < work_.size() && failure_.ok(); ++i) {
    const Configuration c = work_[i];
    const Pda::State& state = pda_->states[c.state];
    if (state.guard != kNoOp && registers_.apply(state.guard, c.reg) == kRefused) continue;
    if (!state.edges.empty()) readers_.push_back(c);
    if (state.accepts) {
      if (c.node == kBottom) {
        ends = true;
      } else {
        const Node& back = nodes_[c.node];
        visit({back.state, back.reg, back.parent});
      }
    }
    for (const Pda::Call& call : state.calls) {
      const uint32_t reg = registers_.apply(call.op, c.reg);
      if (reg == kRefused) continue;
      const bool tail = only_accepts(pda_->states[call.next]);
      visit({pda_->rules[call.rule], 0, tail ? c.node : push(call.next, reg, c.node)});
    }
  }
  visited_ += work_.size();
  if (!failure_.ok()) return kDead;
  return intern(ends);
}

NodeId StateSpace::push(StateId state, uint32_t reg, NodeId parent) {
  const uint64_t hash = mix(mix(mix(2, state), reg), parent);
  const NodeId known = node_numbers_.find(hash, [&](NodeId candidate) {
    const Node& node = nodes_[candidate];
    return node.state == state && node.reg == reg && node.parent == parent;
  });
  if (known != NumberIndex::kNone) return known;
  const uint32_t depth = nodes_[parent].depth + 1;
  if (depth > kStackDepthMax) {
    failure_ = resource_exhausted(
        fmt::format("the text nests deeper than {} levels of the grammar", kStackDepthMax));
    return kBottom;
  }
  const auto id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back({state, reg, parent, depth});
  node_numbers_.add(hash, id);
  return id;
}

SituationId StateSpace::intern(bool ends) {
  if (readers_.empty() && !ends) return kDead;
  std::sort(readers_.begin(), readers_.end());
  uint64_t hash = ends ? 3 : 4;
  for (const Configuration& c : readers_) hash = mix(hash, hash_of(c));
  const SituationId known = situation_numbers_.find(hash, [&](SituationId candidate) {
    const std::span<const Configuration> readers = configurations(candidate);
    return situations_[candidate].ends == ends &&
           std::equal(readers.begin(), readers.end(), readers_.begin(), readers_.end());
  });
  if (known != NumberIndex::kNone) return known;
  const auto id = static_cast<SituationId>(situations_.size());
  Situation& situation = situations_.emplace_back();
  situation.first = configurations_.size();
  situation.count = static_cast<uint32_t>(readers_.size());
  situation.ends = ends;
  configurations_.insert(configurations_.end(), readers_.begin(), readers_.end());
  situation_numbers_.add(hash, id);
  return id;
}

SituationId StateSpace::adopt(SituationId id, const StateSpace& other) {
  std::unordered_map<NodeId, NodeId> names = {{kBottom, kBottom}};
  std::vector<Configuration> readers;
  for (const Configuration& c : other.configurations(id)) {
    std::vector<NodeId> path;
    NodeId at = c.node;
    for (; !names.contains(at); at = other.node(at).parent) path.push_back(at);
    for (NodeId parent = names[at]; !path.empty(); path.pop_back()) {
      const Node& node = other.node(path.back());
      const uint32_t control = pda_->states[node.state].control;
      parent = push(node.state, registers_.adopt(control, node.reg, other.registers_), parent);
      names[path.back()] = parent;
    }
    const uint32_t control = pda_->states[c.state].control;
    readers.push_back({c.state, registers_.adopt(control, c.reg, other.registers_), names[c.node]});
  }
  readers_ = std::move(readers);
  return intern(other.ends(id));
}

}  // namespace strata::grammar
