#include "cli/grammar_options.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "runtime/grammar/grammar.h"

namespace strata::cli {
namespace {

Result<std::string> read_file(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return from_errno(errno, fmt::format("cannot open {}", path));
  std::string text;
  char buffer[65536];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, got);
    if (text.size() > kGrammarBytesMax) {
      return invalid_argument(fmt::format(
          "{} has more than {} bytes, which is the most for a grammar", path, kGrammarBytesMax));
    }
  }
  if (std::ferror(file.get()) != 0) return from_errno(errno, fmt::format("cannot read {}", path));
  return text;
}

}  // namespace

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
    spec.text = TRY(read_file(options.schema_path));
  } else if (!options.gbnf_path.empty()) {
    spec.kind = GrammarSpec::Kind::gbnf;
    spec.text = TRY(read_file(options.gbnf_path));
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
