#include "cli/sampling_options.h"

#include <charconv>
#include <string>

namespace strata::cli {

void add_sampling_options(CLI::App& command, remote::GenerateRequest& request) {
  command.add_option("-n,--max-tokens", request.max_tokens,
                     "Tokens of the answer, at most (default: what the context leaves)");
  command.add_option("--temperature", request.temperature, "0: always the most likely token");
  command.add_option("--top-k", request.top_k, "Choose among the K most likely; 0: all");
  command.add_option("--top-p", request.top_p, "Choose among the most likely with this mass");
  command.add_option("--min-p", request.min_p, "... among those so likely relative to the best");
  command.add_option("--repetition-penalty", request.repetition_penalty, "1: off");
  command.add_option("--frequency-penalty", request.frequency_penalty, "0: off");
  command.add_option("--presence-penalty", request.presence_penalty, "0: off");
  command.add_option("--seed", request.seed, "Equal seeds give equal answers (default: random)")
      ->check([](const std::string& text) {
        // The library itself would take -1 and 2^64 for the largest seed.
        uint64_t seed = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
        const bool whole = error == std::errc() && end == text.data() + text.size();
        return whole ? std::string() : "'" + text + "' is no whole number from 0 to 2^64 - 1";
      });
  command.add_option("--stop", request.stop, "Text that ends the answer; may be given repeatedly")
      ->allow_extra_args(false);
  command.add_flag("--ignore-end", request.ignore_end, "Go on after the model's end token");
}

}  // namespace strata::cli
