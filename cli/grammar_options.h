// A grammar from the command line: a file with a JSON schema or a GBNF grammar, or a regular
// expression.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/sampling/grammar_spec.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata::cli {

struct GrammarOptions {
  std::string schema_path;
  std::string gbnf_path;
  std::string regex;
  const CLI::Option* regex_option = nullptr;  // an empty expression is one too
};

// The options, under the names that the command gives them; at most one of them may be given.
struct GrammarOptionNames {
  std::string schema = "--json-schema";
  std::string gbnf = "--grammar";
  std::string group = "Answer";
};
void add_grammar_options(CLI::App& command, GrammarOptions& options,
                         const GrammarOptionNames& names);

// Of kind none if no option was given. Errors: NOT_FOUND and others for a file that cannot be read,
// INVALID_ARGUMENT for one over kGrammarBytesMax or more than one grammar.
Result<GrammarSpec> read_grammar(const GrammarOptions& options);
// The same for an answer's grammar, which also has to compile. Errors: those of compile_grammar().
Result<GrammarSpec> read_answer_grammar(const GrammarOptions& options);

}  // namespace strata::cli
