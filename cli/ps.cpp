#include "cli/ps.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/cluster_options.h"
#include "cli/terminal.h"
#include "coordinator/client.h"
#include "runtime/base/human.h"
#include "runtime/base/text_table.h"
#include "serve/cluster_status.h"

namespace strata::cli {
namespace {

struct PsOptions {
  ClusterAddressOptions cluster;
  bool json = false;
};

std::string devices_text(const remote::NodeStatus& node) {
  std::string text;
  for (const remote::DeviceReport& device : node.devices) {
    text += fmt::format("{}{}", text.empty() ? "" : " + ", device.name);
  }
  return text;
}

std::string stage_text(const remote::NodeStatus& node) {
  if (!node.range) return "-";
  return fmt::format("{}: {}", node.stage_index, layer_range_text(*node.range));
}

std::string state_text(const remote::NodeStatus& node) {
  if (!node.load || node.load->total_bytes == 0) return node.state;
  return fmt::format("{} {:.0f}%", node.state,
                     100.0 * static_cast<double>(node.load->done_bytes) /
                         static_cast<double>(node.load->total_bytes));
}

// What a step takes lately, or should; "-" where that is not known.
std::string step_text(double us) { return us > 0 ? fmt::format("{:.2f} ms", us / 1e3) : "-"; }

std::string to_table(const remote::ClusterStatus& status) {
  std::string text =
      fmt::format("{}  {}, epoch {}", status.model.base_name, status.state, status.epoch);
  if (!status.detail.empty()) text += ": " + status.detail;
  text += "\n";
  std::vector<std::vector<std::string>> rows = {{"node", "address", "state", "stage", "device",
                                                 "used", "limit", "steps", "step", "forecast",
                                                 "pid", "seen"}};
  for (const remote::NodeStatus& node : status.nodes) {
    rows.push_back({node.name, node.address, state_text(node), stage_text(node), devices_text(node),
                    human_bytes(node.used_bytes), human_bytes(node.memory_limit_bytes),
                    human_count(node.steps_done), step_text(node.step_us),
                    step_text(node.forecast_us), std::to_string(node.process_id),
                    fmt::format("{} ms ago", node.last_heartbeat_ms)});
  }
  if (status.nodes.empty()) {
    text += "no workers have joined\n";
  } else {
    text += table_text(rows, {5, 6, 7, 8, 9, 10, 11});
  }
  for (const remote::NodeStatus& node : status.nodes) {
    if (!node.detail.empty()) text += fmt::format("{}: {}\n", node.name, node.detail);
  }
  const std::string predicted =
      status.predicted_tokens_per_s > 0
          ? fmt::format("predicted {:.1f} tokens/s, ", status.predicted_tokens_per_s)
          : "";
  text += fmt::format("{} live, {} waiting; {}measured {:.1f} tokens/s\n", status.live_sequences,
                      status.waiting_sequences, predicted, status.measured_tokens_per_s);
  return text;
}

Status run_ps(const PsOptions& options) {
  const std::unique_ptr<coordinator::Client> client = TRY(connect_client(options.cluster, {}));
  const remote::ClusterStatus status = TRY(client->status());
  Terminal terminal(options.json);
  terminal.answer(options.json ? serve::cluster_status_json(status) + "\n" : to_table(status));
  return ok_status();
}

}  // namespace

void add_ps_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("ps", "Show a cluster's nodes and what each one holds");
  auto options = std::make_shared<PsOptions>();
  options->cluster.coordinator = kDefaultCoordinator;
  add_cluster_address_options(command, options->cluster);
  command.get_option("--coordinator")->capture_default_str();
  add_json_option(command, context, "Print one JSON object");
  add_example(command, "strata ps --coordinator 127.0.0.1:50051");
  command.callback([options, &context] {
    context.check = [options] { return check_cluster_address(options->cluster); };
    context.run = [options, &context] {
      options->json = context.json;
      return run_ps(*options);
    };
  });
}

}  // namespace strata::cli
