#include "cli/grammar_options.h"

#include <CLI/CLI.hpp>

#include "cli/text_file.h"
#include "runtime/grammar/grammar.h"

namespace strata::cli {
void add_grammar_options(CLI::App& command, GrammarOptions& options,
                         const GrammarOptionNames& names) {
  const auto add = [&](const std::string& name, std::string& target, const char* type,
                       const char* text) {
    return command.add_option(name, target, text)->type_name(type)->group(names.group);
  };
  CLI::Option* schema =
      add(names.schema, options.schema_path, "FILE", "A JSON schema (draft 2020-12) to fit");
  CLI::Option* gbnf =
      add(names.gbnf, options.gbnf_path, "FILE", "A grammar in llama.cpp's GBNF to fit");
  CLI::Option* regex =
      add("--regex", options.regex, "EXPRESSION", "A regular expression to fit, as a whole");
  schema->excludes(gbnf)->excludes(regex);
  gbnf->excludes(regex);
  options.regex_option = regex;
}

Result<GrammarSpec> read_grammar(const GrammarOptions& options) {
  GrammarSpec spec;
  if (!options.schema_path.empty()) {
    spec.kind = GrammarSpec::Kind::json_schema;
    spec.text = TRY(read_text_file(options.schema_path, kGrammarBytesMax));
  } else if (!options.gbnf_path.empty()) {
    spec.kind = GrammarSpec::Kind::gbnf;
    spec.text = TRY(read_text_file(options.gbnf_path, kGrammarBytesMax));
  } else if (options.regex_option != nullptr && options.regex_option->count() > 0) {
    spec.kind = GrammarSpec::Kind::regex;
    spec.text = options.regex;
  }
  return spec;
}

Result<GrammarSpec> read_answer_grammar(const GrammarOptions& options) {
  GrammarSpec spec = TRY(read_grammar(options));
  if (spec.kind == GrammarSpec::Kind::none) return spec;
  TRY(grammar::compile_grammar(spec, grammar::Strictness::generation));
  return spec;
}

}  // namespace strata::cli
