// `strata`: the one binary. Parses the command line and runs one subcommand.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "cli/bench.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/coordinator.h"
#include "cli/eval.h"
#include "cli/inspect.h"
#include "cli/plan.h"
#include "cli/ps.h"
#include "cli/run.h"
#include "cli/template.h"
#include "cli/tokenize.h"
#include "cli/worker.h"
#include "runtime/base/guarded_mapping.h"
#include "runtime/base/log.h"

namespace strata::cli {
namespace {

void add_all_commands(CLI::App& app, CommandContext& context) {
  // One line per subcommand, in the order of --help.
  add_run_command(app, context);
  add_chat_command(app, context);
  add_coordinator_command(app, context);
  add_ps_command(app, context);
  add_plan_command(app, context);
  add_bench_command(app, context);
  add_eval_command(app, context);
  add_inspect_command(app, context);
  add_tokenize_command(app, context);
  add_template_command(app, context);
  add_worker_command(app, context);
}

int run(int argc, char** argv) {
  CLI::App app("Strata: one language model over many machines.", "strata");
  app.set_version_flag("--version", "strata 0.1.0");
  app.require_subcommand(1);
  CommandContext context;
  app.add_option("--log-level", context.log_level, "error, warn, info, debug or off")
      ->capture_default_str();
  add_all_commands(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return exit_usage;
  }
  if (const Status status = log::configure("", context.log_level); !status.ok()) {
    report_error(status, context.json);
    return exit_usage;
  }
  if (const Status status = install_mapping_guard(); !status.ok()) {
    return report_error(status, context.json);
  }
  try {
    const Status status = context.run ? context.run() : ok_status();
    if (!status.ok()) return report_error(status, context.json);
  } catch (const std::exception& error) {
    // fmt and iostreams end here when standard output cannot be written.
    std::fprintf(stderr, "error: %s\n", error.what());
    return exit_error;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("error: the output could not be written in full\n", stderr);
    return exit_error;
  }
  return exit_ok;
}

}  // namespace
}  // namespace strata::cli

int main(int argc, char** argv) { return strata::cli::run(argc, argv); }
