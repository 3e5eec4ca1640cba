#include "cli/sampling_options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>

namespace strata::cli {

void add_system_option(CLI::App& command, std::string& system) {
  command.add_option("--system", system, "A system message before the conversation")
      ->type_name("TEXT")
      ->group("Prompt");
}

void add_sampling_options(CLI::App& command, remote::GenerateRequest& request) {
  constexpr const char* kGroup = "Answer";
  const auto add = [&](const char* name, auto& target, const char* type, const char* text) {
    return command.add_option(name, target, text)->type_name(type)->group(kGroup);
  };
  add("-n,--max-tokens", request.max_tokens, "N",
      "Tokens of the answer, at most; 0 is no limit but the context's end (default 0)");
  add("--temperature", request.temperature, "T",
      "How much chance there is in the choice; 0: always the most likely token (default: the "
      "model's, else 0.7)");
  add("--top-k", request.top_k, "K",
      "Choose among the K most likely tokens; 0: all (default: the model's, else 0)");
  add("--top-p", request.top_p, "P",
      "Choose among the most likely tokens that together have probability P (default: the model's, "
      "else 0.95)");
  add("--min-p", request.min_p, "P",
      "Leave out tokens less likely than P times the most likely one; 0: off (default: the "
      "model's, else 0)");
  add("--repetition-penalty", request.repetition_penalty, "X",
      "Makes tokens that have come less likely; 1: off (default: the model's, else 1)");
  add("--frequency-penalty", request.frequency_penalty, "X",
      "... by how often they have come; 0: off (default 0)");
  add("--presence-penalty", request.presence_penalty, "X",
      "... by whether they have come at all; 0: off (default 0)");
  add("--seed", request.seed, "N", "Equal seeds give equal answers (default: random)")
      ->check([](const std::string& text) {
        // The library itself would take -1 and 2^64 for the largest seed.
        uint64_t seed = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
        const bool whole = error == std::errc() && end == text.data() + text.size();
        return whole ? std::string() : "'" + text + "' is no whole number from 0 to 2^64 - 1";
      });
  add("--stop", request.stop, "TEXT", "Text that ends the answer; up to 16, each with --stop")
      ->allow_extra_args(false);
  command.add_flag("--ignore-end", request.ignore_end, "Go on after the model's end token")
      ->group(kGroup);
}

}  // namespace strata::cli
