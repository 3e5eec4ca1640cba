#include "runtime/grammar/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace strata::grammar {
namespace {

constexpr size_t kNfaStatesMax = 200000;
// What a state costs beside its members, in their unit: to name it, and to minimise it later.
constexpr size_t kStateWork = 100;
// Edges of the automaton that is not deterministic yet: they take memory before they take time.
constexpr size_t kEdgeWork = 4;

struct Nfa {
  struct Edge {
    uint32_t first;
    uint32_t last;
    uint32_t target;
  };
  enum class When : uint8_t { always, text_begin, text_end };
  struct Jump {
    uint32_t target;
    When when;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<Jump> jumps;
  };
  std::vector<State> states;

  uint32_t add() {
    states.emplace_back();
    return static_cast<uint32_t>(states.size() - 1);
  }
  void jump(uint32_t from, uint32_t to, When when = When::always) {
    states[from].jumps.push_back({to, when});
  }
};

// Connects two states by an expression; parts that are left to do lie on a list, not on the stack.
class NfaBuilder {
 public:
  NfaBuilder(const ExprPool& pool, Budget& budget) : pool_(pool), budget_(budget) {}

  Result<Nfa> build(ExprId root, bool search) {
    const uint32_t start = nfa_.add();
    const uint32_t end = nfa_.add();
    work_.push_back({root, start, end});
    while (!work_.empty()) {
      const Item item = work_.back();
      work_.pop_back();
      TRY(connect(item));
      if (nfa_.states.size() + work_.size() > kNfaStatesMax) {
        return invalid_argument(
            fmt::format("an expression of more than {} states when its repetitions are written out",
                        kNfaStatesMax),
            "use smaller repetition counts");
      }
    }
    if (search) {
      for (const uint32_t state : {start, end}) {
        for (const CodeRange& range : CodeSet::all().ranges()) {
          nfa_.states[state].edges.push_back({range.first, range.last, state});
        }
      }
    }
    return std::move(nfa_);
  }

 private:
  struct Item {
    ExprId expr;
    uint32_t from;
    uint32_t to;
  };

  Status connect(const Item& item) {
    const Expr& expr = pool_.at(item.expr);
    TRY(budget_.spend(1));
    const uint32_t from = nfa_.add();  // of its own, so that no loop leaks into a neighbour
    nfa_.jump(item.from, from);
    switch (expr.kind) {
      case Expr::Kind::chars:
        TRY(budget_.spend(kEdgeWork * pool_.set(expr.value).ranges().size()));
        for (const CodeRange& range : pool_.set(expr.value).ranges()) {
          nfa_.states[from].edges.push_back({range.first, range.last, item.to});
        }
        break;
      case Expr::Kind::call:
        nfa_.states[from].edges.push_back(
            {call_letter(expr.value), call_letter(expr.value), item.to});
        break;
      case Expr::Kind::sequence:
        connect_sequence(expr, from, item.to);
        break;
      case Expr::Kind::choice:
        for (const ExprId child : expr.children) work_.push_back({child, from, item.to});
        break;
      case Expr::Kind::repeat:
        connect_repeat(expr, from, item.to);
        break;
      case Expr::Kind::automaton:
        connect_automaton(pool_.dfa(expr.value), from, item.to);
        break;
      case Expr::Kind::text_begin:
        nfa_.jump(from, item.to, Nfa::When::text_begin);
        break;
      case Expr::Kind::text_end:
        nfa_.jump(from, item.to, Nfa::When::text_end);
        break;
    }
    return ok_status();
  }

  void connect_automaton(const CharDfa& dfa, uint32_t from, uint32_t to) {
    const auto first = static_cast<uint32_t>(nfa_.states.size());
    for (const CharDfa::State& part : dfa.states) {
      const uint32_t state = nfa_.add();
      for (const CharDfa::Edge& edge : part.edges) {
        nfa_.states[state].edges.push_back({edge.first, edge.last, first + edge.target});
      }
      if (part.label != 0) nfa_.jump(state, to);
    }
    if (!dfa.empty()) nfa_.jump(from, first);
  }

  void connect_sequence(const Expr& expr, uint32_t from, uint32_t to) {
    uint32_t at = from;
    for (size_t i = 0; i < expr.children.size(); ++i) {
      const uint32_t next = i + 1 == expr.children.size() ? to : nfa_.add();
      work_.push_back({expr.children[i], at, next});
      at = next;
    }
    if (expr.children.empty()) nfa_.jump(from, to);
  }

  void connect_repeat(const Expr& expr, uint32_t from, uint32_t to) {
    const ExprId child = expr.children[0];
    const uint32_t copies = expr.max == kUnbounded ? expr.min : expr.max;
    uint32_t at = from;
    for (uint32_t i = 0; i < copies && nfa_.states.size() <= kNfaStatesMax; ++i) {
      if (i >= expr.min) nfa_.jump(at, to);
      const uint32_t next = nfa_.add();
      work_.push_back({child, at, next});
      at = next;
    }
    if (expr.max == kUnbounded) work_.push_back({child, at, at});
    nfa_.jump(at, to);
  }

  const ExprPool& pool_;
  Budget& budget_;
  Nfa nfa_;
  std::vector<Item> work_;
};

// The subset construction.
class Determiniser {
 public:
  Determiniser(const Nfa& nfa, Budget& budget)
      : nfa_(nfa), budget_(budget), mark_(nfa.states.size()) {}

  Result<CharDfa> run() {
    // Without a name: no later subset may share the state in which "at the beginning" holds.
    subsets_.push_back(closure({0}, true, false));
    CharDfa dfa;
    size_t edge_count = 0;
    for (size_t s = 0; s < subsets_.size(); ++s) {
      const std::vector<uint32_t> members = subsets_[s];
      CharDfa::State state;
      state.label = accepts(members, s == 0) ? 1 : 0;
      expand(members, state);
      edge_count += state.edges.size();
      dfa.states.push_back(std::move(state));
      TRY(budget_.spend(work_ + kStateWork));
      work_ = 0;
      if (subsets_.size() > kDfaStatesMax || edge_count > kDfaEdgesMax) {
        return invalid_argument(
            fmt::format("an automaton of more than {} states", kDfaStatesMax),
            "use smaller repetition counts or fewer alternatives in the same place");
      }
    }
    minimise(dfa);
    return dfa;
  }

 private:
  std::vector<uint32_t> closure(const std::vector<uint32_t>& from, bool at_begin, bool at_end) {
    std::vector<uint32_t> members;
    std::vector<uint32_t> stack = from;
    ++round_;
    while (!stack.empty()) {
      const uint32_t state = stack.back();
      stack.pop_back();
      if (mark_[state] == round_) continue;
      mark_[state] = round_;
      members.push_back(state);
      for (const Nfa::Jump& jump : nfa_.states[state].jumps) {
        if (jump.when == Nfa::When::text_begin && !at_begin) continue;
        if (jump.when == Nfa::When::text_end && !at_end) continue;
        stack.push_back(jump.target);
      }
    }
    work_ += members.size();
    std::sort(members.begin(), members.end());
    return members;
  }

  bool accepts(const std::vector<uint32_t>& members, bool at_begin) {
    const std::vector<uint32_t> all = closure(members, at_begin, true);
    return std::binary_search(all.begin(), all.end(), 1U);
  }

  uint32_t add_subset(std::vector<uint32_t> members) {
    // Only what can move or accept tells subsets apart.
    std::vector<uint32_t> kernel;
    for (const uint32_t m : members) {
      const Nfa::State& state = nfa_.states[m];
      const bool conditional = std::any_of(state.jumps.begin(), state.jumps.end(), [](auto& jump) {
        return jump.when != Nfa::When::always;
      });
      if (m == 1 || !state.edges.empty() || conditional) kernel.push_back(m);
    }
    if (kernel.empty()) return kNoState;
    const auto [entry, is_new] = names_.try_emplace(kernel, static_cast<uint32_t>(subsets_.size()));
    if (is_new) subsets_.push_back(std::move(kernel));
    return entry->second;
  }

  void expand(const std::vector<uint32_t>& members, CharDfa::State& state) {
    std::vector<Nfa::Edge> edges;
    std::vector<uint32_t> cuts;
    for (const uint32_t m : members) {
      for (const Nfa::Edge& edge : nfa_.states[m].edges) {
        edges.push_back(edge);
        cuts.push_back(edge.first);
        cuts.push_back(edge.last + 1);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::sort(edges.begin(), edges.end(),
              [](const Nfa::Edge& a, const Nfa::Edge& b) { return a.first < b.first; });
    std::vector<Nfa::Edge> active;
    size_t next_edge = 0;
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::erase_if(active, [&](const Nfa::Edge& edge) { return edge.last < cuts[c]; });
      while (next_edge < edges.size() && edges[next_edge].first <= cuts[c]) {
        active.push_back(edges[next_edge++]);
      }
      work_ += active.size();
      if (active.empty()) continue;
      std::vector<uint32_t> targets;
      for (const Nfa::Edge& edge : active) targets.push_back(edge.target);
      const uint32_t target = add_subset(closure(targets, false, false));
      if (target == kNoState) continue;
      const uint32_t last = cuts[c + 1] - 1;
      if (!state.edges.empty() && state.edges.back().target == target &&
          state.edges.back().last + 1 == cuts[c]) {
        state.edges.back().last = last;
      } else {
        state.edges.push_back({cuts[c], last, target});
      }
    }
  }

  const Nfa& nfa_;
  Budget& budget_;
  std::vector<uint32_t> mark_;
  uint32_t round_ = 0;
  size_t work_ = 0;
  std::vector<std::vector<uint32_t>> subsets_;
  std::map<std::vector<uint32_t>, uint32_t> names_;
};

}  // namespace

ExprId ExprPool::add(Expr expr) {
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId ExprPool::chars(CodeSet set) {
  sets_.push_back(std::move(set));
  return add({.kind = Expr::Kind::chars,
              .value = static_cast<uint32_t>(sets_.size() - 1),
              .children = {}});
}

ExprId ExprPool::sequence(std::vector<ExprId> children) {
  if (children.size() == 1) return children[0];
  return add({.kind = Expr::Kind::sequence, .children = std::move(children)});
}

ExprId ExprPool::choice(std::vector<ExprId> children) {
  if (children.size() == 1) return children[0];
  return add({.kind = Expr::Kind::choice, .children = std::move(children)});
}

ExprId ExprPool::repeat(ExprId child, uint32_t min, uint32_t max) {
  return add({.kind = Expr::Kind::repeat, .min = min, .max = max, .children = {child}});
}

ExprId ExprPool::call(uint32_t rule) {
  return add({.kind = Expr::Kind::call, .value = rule, .children = {}});
}

ExprId ExprPool::automaton(CharDfa dfa) {
  automata_.push_back(std::move(dfa));
  return add({.kind = Expr::Kind::automaton,
              .value = static_cast<uint32_t>(automata_.size() - 1),
              .children = {}});
}

ExprId ExprPool::assertion(Expr::Kind kind) { return add({.kind = kind, .children = {}}); }

void ExprGroups::next_alternative() {
  Group& group = open_.back();
  group.alternatives.push_back(pool_.sequence(std::move(group.sequence)));
  group.sequence.clear();
}

ExprId ExprGroups::close() {
  next_alternative();
  const ExprId expr = pool_.choice(std::move(open_.back().alternatives));
  open_.pop_back();
  return expr;
}

Result<CharDfa> compile(const ExprPool& pool, ExprId root, bool search, Budget& budget) {
  const Nfa nfa = TRY(NfaBuilder(pool, budget).build(root, search));
  return Determiniser(nfa, budget).run();
}

}  // namespace strata::grammar
