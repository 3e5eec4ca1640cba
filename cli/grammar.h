// `strata grammar`: whether a document fits a JSON schema, a GBNF grammar or a regular expression,
// and where not. The judge is the automaton that constrains answers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "runtime/grammar/pda.h"

namespace strata::cli {

struct GrammarVerdict {
  bool accepted = false;
  // Where the document stops to fit, if it does.
  size_t offset = 0;     // in bytes
  size_t line = 1;       // from 1
  size_t column = 1;     // from 1, in characters
  std::string found;     // what stands there: "'x'", "the end"
  std::string expected;  // what could stand there, or why nothing can
};

GrammarVerdict judge(std::shared_ptr<const grammar::Pda> pda, std::string_view document);

// Exit code 1 says that the document does not fit, 2 that the grammar is none.
void add_grammar_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
