#include "cli/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/cluster_options.h"
#include "cli/serving.h"
#include "cli/terminal.h"
#include "coordinator/client.h"
#include "runtime/base/human.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;
using coordinator::PlannerNode;

struct PlanCommandOptions {
  serve::ServingOptions serving;
  ClusterAddressOptions cluster;
  std::string nodes_file;
  std::vector<std::string> nodes;
  bool json = false;
};

// "NAME:MEMORY[:GB/s]". The name may hold no colon.
Result<PlannerNode> parse_node(const std::string& text) {
  const auto error = [&](const std::string& what) {
    return invalid_argument(fmt::format("--node '{}': {}", text, what),
                            "write NAME:MEMORY[:GB/s], such as lab-1:8GiB:20");
  };
  const size_t first = text.find(':');
  if (first == std::string::npos || first == 0) return error("no name and memory");
  const size_t second = std::min(text.find(':', first + 1), text.size());
  PlannerNode node;
  node.name = text.substr(0, first);
  node.device = "described";
  const Result<uint64_t> memory = parse_memory(text.substr(first + 1, second - first - 1));
  if (!memory.ok()) return error(memory.status().message());
  node.memory_bytes = *memory;
  if (second < text.size()) {
    char* end = nullptr;
    node.read_bytes_per_s = std::strtod(text.c_str() + second + 1, &end) * 1e9;
    const bool is_rate = std::isfinite(node.read_bytes_per_s) && node.read_bytes_per_s > 0;
    if (end == nullptr || *end != '\0' || !is_rate) {
      return error("the speed is no number above 0; leave it out if it is not known");
    }
  }
  return node;
}

constexpr std::array<std::string_view, 5> kNodeKeys = {"name", "memory", "read_gb_per_s",
                                                       "int8_gops", "hop_us"};

Result<PlannerNode> node_from_json(const Json& document, size_t index, const std::string& path) {
  const auto error = [&](const std::string& what) {
    return invalid_argument(fmt::format("{}: node {} {}", path, index, what),
                            R"(write {"name": "a", "memory": "8GiB", "read_gb_per_s": 20}, and )"
                            R"(if known "int8_gops" and "hop_us")");
  };
  if (!document.is_object()) return error("is no object");
  const auto number = [&](const char* key) {
    const auto found = document.find(key);
    return found != document.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  for (const auto& [key, value] : document.items()) {
    if (std::find(kNodeKeys.begin(), kNodeKeys.end(), key) == kNodeKeys.end()) {
      return error(fmt::format("has a '{}', which means nothing here", key));
    }
  }
  PlannerNode node;
  node.device = "described";
  const auto name = document.find("name");
  if (name == document.end() || !name->is_string()) return error("has no name");
  node.name = name->get<std::string>();
  const auto memory = document.find("memory");
  if (memory == document.end()) return error("has no memory");
  if (memory->is_number_unsigned()) {
    node.memory_bytes = memory->get<uint64_t>();
    if (const Status enough = check_memory(node.memory_bytes); !enough.ok()) {
      return error(fmt::format("('{}'): {}", node.name, enough.message()));
    }
  } else if (memory->is_string()) {
    const Result<uint64_t> bytes = parse_memory(memory->get<std::string>());
    if (!bytes.ok()) return error(fmt::format("('{}'): {}", node.name, bytes.status().message()));
    node.memory_bytes = *bytes;
  } else {
    return error("has a memory that is no size");
  }
  node.read_bytes_per_s = number("read_gb_per_s") * 1e9;
  node.int8_ops_per_s = number("int8_gops") * 1e9;
  node.hop_us = number("hop_us");
  for (const char* key : {"read_gb_per_s", "int8_gops", "hop_us"}) {
    if (document.contains(key) && !(document[key].is_number() && document[key].get<double>() > 0)) {
      return error(fmt::format("has a {} that is no number above 0", key));
    }
  }
  return node;
}

Result<std::vector<PlannerNode>> nodes_from_file(const std::string& path) {
  const Json document = Json::parse(TRY(read_text_file(path)), nullptr, false);
  if (!document.is_array()) return invalid_argument(path + ": not a JSON list of nodes");
  std::vector<PlannerNode> nodes;
  for (const Json& node : document) nodes.push_back(TRY(node_from_json(node, nodes.size(), path)));
  return nodes;
}

Result<std::vector<PlannerNode>> nodes_of_cluster(const ClusterAddressOptions& cluster) {
  const std::unique_ptr<coordinator::Client> client = TRY(connect_client(cluster, {}));
  const remote::ClusterStatus status = TRY(client->status());
  std::vector<PlannerNode> nodes;
  for (const remote::NodeStatus& node : status.nodes) {
    PlannerNode planned{.name = node.name, .device = "", .memory_bytes = node.memory_limit_bytes};
    for (const remote::DeviceReport& device : node.devices) {
      planned.device += (planned.device.empty() ? "" : " + ") + device.name;
      planned.read_bytes_per_s = std::max(planned.read_bytes_per_s, device.speed.read_bytes_per_s);
      planned.int8_ops_per_s = std::max(planned.int8_ops_per_s, device.speed.int8_ops_per_s);
    }
    nodes.push_back(std::move(planned));
  }
  return nodes;
}

// This machine, cut into equal workers.
Result<std::vector<PlannerNode>> nodes_of_this_machine(uint32_t count) {
  const std::unique_ptr<DeviceRegistry> devices = TRY(serve::open_devices({}));
  const Device* device = devices->devices().front();
  std::vector<PlannerNode> nodes;
  for (uint32_t i = 1; i <= count; ++i) {
    nodes.push_back({.name = fmt::format("worker-{}", i),
                     .device = std::string(device->name()),
                     .memory_bytes = device->memory().free_bytes / count});
  }
  return nodes;
}

Status check_options(const PlanCommandOptions& options) {
  TRY(serve::check_serving_options(options.serving));
  if (!options.cluster.coordinator.empty()) TRY(check_cluster_address(options.cluster));
  for (const std::string& text : options.nodes) TRY(parse_node(text));
  const int ways = (options.nodes.empty() ? 0 : 1) + (options.nodes_file.empty() ? 0 : 1) +
                   (options.cluster.coordinator.empty() ? 0 : 1);
  if (ways > 1) {
    return invalid_argument("more than one of --node, --nodes and --coordinator is given",
                            "name the nodes in one way");
  }
  return ok_status();
}

Result<std::vector<PlannerNode>> described_nodes(const PlanCommandOptions& options) {
  if (!options.nodes_file.empty()) return nodes_from_file(options.nodes_file);
  if (!options.cluster.coordinator.empty()) return nodes_of_cluster(options.cluster);
  if (options.nodes.empty()) return nodes_of_this_machine(std::max(options.serving.workers, 1U));
  std::vector<PlannerNode> nodes;
  for (const std::string& text : options.nodes) nodes.push_back(TRY(parse_node(text)));
  return nodes;
}

// --workers cuts this machine; of nodes that are named otherwise it can only say their number.
Status check_worker_count(const PlanCommandOptions& options, size_t nodes) {
  const uint32_t workers = options.serving.workers;
  if (workers == 0 || workers == nodes) return ok_status();
  return invalid_argument(
      fmt::format("--workers {} with {} node{}", workers, nodes, nodes == 1 ? "" : "s"),
      "leave out --workers, or name as many nodes (without those that --exclude names)");
}

// Here all names are known: one that is not among them is a slip.
Status check_excluded(const std::vector<PlannerNode>& nodes,
                      const std::vector<std::string>& excluded) {
  for (const std::string& name : excluded) {
    if (std::none_of(nodes.begin(), nodes.end(),
                     [&](const PlannerNode& node) { return node.name == name; })) {
      return invalid_argument(fmt::format("--exclude '{}': there is no such node", name),
                              "name one of the nodes that are described, or of the coordinator's");
    }
  }
  return ok_status();
}

Status run_plan(const PlanCommandOptions& options) {
  const std::vector<PlannerNode> nodes = TRY(described_nodes(options));
  TRY(check_excluded(nodes, options.serving.exclude));
  const std::set<std::string> excluded(options.serving.exclude.begin(),
                                       options.serving.exclude.end());
  TRY(check_worker_count(options, nodes.size() - excluded.size()));
  const serve::PlanInput input = TRY(serve::plan_input(options.serving));
  const coordinator::Plan plan = TRY(coordinator::make_plan(input.profile, nodes, input.plan));
  Terminal terminal(options.json);
  terminal.answer(options.json ? coordinator::plan_json(plan) + "\n"
                               : coordinator::plan_table(plan));
  return ok_status();
}

}  // namespace

void add_plan_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand(
      "plan",
      "Show what would be placed where, without loading anything: on nodes that are described, on "
      "those of a coordinator, or on this machine cut into --workers");
  auto options = std::make_shared<PlanCommandOptions>();
  add_serving_options(command, options->serving);
  add_cluster_address_options(command, options->cluster);
  command
      .add_option("--node", options->nodes,
                  "A node that is described, such as lab-1:8GiB:20 (GB/s that its memory is read "
                  "with); may be given again")
      ->type_name("NAME:MEMORY[:SPEED]")
      ->allow_extra_args(false)
      ->group("Nodes");
  command
      .add_option("--nodes", options->nodes_file,
                  "JSON file with a list of {\"name\": \"a\", \"memory\": \"8GiB\", "
                  "\"read_gb_per_s\": 20}")
      ->type_name("FILE")
      ->group("Nodes");
  add_json_option(command, context, "Print one JSON object");
  add_example(command, "strata plan -m model.gguf --node big:16GiB:40 --node small:4GiB:15");
  command.callback([options, &context] {
    context.check = [options] { return check_options(*options); };
    context.run = [options, &context] {
      options->json = context.json;
      return run_plan(*options);
    };
  });
}

}  // namespace strata::cli
