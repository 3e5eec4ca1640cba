#include "runtime/grammar/byte_emitter.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace strata::grammar {
namespace {

// Numbers [first, last] lead to `state`.
struct Span {
  uint32_t first;
  uint32_t last;
  StateId state;
};
using Spans = std::vector<Span>;  // ascending, disjoint

// The first span that does not end before `number`.
Spans::const_iterator span_at(const Spans& spans, uint32_t number) {
  return std::lower_bound(spans.begin(), spans.end(), number,
                          [](const Span& span, uint32_t value) { return span.last < value; });
}

Spans clip(const Spans& spans, uint32_t first, uint32_t last) {
  Spans result;
  for (auto span = span_at(spans, first); span != spans.end() && span->first <= last; ++span) {
    result.push_back({std::max(span->first, first), std::min(span->last, last), span->state});
  }
  return result;
}

class Emitter {
 public:
  Emitter(Pda& pda, uint32_t control, Spelling spelling)
      : pda_(pda), control_(control), spelling_(spelling) {}

  void emit_state(StateId from, const Spans& spans) {
    if (spelling_ == Spelling::plain) {
      add_bytes(from, clip(spans, 0, 0x7F));
    } else {
      for (const auto& [first, last] : {std::pair{0x20U, 0x21U}, {0x23U, 0x5BU}, {0x5DU, 0x7FU}}) {
        add_bytes(from, clip(spans, first, last));
      }
      emit_escapes(from, spans);
    }
    // The first byte of a longer character holds its upper bits: a tree of six bits a level.
    emit_leads(from, clip(spans, 0x80, 0x7FF), 0xC0, 1);
    emit_leads(from, clip(spans, 0x800, 0xFFFF), 0xE0, 2);
    emit_leads(from, clip(spans, 0x10000, kCodeMax), 0xF0, 3);
  }

 private:
  enum class Digits : uint8_t { utf8, hex };

  void add_bytes(StateId from, const Spans& spans) {
    for (const Span& span : spans) {
      pda_.add_edge(from, static_cast<uint8_t>(span.first), static_cast<uint8_t>(span.last),
                    span.state);
    }
  }

  void emit_leads(StateId from, const Spans& spans, uint32_t mark, uint32_t levels) {
    if (spans.empty()) return;
    const uint32_t shift = 6 * levels;
    for (uint32_t top = spans.front().first >> shift; top <= spans.back().last >> shift; ++top) {
      const StateId child = tree(spans, top << shift, levels, Digits::utf8);
      if (child != kNoState) {
        const auto byte = static_cast<uint8_t>(mark | top);
        pda_.add_edge(from, byte, byte, child);
      }
    }
  }

  // The state that reads the `levels` lowest digits of a number whose higher ones are those of
  // `base`. Depth: at most 4.
  StateId tree(const Spans& all, uint32_t base, uint32_t levels, Digits digits) {
    const uint32_t bits = digits == Digits::utf8 ? 6 : 4;
    const uint32_t last = base + (1U << (bits * levels)) - 1;
    const Spans spans = clip(all, base, last);
    if (spans.empty()) return kNoState;
    const bool uniform = spans.size() == 1 && spans[0].first == base && spans[0].last == last;
    if (levels == 0) return spans[0].state;
    const auto key = std::tuple(levels, digits, spans[0].state);
    if (uniform) {
      if (const auto known = uniform_.find(key); known != uniform_.end()) return known->second;
    }
    const StateId state = pda_.add_state(control_);
    if (uniform) uniform_.emplace(key, state);
    const uint32_t count = 1U << bits;
    for (uint32_t digit = 0; digit < count;) {
      const uint32_t step = 1U << (bits * (levels - 1));
      const StateId child = tree(spans, base + digit * step, levels - 1, digits);
      uint32_t end = digit + 1;
      // A uniform tree has one child for all.
      while (end < count && (uniform || (levels == 1 && child == leaf(spans, base + end)))) ++end;
      if (child != kNoState) add_digits(state, digits, digit, end - 1, child);
      digit = end;
    }
    return state;
  }

  static StateId leaf(const Spans& spans, uint32_t number) {
    const auto span = span_at(spans, number);
    return span != spans.end() && span->first <= number ? span->state : kNoState;
  }

  void add_digits(StateId from, Digits digits, uint32_t first, uint32_t last, StateId to) {
    const auto add = [&](uint32_t low, uint32_t high, uint32_t low_byte) {
      const uint32_t a = std::max(first, low);
      const uint32_t b = std::min(last, high);
      if (a > b) return;
      pda_.add_edge(from, static_cast<uint8_t>(a - low + low_byte),
                    static_cast<uint8_t>(b - low + low_byte), to);
    };
    if (digits == Digits::utf8) return add(0, 63, 0x80);
    add(0, 9, '0');
    add(10, 15, 'a');
    add(10, 15, 'A');
  }

  void emit_escapes(StateId from, const Spans& spans) {
    const StateId escape = pda_.add_state(control_);
    const bool all = spelling_ == Spelling::json;
    constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},
                                                {'b', '\b'}, {'f', '\f'},  {'n', '\n'},
                                                {'r', '\r'}, {'t', '\t'}};
    Spans unicode = all ? clip(spans, 0, 0xFFFF) : clip(spans, 0, 0x1F);
    for (const auto& [letter, code] : kShort) {
      const StateId target = leaf(spans, static_cast<uint32_t>(code));
      if (target == kNoState || (letter == '/' && !all)) continue;
      pda_.add_edge(escape, letter, target);
    }
    if (all) {
      const Spans pairs = high_surrogates(clip(spans, 0x10000, kCodeMax));
      unicode.insert(unicode.end(), pairs.begin(), pairs.end());
      std::sort(unicode.begin(), unicode.end(),
                [](const Span& a, const Span& b) { return a.first < b.first; });
    } else {
      remove_short_ones(unicode);
    }
    const StateId hex = tree(unicode, 0, 4, Digits::hex);
    if (hex != kNoState) pda_.add_edge(escape, 'u', hex);
    if (!pda_.states[escape].edges.empty()) pda_.add_edge(from, '\\', escape);
  }

  static void remove_short_ones(Spans& spans) {
    Spans kept;
    for (const auto& [first, last] : {std::pair{0x00U, 0x07U}, {0x0BU, 0x0BU}, {0x0EU, 0x1FU}}) {
      const Spans part = clip(spans, first, last);
      kept.insert(kept.end(), part.begin(), part.end());
    }
    spans = std::move(kept);
  }

  // Code points beyond U+FFFF, as the first of two \u: each of these stands for 1024 of them.
  Spans high_surrogates(const Spans& spans) {
    Spans result;
    const auto add = [&result](uint32_t first, uint32_t last, StateId state) {
      const bool joins =
          !result.empty() && result.back().state == state && result.back().last + 1 == first;
      if (joins)
        result.back().last = last;
      else
        result.push_back({first, last, state});
    };
    uint32_t next = kSurrogateFirst;  // not looked at yet
    for (const Span& span : spans) {
      const auto high = [](uint32_t code) { return kSurrogateFirst + (code - 0x10000) / 0x400; };
      // Of what the span fills, all have one state; its first and last may be shared with others.
      for (uint32_t at = std::max(next, high(span.first)); at <= high(span.last);) {
        const uint32_t first = 0x10000 + (at - kSurrogateFirst) * 0x400;
        const uint32_t filled = (span.last + 1 - first) / 0x400;
        if (span.first <= first && filled > 0) {
          add(at, at + filled - 1, uniform_pair(span.state));
          at += filled;
        } else {
          add(at, at, low_surrogates(clip(spans, first, first + 0x3FF), first));
          ++at;
        }
        next = at;
      }
    }
    return result;
  }

  StateId uniform_pair(StateId target) {
    const auto [entry, is_new] = pairs_.try_emplace(target, 0);
    if (is_new) entry->second = low_surrogates({{0, 0x3FF, target}}, 0);
    return entry->second;
  }

  // Reads the second \u of a pair.
  StateId low_surrogates(const Spans& block, uint32_t first) {
    Spans low;
    for (const Span& span : block) {
      low.push_back({0xDC00 + span.first - first, 0xDC00 + span.last - first, span.state});
    }
    const StateId backslash = pda_.add_state(control_);
    const StateId letter = pda_.add_state(control_);
    pda_.add_edge(backslash, '\\', letter);
    pda_.add_edge(letter, 'u', tree(low, 0, 4, Digits::hex));
    return backslash;
  }

  Pda& pda_;
  const uint32_t control_;
  const Spelling spelling_;
  std::map<std::tuple<uint32_t, Digits, StateId>, StateId> uniform_;
  std::map<StateId, StateId> pairs_;
};

}  // namespace

std::vector<StateId> emit(const CharDfa& dfa, Spelling spelling, uint32_t control, Pda& pda) {
  std::vector<StateId> states;
  for (size_t s = 0; s < dfa.states.size(); ++s) states.push_back(pda.add_state(control));
  Emitter emitter(pda, control, spelling);
  for (size_t s = 0; s < dfa.states.size(); ++s) {
    Spans spans;
    for (const CharDfa::Edge& edge : dfa.states[s].edges) {
      if (is_call(edge.first)) {
        pda.add_call(states[s], called_rule(edge.first), states[edge.target]);
      } else {
        spans.push_back({edge.first, edge.last, states[edge.target]});
      }
    }
    emitter.emit_state(states[s], spans);
    if (pda.states.size() > kPdaStatesMax) break;  // finish() says so
  }
  return states;
}

}  // namespace strata::grammar
