// The options of a served model, for `strata coordinator` and `strata plan`.
//
// Threads: the main thread, while the command line is read.
#pragma once

#include "serve/serving.h"

namespace CLI {
class App;
}  // namespace CLI

namespace strata::cli {

// -m, --workers, --ctx and so on.
void add_serving_options(CLI::App& command, serve::ServingOptions& options);

}  // namespace strata::cli
