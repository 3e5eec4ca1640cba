// Options that say how an answer is sampled; those not given are the model's or the project's.
#pragma once

#include <memory>

#include "backends/remote/client_records.h"

namespace CLI {
class App;
}  // namespace CLI

namespace strata::cli {

// --system.
void add_system_option(CLI::App& command, std::string& system);
// -n/--max-tokens, --temperature, --top-k, --top-p, --min-p, the penalties, --seed, --stop,
// --ignore-end: into the request's fields.
void add_sampling_options(CLI::App& command, remote::GenerateRequest& request);

}  // namespace strata::cli
