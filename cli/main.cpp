// `strata`: the one binary. Parses the command line and runs one subcommand.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/bench.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/coordinator.h"
#include "cli/eval.h"
#include "cli/grammar.h"
#include "cli/inspect.h"
#include "cli/plan.h"
#include "cli/ps.h"
#include "cli/replan.h"
#include "cli/run.h"
#include "cli/serve.h"
#include "cli/template.h"
#include "cli/tokenize.h"
#include "cli/usage.h"
#include "cli/worker.h"
#include "runtime/base/guarded_mapping.h"
#include "runtime/base/heap.h"
#include "runtime/base/log.h"
#include "runtime/base/thread_start.h"

namespace strata::cli {
namespace {

void add_all_commands(CLI::App& app, CommandContext& context) {
  // One line per subcommand, in the order of --help.
  add_run_command(app, context);
  add_chat_command(app, context);
  add_serve_command(app, context);
  add_coordinator_command(app, context);
  add_worker_command(app, context);
  add_ps_command(app, context);
  add_replan_command(app, context);
  add_plan_command(app, context);
  add_bench_command(app, context);
  add_eval_command(app, context);
  add_inspect_command(app, context);
  add_tokenize_command(app, context);
  add_template_command(app, context);
  add_grammar_command(app, context);
}

// `strata help` and `strata help run` as `--help` and `run --help`.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.resize(std::min<size_t>(arguments.size(), 1));
    arguments.emplace_back("--help");
  }
  return arguments;
}

int finish(const Status& status, bool json, ExitCode code) {
  report_error(status, json);
  return code;
}

// std::thread's own error says nothing but its code; a full pipe has the same code, and fmt says
// beside it what it was doing.
bool is_thread_refused(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again &&
         error.what() == error.code().message();
}

int run_chosen(const CommandContext& context) {
  if (const Status status = log::configure("", context.chosen_log_level()); !status.ok()) {
    return finish(status, context.json, exit_usage);
  }
  try {
    if (const Status status = context.check ? context.check() : ok_status(); !status.ok()) {
      return finish(status, context.json, exit_usage);
    }
    if (const Status status = context.run ? context.run() : ok_status(); !status.ok()) {
      return finish(status, context.json, exit_error);
    }
  } catch (const std::system_error& error) {
    if (is_thread_refused(error)) return finish(no_more_threads(), context.json, exit_error);
    return finish(internal_error(error.what()), context.json, exit_error);
  } catch (const std::exception& error) {
    // fmt and iostreams end here when standard output cannot be written.
    return finish(internal_error(error.what()), context.json, exit_error);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return finish(unavailable("the output could not be written in full"), context.json, exit_error);
  }
  return context.exit_code;
}

// In place of std::bad_alloc, which most libraries' threads do not survive. Allocates nothing.
[[noreturn]] void end_without_memory() {
  constexpr std::string_view kText =
      "error: no memory is left for this process\n"
      "hint: give it less to do (--memory, --ctx, --slots), or more memory (ulimit -v, cgroup)\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(exit_error);
}

int run(int argc, char** argv) {
  configure_heap();
  std::set_new_handler(end_without_memory);
  CLI::App app("Strata: one language model over many machines.", "strata");
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", "strata 0.1.0", "Print the version");
  app.require_subcommand(1);
  app.formatter(std::make_shared<CLI::FormatterLambda>(
      [](const CLI::App* command, std::string, CLI::AppFormatMode) {
        return help_text(*command);
      }));
  CommandContext context;
  app.add_option("--log-level", context.log_level,
                 "Log lines on standard error: error, warn, info, debug or off (default info; with "
                 "a command's --json off)")
      ->type_name("LEVEL");
  add_all_commands(app, context);
  std::vector<std::string> arguments = arguments_of(argc, argv);
  const bool wants_json =
      std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  std::reverse(arguments.begin(), arguments.end());  // as the parser takes a vector
  try {
    app.parse(arguments);
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    return finish(usage_error(app, error), wants_json, exit_usage);
  }
  if (const Status status = install_mapping_guard(); !status.ok()) {
    return finish(status, context.json, exit_error);
  }
  return run_chosen(context);
}

// A standard stream that the caller closed would be the number of the next file or socket that is
// opened: read as questions, written to by error messages.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) != -1) continue;
    // The lowest free number is given out, and that is this one.
    [[maybe_unused]] const int opened =
        ::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}
// Before any library's constructor: gRPC's opens descriptors.
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const kBeforeLibraries)() = open_standard_streams;

}  // namespace
}  // namespace strata::cli

int main(int argc, char** argv) { return strata::cli::run(argc, argv); }
