#include "serve/cluster_status.h"

#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"

namespace strata::serve {
namespace {

using Json = nlohmann::json;

// Null where it is not known.
Json known(double value) { return value > 0 ? Json(value) : Json(); }

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
                 {"hop_us", known(node.hop_us)},
                 {"process_id", node.process_id},
                 {"last_heartbeat_ms", node.last_heartbeat_ms},
                 {"stage", nullptr},
                 {"load", nullptr}};
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
  if (node.load) {
    object["load"] = {{"done_bytes", node.load->done_bytes},
                      {"total_bytes", node.load->total_bytes},
                      {"received_bytes", node.load->received_bytes}};
  }
  return object;
}

}  // namespace

std::string cluster_status_json(const remote::ClusterStatus& status) {
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
  return dump_json(object);
}

}  // namespace strata::serve
