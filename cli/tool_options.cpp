#include "cli/tool_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/text_file.h"
#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"
#include "runtime/grammar/grammar.h"
#include "runtime/text/answer/tools.h"

namespace strata::cli {
namespace {

// As OpenAI's API writes it.
std::string choice_json(const std::string& choice) {
  if (choice.empty()) return {};
  if (choice == "none" || choice == "auto" || choice == "required") return "\"" + choice + "\"";
  const nlohmann::json one = {{"type", "function"}, {"function", {{"name", choice}}}};
  return dump_json(one);
}

// A tool whose arguments no answer could be held to is found out before anything is loaded.
Status check_schemas(const std::vector<Tool>& tools) {
  for (const Tool& tool : tools) {
    const auto compiled = grammar::compile_schema(tool.parameters, grammar::Strictness::generation);
    if (!compiled.ok()) {
      return compiled.status().with_context(fmt::format("tool {}", printable(tool.name)));
    }
  }
  return ok_status();
}

}  // namespace

void add_tool_options(CLI::App& command, ToolOptions& options) {
  constexpr const char* kGroup = "Tools and reasoning";
  command
      .add_option("--tools", options.tools_path,
                  "Functions that the model may call, as JSON: "
                  "the \"tools\" of OpenAI's API")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option("--tool-choice", options.choice,
                  "Whether it calls one: none, auto, required, or the name of the one that it has "
                  "to call (default auto)")
      ->type_name("CHOICE")
      ->group(kGroup);
  command
      .add_option_function<std::string>(
          "--reasoning",
          [&options](const std::string& word) {
            options.reasoning = word == "show" ? ShowReasoning::show : ShowReasoning::hide;
          },
          "What becomes of the model's reasoning: show or hide (default: shown on a terminal, left "
          "out elsewhere)")
      ->check(CLI::IsMember({"show", "hide"}).description(""))
      ->type_name("show|hide")
      ->group(kGroup);
}

Result<remote::ChatPrompt> read_tools(const ToolOptions& options) {
  constexpr size_t kToolsBytesMax = size_t{1} << 20;
  remote::ChatPrompt chat;
  if (!options.tools_path.empty()) {
    chat.tools = TRY(read_text_file(options.tools_path, kToolsBytesMax));
    if (chat.tools.empty()) {
      return invalid_argument(fmt::format("{}: tools is no JSON list", options.tools_path));
    }
  }
  chat.tool_choice = choice_json(options.choice);
  const std::vector<Tool> tools = TRY(parse_tools(chat.tools).with_context(options.tools_path));
  const Result<ToolChoice> choice = parse_tool_choice(chat.tool_choice, tools);
  if (!choice.ok()) {
    return choice.status().with_hint(
        "--tool-choice takes none, auto, required or the name of a function in --tools");
  }
  TRY(check_schemas(tools));
  return chat;
}

Status check_together(const GrammarSpec& grammar, const remote::ChatPrompt& chat) {
  const bool has_tools = !chat.tools.empty() && chat.tool_choice != "\"none\"";
  if (grammar.kind == GrammarSpec::Kind::none || !has_tools) return ok_status();
  return invalid_argument(fmt::format("both --tools and a {} are given for the answer",
                                      grammar_kind_name(grammar.kind)),
                          "leave one of them out, or add --tool-choice none");
}

}  // namespace strata::cli
