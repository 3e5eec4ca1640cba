// Grammar: a JSON Schema, a regular expression or a GBNF text, compiled.
//
//   schema: json_document -> schema_keywords -> schema_values -> schema_emitter -> Pda
//   regular expression: regex -> expression -> CharDfa -> byte_emitter -> Pda
//   composed: composed -> expressions, schemas -> Pda
//   GBNF: gbnf -> expressions -> one CharDfa for each rule -> byte_emitter -> Pda
//
// What the front ends accept: docs/grammar.md. A text is matched by Matcher (matcher.h), and masks
// for a vocabulary come from MaskCache (mask_cache.h).
//
// Threads: immutable; any thread.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/grammar/pda.h"
#include "runtime/sampling/grammar_spec.h"

namespace strata::grammar {

// Which of the spellings of one JSON document are taken; of no meaning but for schemas.
enum class Strictness : uint8_t {
  // All: for judging a document. White space wherever JSON has it, "1.0" for an integer, "\u0061"
  // in a name.
  checking,
  // Those that a model should write: a bounded stretch of white space, plain numbers, names without
  // needless escapes. Whatever this takes, checking takes too.
  generation,
};

// Errors: INVALID_ARGUMENT for a text that is malformed, over kGrammarBytesMax, matches nothing, or
// needs too large an automaton; UNIMPLEMENTED for a schema's keyword that is not supported, by name
// and place.
Result<std::shared_ptr<const Pda>> compile_grammar(const GrammarSpec& spec, Strictness strictness);

// The front ends. `schema` is JSON.
Result<std::shared_ptr<const Pda>> compile_schema(std::string_view schema, Strictness strictness);
Result<std::shared_ptr<const Pda>> compile_gbnf(std::string_view text);
Result<std::shared_ptr<const Pda>> compile_regex(std::string_view pattern);

}  // namespace strata::grammar
