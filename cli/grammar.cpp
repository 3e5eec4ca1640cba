#include "cli/grammar.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/grammar_options.h"
#include "cli/json_line.h"
#include "runtime/base/text_table.h"
#include "runtime/base/utf8.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/matcher.h"

namespace strata::cli {
namespace {

struct Arguments {
  GrammarOptions grammar;
  bool generation = false;
  std::shared_ptr<const grammar::Pda> pda;  // once it is compiled
};

std::string character_at(std::string_view document, size_t offset) {
  if (offset >= document.size()) return "the end";
  size_t length = 1;
  while (length < 4 && offset + length < document.size() &&
         (static_cast<unsigned char>(document[offset + length]) & 0xC0) == 0x80) {
    ++length;
  }
  return fmt::format("'{}'", printable(document.substr(offset, length)));
}

std::string to_json(const GrammarVerdict& verdict) {
  nlohmann::json object = {{"accepted", verdict.accepted}};
  if (!verdict.accepted) {
    object["offset"] = verdict.offset;
    object["line"] = verdict.line;
    object["column"] = verdict.column;
    object["found"] = verdict.found;
    object["expected"] = verdict.expected;
  }
  return json_line(object);
}

// Exit code 1 says "rejected": a grammar that is none is a wrong use, and found out before.
Status compile(Arguments& arguments) {
  const auto strictness =
      arguments.generation ? grammar::Strictness::generation : grammar::Strictness::checking;
  const GrammarSpec spec = TRY(read_grammar(arguments.grammar));
  if (spec.kind == GrammarSpec::Kind::none) {
    return invalid_argument("no grammar is given",
                            "--schema FILE, --gbnf FILE or --regex EXPRESSION");
  }
  arguments.pda = TRY(grammar::compile_grammar(spec, strictness));
  return ok_status();
}

Status run_grammar(const Arguments& arguments, CommandContext& context) {
  const GrammarVerdict verdict = judge(arguments.pda, read_standard_input());
  context.exit_code = verdict.accepted ? exit_ok : exit_error;
  if (context.json) {
    fmt::print("{}", to_json(verdict));
  } else if (verdict.accepted) {
    fmt::print("accepted\n");
  } else {
    fmt::print("rejected at byte {} (line {}, column {}): found {}, expected {}\n", verdict.offset,
               verdict.line, verdict.column, verdict.found, verdict.expected);
  }
  return ok_status();
}

}  // namespace

GrammarVerdict judge(std::shared_ptr<const grammar::Pda> pda, std::string_view document) {
  constexpr size_t kPieceBytes = 4096;
  grammar::Matcher matcher(std::make_shared<grammar::StateSpace>(pda));
  GrammarVerdict verdict;
  while (verdict.offset < document.size()) {
    const std::string_view piece = document.substr(verdict.offset, kPieceBytes);
    const size_t taken = matcher.accept_some(piece);
    verdict.offset += taken;
    if (taken < piece.size()) break;
    if (matcher.space().full()) matcher.move_to(std::make_shared<grammar::StateSpace>(pda));
  }
  verdict.accepted = verdict.offset == document.size() && matcher.can_end();
  if (verdict.accepted) return verdict;
  const std::string_view before = document.substr(0, verdict.offset);
  verdict.line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const std::string_view line = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
  verdict.column = shown_width(line) + 1;
  verdict.found = character_at(document, verdict.offset);
  verdict.expected = matcher.failure().ok()
                         ? matcher.expected()
                         : fmt::format("something else: {}", matcher.failure().message());
  return verdict;
}

void add_grammar_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand(
      "grammar", "Say whether a document from standard input fits a grammar, and where not");
  const auto arguments = std::make_shared<Arguments>();
  add_grammar_options(command, arguments->grammar,
                      {.schema = "--schema", .gbnf = "--gbnf", .group = "Grammar"});
  command.add_flag("--generation", arguments->generation,
                   "Take only the spellings that a constrained answer may have");
  add_json_option(command, context, "Print one JSON object");
  add_example(command, "echo '{\"name\": \"Ann\"}' | strata grammar --schema person.json");
  command.callback([arguments, &context] {
    context.check = [arguments] { return compile(*arguments); };
    context.run = [arguments, &context] { return run_grammar(*arguments, context); };
  });
}

}  // namespace strata::cli
