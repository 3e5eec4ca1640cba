// Options that all commands share which run a model in this process.
//
// Threads: the main thread, while the command line is read.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "serve/model_options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace strata::cli {

// -m/--model, --threads, --pin, --isa, --kv-type (with that default), --split and --mapped.
void add_model_options(CLI::App& command, serve::ModelOptions& options, const std::string& kv_type);

// --pin, for commands that take the processor's options one by one.
void add_pin_option(CLI::App& command, std::string& pin);

// A whole text file. Errors: NOT_FOUND, or those of reading; INVALID_ARGUMENT beyond 1 GiB.
Result<std::string> read_text_file(const std::string& path);

}  // namespace strata::cli
