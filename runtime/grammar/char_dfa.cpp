#include "runtime/grammar/char_dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "runtime/base/utf8.h"
#include "runtime/text/unicode.h"

namespace strata::grammar {
namespace {

// Joins neighbouring edges with one target.
void join_edges(std::vector<CharDfa::Edge>& edges) {
  size_t kept = 0;
  for (const CharDfa::Edge& edge : edges) {
    if (kept > 0 && edges[kept - 1].target == edge.target &&
        edges[kept - 1].last + 1 == edge.first) {
      edges[kept - 1].last = edge.last;
    } else {
      edges[kept++] = edge;
    }
  }
  edges.resize(kept);
}

// For each state that the start leads to, the fewest letters that are left to an accepting state;
// kNoState where there is none, and for states that are not reached.
std::vector<uint32_t> distances_to_end(const CharDfa& dfa) {
  const size_t count = dfa.states.size();
  std::vector<std::vector<uint32_t>> sources(count);
  std::vector<bool> reached(count);
  std::vector<uint32_t> work = {0};
  reached[0] = true;
  for (size_t i = 0; i < work.size(); ++i) {
    for (const CharDfa::Edge& edge : dfa.states[work[i]].edges) {
      sources[edge.target].push_back(work[i]);
      if (reached[edge.target]) continue;
      reached[edge.target] = true;
      work.push_back(edge.target);
    }
  }
  std::vector<uint32_t> distances(count, kNoState);
  std::erase_if(work, [&dfa](uint32_t state) { return dfa.states[state].label == 0; });
  for (const uint32_t state : work) distances[state] = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    for (const uint32_t source : sources[work[i]]) {
      if (distances[source] != kNoState) continue;
      distances[source] = distances[work[i]] + 1;
      work.push_back(source);
    }
  }
  return distances;
}

// The automaton with state s renamed to names[s]; kNoState drops a state and the edges to it.
CharDfa renamed(const CharDfa& dfa, const std::vector<uint32_t>& names, uint32_t count) {
  CharDfa result;
  result.states.resize(count);
  for (size_t s = 0; s < dfa.states.size(); ++s) {
    if (names[s] == kNoState) continue;
    CharDfa::State& state = result.states[names[s]];
    if (!state.edges.empty()) continue;  // an equivalent one was first
    state.label = dfa.states[s].label;
    for (CharDfa::Edge edge : dfa.states[s].edges) {
      edge.target = names[edge.target];
      if (edge.target != kNoState) state.edges.push_back(edge);
    }
    join_edges(state.edges);
  }
  return result;
}

// Drops states that are of no use. What is left comes in classes, a first division: by the distance
// to the end, since most automata are chains for long stretches, which this tells apart at once.
std::vector<uint32_t> trim(CharDfa& dfa) {
  std::vector<uint32_t> distances = distances_to_end(dfa);
  std::vector<uint32_t> names(dfa.states.size(), kNoState);
  uint32_t count = 0;
  for (size_t s = 0; s < names.size(); ++s) {
    if (distances[s] != kNoState) names[s] = count++;
  }
  if (names[0] == kNoState) count = 0;
  dfa = count == 0 ? CharDfa() : renamed(dfa, names, count);
  std::erase(distances, kNoState);
  return distances;
}

// What tells a state from another one, given the classes found so far: label, then edges by class.
using Signature = std::vector<uint32_t>;

struct SignatureHash {
  size_t operator()(const Signature& signature) const {
    uint64_t hash = signature.size();
    for (const uint32_t value : signature) {
      hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

Signature signature_of(const CharDfa::State& state, const std::vector<uint32_t>& classes) {
  Signature signature = {state.label};
  for (const CharDfa::Edge& edge : state.edges) {
    const uint32_t target = classes[edge.target];
    const size_t size = signature.size();
    if (size > 1 && signature[size - 1] == target && signature[size - 2] + 1 == edge.first) {
      signature[size - 2] = edge.last;
    } else {
      signature.insert(signature.end(), {edge.first, edge.last, target});
    }
  }
  return signature;
}

// Rounds of refinement, each as costly as the automaton is large: beyond these it stays as it is,
// which costs memory and nothing else.
constexpr size_t kRefinementWorkMax = 2'000'000;

}  // namespace

Status Budget::spend(size_t work) {
  if (work > left_) {
    left_ = 0;
    return invalid_argument("the grammar takes too much work to compile",
                            "use fewer or simpler patterns, lengths and alternatives");
  }
  left_ -= work;
  return ok_status();
}

uint32_t CharDfa::step(uint32_t state, uint32_t letter) const {
  const std::vector<Edge>& edges = states[state].edges;
  const auto after =
      std::upper_bound(edges.begin(), edges.end(), letter,
                       [](uint32_t value, const Edge& edge) { return value < edge.first; });
  if (after == edges.begin() || std::prev(after)->last < letter) return kNoState;
  return std::prev(after)->target;
}

uint32_t CharDfa::match(std::string_view utf8) const {
  if (states.empty()) return 0;
  uint32_t state = 0;
  for (size_t offset = 0; offset < utf8.size() && state != kNoState;) {
    const DecodedCharacter next = decode_utf8(utf8, offset);
    if (!next.valid) return 0;
    state = step(state, next.code_point);
    offset += next.length;
  }
  return state == kNoState ? 0 : states[state].label;
}

CharDfa any_text() {
  CharDfa dfa;
  dfa.states.resize(1);
  dfa.states[0].label = 1;
  for (const CodeRange& range : CodeSet::all().ranges()) {
    dfa.states[0].edges.push_back({range.first, range.last, 0});
  }
  return dfa;
}

CharDfa text_of_length(uint32_t min, uint32_t max) {
  CharDfa dfa;
  if (min > max) return dfa;
  const bool unbounded = max == kUnbounded;
  const uint32_t last = unbounded ? min : max;
  dfa.states.resize(size_t{last} + 1);
  for (uint32_t length = 0; length <= last; ++length) {
    CharDfa::State& state = dfa.states[length];
    state.label = length >= min ? 1 : 0;
    if (length == last && !unbounded) break;
    const uint32_t target = std::min(length + 1, last);
    for (const CodeRange& range : CodeSet::all().ranges()) {
      state.edges.push_back({range.first, range.last, target});
    }
  }
  return dfa;
}

CharDfa any_of_texts(std::span<const std::string> texts) {
  CharDfa dfa;
  dfa.states.resize(1);
  for (size_t i = 0; i < texts.size(); ++i) {
    uint32_t state = 0;
    for (size_t offset = 0; offset < texts[i].size();) {
      const DecodedCharacter next = decode_utf8(texts[i], offset);
      offset += next.length;
      uint32_t target = dfa.step(state, next.code_point);
      if (target == kNoState) {
        target = static_cast<uint32_t>(dfa.states.size());
        dfa.states.emplace_back();
        std::vector<CharDfa::Edge>& edges = dfa.states[state].edges;
        const CharDfa::Edge edge{next.code_point, next.code_point, target};
        edges.insert(
            std::upper_bound(edges.begin(), edges.end(), edge,
                             [](const auto& a, const auto& b) { return a.first < b.first; }),
            edge);
      }
      state = target;
    }
    if (dfa.states[state].label == 0) dfa.states[state].label = static_cast<uint32_t>(i + 1);
  }
  minimise(dfa);
  return dfa;
}

void minimise(CharDfa& dfa) {
  if (dfa.empty()) return;
  std::vector<uint32_t> classes = trim(dfa);
  const size_t count = dfa.states.size();
  if (count < 2) return;
  size_t class_count = 0;  // not numbered from 0 yet
  for (size_t work = 0; work < kRefinementWorkMax; work += count * 8) {
    std::unordered_map<Signature, uint32_t, SignatureHash> found;
    found.reserve(count);
    std::vector<uint32_t> next(count);
    for (size_t s = 0; s < count; ++s) {
      // States that differed once stay apart: the old class is part of what is compared.
      Signature signature = signature_of(dfa.states[s], classes);
      signature.push_back(classes[s]);
      next[s] = found.try_emplace(std::move(signature), static_cast<uint32_t>(found.size()))
                    .first->second;
    }
    classes = std::move(next);
    if (found.size() == class_count) {
      // State 0 is looked at first, so its class is 0.
      dfa = renamed(dfa, classes, static_cast<uint32_t>(class_count));
      return;
    }
    class_count = found.size();
    if (class_count == count) return;
  }
}

namespace {

// The pieces into which the edges of several states cut the letters, with each one's targets.
struct SideBySide {
  struct Piece {
    uint32_t first;
    uint32_t last;
    std::vector<uint32_t> targets;  // kNoState where a part has failed
  };
  std::vector<Piece> pieces;

  SideBySide(std::span<const CharDfa* const> parts, const std::vector<uint32_t>& at) {
    std::vector<uint32_t> cuts;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (at[i] == kNoState) continue;
      for (const CharDfa::Edge& edge : parts[i]->states[at[i]].edges) {
        cuts.push_back(edge.first);
        cuts.push_back(edge.last + 1);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      Piece piece{cuts[c], cuts[c + 1] - 1, std::vector<uint32_t>(parts.size(), kNoState)};
      bool alive = false;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (at[i] != kNoState) piece.targets[i] = parts[i]->step(at[i], piece.first);
        alive = alive || piece.targets[i] != kNoState;
      }
      if (alive) pieces.push_back(std::move(piece));
    }
  }
};

}  // namespace

Result<CharDfa> product(std::span<const CharDfa* const> parts,
                        const std::function<uint32_t(std::span<const uint32_t>)>& label,
                        Budget& budget) {
  std::vector<std::vector<uint32_t>> tuples(1);
  for (const CharDfa* part : parts) tuples[0].push_back(part->empty() ? kNoState : 0);
  std::map<std::vector<uint32_t>, uint32_t> names = {{tuples[0], 0}};
  CharDfa dfa;
  size_t edge_count = 0;
  std::vector<uint32_t> labels(parts.size());
  for (size_t s = 0; s < tuples.size(); ++s) {
    const std::vector<uint32_t> at = tuples[s];
    CharDfa::State state;
    for (size_t i = 0; i < parts.size(); ++i) {
      labels[i] = at[i] == kNoState ? 0 : parts[i]->states[at[i]].label;
    }
    state.label = label(labels);
    SideBySide side(parts, at);
    for (SideBySide::Piece& piece : side.pieces) {
      const auto [entry, is_new] =
          names.try_emplace(piece.targets, static_cast<uint32_t>(tuples.size()));
      if (is_new) tuples.push_back(std::move(piece.targets));
      state.edges.push_back({piece.first, piece.last, entry->second});
    }
    join_edges(state.edges);
    edge_count += state.edges.size();
    TRY(budget.spend(50 * (parts.size() + side.pieces.size())));
    dfa.states.push_back(std::move(state));
    if (tuples.size() > kDfaStatesMax || edge_count > kDfaEdgesMax) {
      return invalid_argument(
          fmt::format("an automaton of more than {} states", kDfaStatesMax),
          "use shorter lengths, smaller numbers or fewer alternatives in the same place");
    }
  }
  minimise(dfa);
  return dfa;
}

Result<CharDfa> intersection(const CharDfa& a, const CharDfa& b, Budget& budget) {
  const std::array parts = {&a, &b};
  return product(
      parts, [](auto labels) { return labels[0] != 0 && labels[1] != 0 ? 1U : 0U; }, budget);
}

Result<CharDfa> difference(const CharDfa& a, const CharDfa& b, Budget& budget) {
  const std::array parts = {&a, &b};
  return product(
      parts, [](auto labels) { return labels[0] != 0 && labels[1] == 0 ? 1U : 0U; }, budget);
}

Result<CharDfa> unite(const CharDfa& a, const CharDfa& b, Budget& budget) {
  const std::array parts = {&a, &b};
  return product(
      parts, [](auto labels) { return labels[0] != 0 || labels[1] != 0 ? 1U : 0U; }, budget);
}

}  // namespace strata::grammar
