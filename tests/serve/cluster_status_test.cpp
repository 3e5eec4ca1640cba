// Goal: what `strata ps --json` and the page read of a cluster is all there, and a process that
// holds the whole model says the same of itself. Method: a status with every field set; a tiny
// model in two stages that answers.
#include "serve/cluster_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "serve/local_engine.h"

namespace strata::serve {
namespace {

using Json = nlohmann::json;

remote::NodeStatus loading_node() {
  remote::NodeStatus node;
  node.name = "attic";
  node.state = "loading";
  node.range = LayerRange{.begin = 3, .end = 7, .has_embedding = false, .has_head = true};
  node.stage_index = 1;
  node.load = remote::LoadProgress{.done_bytes = 5, .total_bytes = 10, .received_bytes = 4};
  node.hop_us = 410.5;
  node.step_us = 11'200;
  node.memory.cache_bytes = 99;
  return node;
}

TEST(ClusterStatusJson, TellsStageLoadAndTimesOfANode) {
  remote::ClusterStatus status;
  status.state = "loading";
  status.model.base_name = "m.gguf";
  status.waiting_sequences = 2;
  status.nodes = {loading_node(), remote::NodeStatus{}};
  const Json json = Json::parse(cluster_status_json(status));
  EXPECT_EQ(json["state"], "loading");
  EXPECT_EQ(json["model"], "m.gguf");
  EXPECT_EQ(json["waiting_sequences"], 2);
  const Json& node = json["nodes"][0];
  EXPECT_EQ(node["stage"]["index"], 1);
  EXPECT_EQ(node["stage"]["layer_begin"], 3);
  EXPECT_EQ(node["stage"]["layer_end"], 7);
  EXPECT_EQ(node["stage"]["kv_bytes"], 99);
  EXPECT_EQ(node["load"], Json({{"done_bytes", 5}, {"total_bytes", 10}, {"received_bytes", 4}}));
  EXPECT_EQ(node["hop_us"], 410.5);
  EXPECT_EQ(node["step_us"], 11'200);
  EXPECT_TRUE(node["forecast_us"].is_null());
  EXPECT_TRUE(json["nodes"][1]["stage"].is_null());
  EXPECT_TRUE(json["nodes"][1]["load"].is_null());
}

class NoDisplay final : public ProgressDisplay {
 public:
  void line(std::string_view, bool) override {}
  void progress(std::string_view, double, std::string_view) override {}
};

TEST(LocalEngineStatus, ShowsEachStageAndWhatItHasDone) {
  NoDisplay display;
  LocalEngineOptions options;
  options.model.path = STRATA_TEST_DATA "/models/llama.gguf";
  options.model.threads = 1;
  options.model.kv_type = "f32";
  options.model.split = "1,2";
  options.context = 64;
  auto opened = LocalEngine::open(options, display, {});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  LocalEngine& engine = *opened.value();

  std::promise<Status> done;
  remote::GenerateRequest request;
  request.prompt = std::vector<int32_t>{1, 2, 3};
  request.max_tokens = 4;
  engine.generator().start(request, [&done](coordinator::AnswerEvent event) {
    if (std::holds_alternative<remote::GenerateFinished>(event)) done.set_value(ok_status());
    if (const auto* status = std::get_if<Status>(&event)) done.set_value(*status);
  });
  const Status answered = done.get_future().get();
  ASSERT_TRUE(answered.ok()) << answered.to_string();

  const remote::ClusterStatus status = engine.status();
  EXPECT_EQ(status.state, "ready");
  EXPECT_EQ(status.model.base_name, "llama.gguf");
  EXPECT_EQ(status.waiting_sequences, 0u);
  ASSERT_EQ(status.nodes.size(), 2u);
  const std::vector<std::string> names = {"this process, stage 0", "this process, stage 1"};
  for (uint32_t i = 0; i < 2; ++i) {
    const remote::NodeStatus& node = status.nodes[i];
    EXPECT_EQ(node.name, names[i]);
    EXPECT_EQ(node.stage_index, i);
    ASSERT_TRUE(node.range);
    EXPECT_EQ(node.range->begin, i == 0 ? 0 : 1);
    EXPECT_EQ(node.range->end, i == 0 ? 1 : 3);
    EXPECT_EQ(node.range->has_embedding, i == 0);
    EXPECT_EQ(node.range->has_head, i == 1);
    EXPECT_GT(node.memory.weights_bytes, 0u);
    EXPECT_GT(node.memory.cache_bytes, 0u);
    EXPECT_EQ(node.used_bytes,
              node.memory.weights_bytes + node.memory.cache_bytes + node.memory.compute_bytes);
    EXPECT_GE(node.steps_done, 4u);
    EXPECT_GT(node.step_us, 0);
    EXPECT_EQ(node.devices.size(), 1u);
  }
  EXPECT_GT(status.nodes[0].memory_limit_bytes, 0u);
  EXPECT_EQ(status.nodes[1].memory_limit_bytes, 0u);
}

}  // namespace
}  // namespace strata::serve
