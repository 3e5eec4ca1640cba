// From letters to bytes: writes a CharDfa into a Pda, each code point as the bytes that spell it.
//
// In a JSON string one character has several spellings ("é", "\u00e9", "\u00E9"; two \u for those
// beyond U+FFFF); all lead to the same state, so that documents are judged by what they say, not by
// how they are written. Lone surrogates are refused.
//
// Source: RFC 3629 (UTF-8), RFC 8259 section 7 (strings).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/grammar/char_dfa.h"
#include "runtime/grammar/pda.h"

namespace strata::grammar {

enum class Spelling : uint8_t {
  plain,       // UTF-8
  json,        // between a JSON string's quotes, in every way that JSON allows
  json_short,  // the same, but an escape only where there must be one
};

// Adds a state for each of the automaton's, with `control`, and what lies between them. Letters
// that are calls become calls. Neither accepting states nor a JSON string's quotes are added:
// labels are the caller's. The states, in the automaton's order.
std::vector<StateId> emit(const CharDfa& dfa, Spelling spelling, uint32_t control, Pda& pda);

}  // namespace strata::grammar
