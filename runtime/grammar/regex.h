// Regular expressions: the common part of ECMA-262, PCRE and Python, for --regex and for JSON
// Schema's `pattern`.
//
//   a|b  (a) (?:a) (?<name>a)  * + ? {n} {n,} {n,m}, also lazy  [a-z] [^a-z]  .  ^ $
//   \d \D \w \W \s \S (ASCII but for \s, as in ECMA-262)  \p{Lu} \P{L}  \n \t \x41 \u00e9 \u{1F642}
//
// What cannot be one automaton, or would be a costly one, is refused by name with its place:
// look-around, back-references, \b, flags, possessive repetition.
//
// Source: https://262.ecma-international.org/#sec-patterns
#pragma once

#include <string_view>

#include "runtime/base/status.h"
#include "runtime/grammar/expression.h"

namespace strata::grammar {

// Adds the expression to the pool. Errors: INVALID_ARGUMENT with the character's number.
Result<ExprId> parse_regex(std::string_view pattern, ExprPool& pool, Budget& budget);

// Parses and compiles. `search`: as in compile().
Result<CharDfa> regex_dfa(std::string_view pattern, bool search, Budget& budget);

}  // namespace strata::grammar
