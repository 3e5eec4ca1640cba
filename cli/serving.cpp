#include "cli/serving.h"

#include <CLI/CLI.hpp>

#include "cli/cluster_options.h"
#include "cli/command.h"

namespace strata::cli {

void add_serving_options(CLI::App& command, serve::ServingOptions& options) {
  add_model_path_option(command, options.model_path)->required();
  add_context_option(command, options.context);
  add_kv_type_option(command, options.kv_type);
  const auto add = [&](const char* name, auto& target, const char* type, const char* text) {
    return command.add_option(name, target, text)->type_name(type)->group("Placement and load");
  };
  add("--workers", options.workers, "N",
      "Wait for N workers and use them all, even one that makes the model slower; 0: begin once "
      "those that have joined suffice, and use those that help (default 0)")
      ->check(CLI::Range(0, 256));
  add("--plan-for", options.plan_for, "GOAL",
      "What to make fast: 'one' sequence, or 'many' at once; a worker that does not help it is a "
      "spare")
      ->check(CLI::IsMember({"one", "many"}))
      ->capture_default_str();
  add("--exclude", options.exclude, "NAME", "A worker that gets no layers; may be given again")
      ->allow_extra_args(false);
  add("--split", options.split, "LAYERS",
      "Layers per stage, head first, obeyed to the letter: 10,12,8 or lab-2:10,lab-1:20; a last 0 "
      "is the output head alone (default: as balances the stages)");
  add("--sequences", options.sequences, "N",
      "Whole contexts that the KV cache should hold, if memory allows; one is always required")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add("--slots", options.slots, "N",
      "Sequences that are live at once, at most; more than the cache holds in full take turns")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add("--queue", options.queue, "N", "Requests that may wait for a slot; one more is refused")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add("--step-tokens", options.step_tokens, "N",
      "Tokens of one step, at most: more use memory and delay the tokens of others")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  add("--chunk", options.prefill_chunk, "N",
      "Prompt tokens of one sequence in one step (default: what keeps all stages busy)")
      ->check(CLI::Range(1, 1 << 16));
  add("--step-timeout", options.step_timeout_s, "SECONDS",
      "Time after which a stage that computes on one step counts as hung (default: 30, and what "
      "the step's tokens need by the plan)")
      ->check(CLI::Range(1, 86'400));
  add("--request-timeout", options.request_timeout_s, "SECONDS",
      "Time that a request may take, waiting included; 0: no limit")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
}

}  // namespace strata::cli
