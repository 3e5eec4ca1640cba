#include "cli/replan.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/cluster_options.h"
#include "cli/json_line.h"
#include "cli/terminal.h"
#include "coordinator/client.h"

namespace strata::cli {
namespace {

struct ReplanOptions {
  ClusterAddressOptions cluster;
  bool json = false;
};

Status run_replan(const ReplanOptions& options) {
  const std::unique_ptr<coordinator::Client> client = TRY(connect_client(options.cluster, {}));
  const std::string text = TRY(client->replan());
  Terminal terminal(options.json);
  terminal.answer(options.json ? json_line(nlohmann::json({{"done", text}})) : text + "\n");
  return ok_status();
}

}  // namespace

void add_replan_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand(
      "replan", "Place a cluster's model anew, over the workers that are there now");
  auto options = std::make_shared<ReplanOptions>();
  options->cluster.coordinator = kDefaultCoordinator;
  add_cluster_address_options(command, options->cluster);
  command.get_option("--coordinator")->capture_default_str();
  add_json_option(command, context, "Print one JSON object");
  add_example(command, "strata replan --coordinator 127.0.0.1:50051");
  command.callback([options, &context] {
    context.check = [options] { return check_cluster_address(options->cluster); };
    context.run = [options, &context] {
      options->json = context.json;
      return run_replan(*options);
    };
  });
}

}  // namespace strata::cli
