#include "cli/ps.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/cluster_options.h"
#include "cli/json_line.h"
#include "cli/terminal.h"
#include "coordinator/client.h"
#include "runtime/base/human.h"
#include "runtime/base/text_table.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;

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

// Null where it is not known.
Json known(double value) { return value > 0 ? Json(value) : Json(); }

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

Json node_json(const remote::NodeStatus& node) {
  Json devices = Json::array();
  for (const remote::DeviceReport& device : node.devices) {
    devices.push_back({{"name", device.name},
                       {"description", device.description},
                       {"total_bytes", device.memory.total_bytes},
                       {"free_bytes", device.memory.free_bytes},
                       {"read_bytes_per_s", device.speed.read_bytes_per_s},
                       {"int8_ops_per_s", device.speed.int8_ops_per_s},
                       {"f32_ops_per_s", device.speed.f32_ops_per_s}});
  }
  Json object = {{"name", node.name},
                 {"address", node.address},
                 {"state", node.state},
                 {"detail", node.detail},
                 {"devices", devices},
                 {"memory_limit_bytes", node.memory_limit_bytes},
                 {"used_bytes", node.used_bytes},
                 {"steps_done", node.steps_done},
                 {"step_us", known(node.step_us)},
                 {"forecast_us", known(node.forecast_us)},
                 {"process_id", node.process_id},
                 {"last_heartbeat_ms", node.last_heartbeat_ms},
                 {"stage", nullptr}};
  if (node.range) {
    object["stage"] = {{"index", node.stage_index},
                       {"layer_begin", node.range->begin},
                       {"layer_end", node.range->end},
                       {"has_embedding", node.range->has_embedding},
                       {"has_head", node.range->has_head},
                       {"weights_bytes", node.memory.weights_bytes},
                       {"kv_bytes", node.memory.cache_bytes},
                       {"compute_bytes", node.memory.compute_bytes},
                       {"received_bytes", node.memory.received_bytes}};
  }
  return object;
}

std::string to_json(const remote::ClusterStatus& status) {
  Json nodes = Json::array();
  for (const remote::NodeStatus& node : status.nodes) nodes.push_back(node_json(node));
  const Json object = {{"state", status.state},
                       {"detail", status.detail},
                       {"epoch", status.epoch},
                       {"model", status.model.base_name},
                       {"model_digest", status.model.digest},
                       {"cluster_id", status.cluster_id},
                       {"live_sequences", status.live_sequences},
                       {"waiting_sequences", status.waiting_sequences},
                       {"predicted_tokens_per_s", known(status.predicted_tokens_per_s)},
                       {"measured_tokens_per_s", status.measured_tokens_per_s},
                       {"nodes", nodes}};
  return json_line(object);
}

Status run_ps(const PsOptions& options) {
  const std::unique_ptr<coordinator::Client> client = TRY(connect_client(options.cluster, {}));
  const remote::ClusterStatus status = TRY(client->status());
  Terminal terminal(options.json);
  terminal.answer(options.json ? to_json(status) : to_table(status));
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
