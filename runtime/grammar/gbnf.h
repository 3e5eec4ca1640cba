// GBNF, llama.cpp's notation for grammars:
//
//   root  ::= "yes" | "no" [.!]? | num ("," num){0,3}   # a comment
//   num   ::= [0-9]+
//
// Literals and classes take the escapes \n \r \t \\ \" \[ \] \^ \- \xHH \uHHHH \UHHHHHHHH; '.' is
// any character; repetition is * + ? {n} {n,} {n,m}. A rule may go on over several lines: it ends
// where the next "name ::=" begins. Rules may call each other and themselves, but not before they
// have read something (left recursion). Token references such as <[12]> are refused.
//
// Source: https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/expression.h"

namespace strata::grammar {

struct GbnfRules {
  std::vector<std::string> names;  // rule 0 is "root"
  std::vector<ExprId> bodies;
};

// Errors: INVALID_ARGUMENT with line and column; for a rule that is missing or given twice.
Result<GbnfRules> parse_gbnf(std::string_view text, ExprPool& pool);

}  // namespace strata::grammar
