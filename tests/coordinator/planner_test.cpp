// The planner against brute force on small cases, exact memory, and odd clusters.
#include "coordinator/planner/planner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <limits>
#include <numeric>

#include "coordinator/planner/split_search.h"
#include "tests/coordinator/fake_pipeline.h"

namespace strata::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// Equal layers of 2 MiB, a head as heavy as five of them.
ModelProfile model_of(uint32_t layers) {
  ModelProfile model;
  model.name = "test.gguf";
  for (uint32_t i = 0; i < layers; ++i) {
    model.layers.push_back({.weights_bytes = 2 * kMiB, .kv_block_bytes = 1024, .group = 0});
  }
  model.input_bytes = 10 * kMiB;
  model.output_bytes = 10 * kMiB;
  model.compute_bytes = {{{kMiB, kMiB}, {kMiB, kMiB}}};
  model.group_windows = {0};
  model.n_embd = 64;
  model.n_vocab = 1000;
  return model;
}

PlannerNode node_of(const std::string& name, uint64_t memory_mib, double gb_per_s) {
  return {.name = name,
          .device = "CPU",
          .memory_bytes = memory_mib * kMiB,
          .read_bytes_per_s = gb_per_s * 1e9,
          .int8_ops_per_s = gb_per_s * 1e12,
          .hop_us = 50};
}

std::vector<PlannerNode> equal_nodes(uint32_t count, uint64_t memory_mib = 1000) {
  std::vector<PlannerNode> nodes;
  for (uint32_t i = 0; i < count; ++i) {
    nodes.push_back(node_of(fmt::format("worker-{}", i + 1), memory_mib, 10));
  }
  return nodes;
}

void expect_valid(const Plan& plan, const ModelProfile& model) {
  const Status status = check_plan(plan, model);
  EXPECT_TRUE(status.ok()) << status.to_string() << "\n" << plan_table(plan);
}

std::vector<std::string> spares_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const LeftOut& node : plan.left_out) names.push_back(node.node);
  return names;
}

PlanOptions options_for(PlanGoal goal) {
  PlanOptions options;
  options.goal = goal;
  return options;
}

PlanOptions over_all() {
  PlanOptions options;
  options.use_all_nodes = true;
  return options;
}

// The least time over all ordered choices of nodes and all cuts.
double brute_force(const CostModel& cost, const std::vector<PlannerNode>& nodes, PlanGoal goal,
                   uint32_t begin, uint32_t used) {
  const uint32_t units = cost.model().unit_count();
  if (begin == units) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t n = 0; n < nodes.size(); ++n) {
    if ((used >> n & 1U) != 0) continue;
    for (uint32_t end = begin + 1; end <= units; ++end) {
      if (cost.memory({begin, end}).total() > nodes[n].memory_bytes) continue;
      const double rest = brute_force(cost, nodes, goal, end, used | 1U << n);
      const double us = cost.step_us(nodes[n], {begin, end});
      best = std::min(best, goal == PlanGoal::one ? rest + us : std::max(rest, us));
    }
  }
  return best;
}

double time_of(const CostModel& cost, const std::vector<PlannerNode>& nodes, PlanGoal goal,
               const Split& split) {
  if (goal == PlanGoal::many) return bottleneck_us(cost, nodes, split);
  double sum = 0;
  uint32_t begin = 0;
  for (const SplitStage& stage : split) {
    sum += cost.step_us(nodes[stage.node], {begin, stage.end});
    begin = stage.end;
  }
  return sum;
}

TEST(Planner, FindsTheLeastTimeOfAllOrdersAndCutsAndTakesNoNodeThatAddsToIt) {
  int feasible = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    ModelProfile model = model_of(2 + random() % 6);
    for (LayerProfile& layer : model.layers) layer.weights_bytes = (1 + random() % 6) * kMiB;
    model.output_bytes = (1 + random() % 12) * kMiB;
    std::vector<PlannerNode> nodes;
    for (uint32_t i = 0; i < 1 + random() % 4; ++i) {
      nodes.push_back(node_of(fmt::format("w{}", i), 8 + random() % 30, 1 + random() % 9));
    }
    const CostModel cost(model, {64});
    for (const PlanGoal goal : {PlanGoal::one, PlanGoal::many}) {
      const double expected = brute_force(cost, nodes, goal, 0, 0);
      const std::optional<Split> split = find_split(cost, nodes, goal);
      ASSERT_EQ(split.has_value(), std::isfinite(expected));
      if (!split) continue;
      ++feasible;
      // One sequence may pay a twentieth for stages that are more equal.
      const double slack = goal == PlanGoal::one ? 1.05 : 1.001;
      EXPECT_LE(time_of(cost, nodes, goal, *split), expected * slack * 1.001);
      if (split->size() == 1) continue;
      uint32_t others = ~0U;
      for (const SplitStage& stage : *split) others &= ~(1U << stage.node);
      for (const SplitStage& stage : *split) {
        EXPECT_GT(brute_force(cost, nodes, goal, 0, others | 1U << stage.node), expected)
            << nodes[stage.node].name << " could have been left out";
      }
    }
  }
  EXPECT_GT(feasible, 100);
}

TEST(Planner, ASlowNodeIsLeftOutAndThePlanSaysWhy) {
  const ModelProfile model = model_of(30);  // 70 MiB to read
  const std::vector<PlannerNode> nodes = {node_of("big", 1000, 40), node_of("tiny", 1000, 1)};
  for (const PlanGoal goal : {PlanGoal::one, PlanGoal::many}) {
    const auto plan = make_plan(model, nodes, options_for(goal));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    expect_valid(*plan, model);
    EXPECT_EQ(plan->split_text(), "30");
    // 73,400,320 bytes at 40 GB/s.
    EXPECT_NEAR(plan->predicted_tokens_per_s(), 544.96, 0.01);
    ASSERT_THAT(spares_of(*plan), ::testing::ElementsAre("tiny"));
    // One layer of 2 MiB there takes 2,097.2 + 50 us, the rest on big 1,782.6 + 50 us.
    EXPECT_EQ(plan->left_out[0].why,
              goal == PlanGoal::one
                  ? "one sequence would run at 251.3 tokens/s with it, and 545.0 without"
                  : "many sequences would run at 465.7 tokens/s with it, and 545.0 without");
    EXPECT_THAT(plan_table(*plan), HasSubstr("tiny  spare: " + plan->left_out[0].why));
    EXPECT_THAT(plan_json(*plan), HasSubstr(R"("left_out":[{"node":"tiny","why":")"));
    EXPECT_THAT(plan_json(*plan), HasSubstr(R"("spares":["tiny"])"));
  }
  const auto all = make_plan(model, nodes, over_all());
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->stages.size(), 2U);
  EXPECT_THAT(all->remarks,
              ::testing::ElementsAre("--workers uses all 2: one sequence runs at 251.3 tokens/s, "
                                     "and would at 545.0 on big alone",
                                     "--workers uses all 2: many sequences run at 465.7 tokens/s, "
                                     "and would at 545.0 on big alone"));
}

TEST(Planner, ASlowNodeIsTakenWhereMemoryWantsItAndHoldsLittle) {
  const ModelProfile model = model_of(30);
  // 80 MiB of weights, 1 MiB of activations and 7.5 MiB of cache for one context.
  const std::vector<PlannerNode> nodes = {node_of("big", 80, 40), node_of("tiny", 1000, 1),
                                          node_of("mid", 1000, 20)};
  const auto plan = make_plan(model, nodes, {});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  expect_valid(*plan, model);
  EXPECT_THAT(spares_of(*plan), ::testing::ElementsAre("tiny"));
  PlanOptions options;
  options.exclude = {"mid", "nobody"};
  const auto rest = make_plan(model, nodes, options);
  ASSERT_TRUE(rest.ok()) << rest.status().to_string();
  expect_valid(*rest, model);
  ASSERT_EQ(rest->stages.size(), 2U);
  for (const PlannedStage& stage : rest->stages) {
    EXPECT_EQ(stage.node_name, nodes[stage.node].name);
    EXPECT_LE(stage.range.count(), stage.node_name == "tiny" ? 5 : 30);
  }
  EXPECT_THAT(spares_of(*rest), ::testing::ElementsAre("mid"));
  EXPECT_EQ(rest->left_out[0].why, "--exclude leaves it out");
}

TEST(Planner, NearlyEqualNodesGetNearlyEqualStagesForOneSequenceToo) {
  const ModelProfile model = model_of(30);
  // Neither holds it all. One sequence is a little faster the more of it lies on the faster node.
  const auto plan = make_plan(model, {node_of("a", 70, 10), node_of("b", 70, 10.4)}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_NEAR(plan->stages[0].range.count(), 17.5, 1.5);
}

TEST(Planner, MoreContextsDoNotMakeItSlower) {
  const ModelProfile model = model_of(30);  // 7.5 MiB of cache for one context
  // One context fits on big, four do not.
  const auto plan =
      make_plan(model, {node_of("big", 95, 40), node_of("tiny", 1000, 1)}, {.context = 4096});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->stages.size(), 1U);
  EXPECT_EQ(plan->sequences, 1U);
}

TEST(Planner, ExcludedNodesAreNamedInErrors) {
  const ModelProfile model = model_of(30);
  PlanOptions options;
  options.exclude = {"worker-1", "worker-2"};
  EXPECT_THAT(make_plan(model, equal_nodes(2), options).status().message(),
              HasSubstr("--exclude leaves out all 2 workers"));
  options.split = parse_split("worker-3:20,worker-1:10", 30).value();
  EXPECT_THAT(make_plan(model, equal_nodes(3), options).status().message(),
              HasSubstr("--split gives layers to 'worker-1', which --exclude leaves out"));
}

TEST(Planner, EqualWorkersGetEqualSharesByBytes) {
  const ModelProfile model = model_of(30);
  for (const PlanOptions& options : {over_all(), options_for(PlanGoal::many)}) {
    const auto plan = make_plan(model, equal_nodes(2), options);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    expect_valid(*plan, model);
    // 35 layers' worth of reading: 17 or 18 for the head stage.
    EXPECT_NEAR(plan->stages[0].range.count(), 17.5, 0.5);
    EXPECT_EQ(plan->sequences, 4U);
  }
}

TEST(Planner, AnyNumberOfWorkersUsesAllOfThemIfAskedTo) {
  const ModelProfile model = model_of(30);
  for (uint32_t count = 1; count <= 31; ++count) {
    std::vector<PlannerNode> unlike = equal_nodes(count);
    for (uint32_t i = 0; i < count; ++i) unlike[i].memory_bytes += i;
    for (const std::vector<PlannerNode>& nodes : {equal_nodes(count), unlike}) {
      const auto plan = make_plan(model, nodes, over_all());
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      expect_valid(*plan, model);
      EXPECT_EQ(plan->stages.size(), count);
      EXPECT_THAT(plan->left_out, ::testing::IsEmpty());
    }
  }
}

TEST(Planner, MoreWorkersThanUnitsLeavesNamedSpares) {
  const ModelProfile model = model_of(30);
  std::vector<PlannerNode> nodes = equal_nodes(33);
  nodes[4].read_bytes_per_s /= 2;
  nodes[7].memory_bytes = kMiB;
  const auto plan = make_plan(model, nodes, over_all());
  ASSERT_TRUE(plan.ok());
  expect_valid(*plan, model);
  EXPECT_EQ(plan->stages.size(), 31U);
  ASSERT_THAT(spares_of(*plan), ::testing::ElementsAre("worker-5", "worker-8"));
  EXPECT_EQ(plan->left_out[0].why,
            "the model has 31 parts (30 layers and the output head), all are placed");
  EXPECT_EQ(plan->left_out[1].why, "the smallest part of the model needs 4.0 MiB, it has 1.0 MiB");
}

TEST(Planner, UsesAllNodesWhateverTheHopsCostIfAskedTo) {
  const ModelProfile model = model_of(3);
  std::vector<PlannerNode> nodes = equal_nodes(3);
  for (PlannerNode& node : nodes) node.hop_us = 1e6;
  for (const PlanGoal goal : {PlanGoal::one, PlanGoal::many}) {
    const auto free = make_plan(model, nodes, options_for(goal));
    ASSERT_TRUE(free.ok());
    EXPECT_EQ(free->stages.size(), 1U);
  }
  for (const uint32_t count : {1U, 2U, 3U, 4U, 7U}) {
    const auto plan = make_plan(model, equal_nodes(count), over_all());
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    expect_valid(*plan, model);
    EXPECT_EQ(plan->stages.size(), std::min(count, 4U));
    EXPECT_EQ(plan->left_out.size(), count - plan->stages.size());
  }
  nodes[1].memory_bytes = 0;
  EXPECT_THAT(spares_of(*make_plan(model, nodes, over_all())), ::testing::ElementsAre("worker-2"));
}

TEST(Planner, ManyUnlikeWorkersArePlannedQuicklyAndTheSameEachTime) {
  const ModelProfile model = model_of(30);
  std::vector<PlannerNode> nodes;
  for (uint32_t i = 0; i < 32; ++i) {
    nodes.push_back(node_of(fmt::format("w{}", i), 12 + i * 7 % 32, 5.0 + i * 11 % 32));
  }
  for (const PlanOptions& options :
       {over_all(), options_for(PlanGoal::one), options_for(PlanGoal::many)}) {
    const std::clock_t begin = std::clock();  // of this process: the machine may be busy
    const auto plan = make_plan(model, nodes, options);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    expect_valid(*plan, model);
    EXPECT_LT(seconds, 3);  // about 0.3 when built for speed
    EXPECT_EQ(plan->stages.size() + plan->left_out.size(), 32U);
    EXPECT_EQ(plan_json(*make_plan(model, nodes, options)), plan_json(*plan));
    RecordProperty("seconds", fmt::format("{}", seconds));
  }
}

TEST(Planner, FasterWorkersGetMore) {
  const ModelProfile model = model_of(30);
  const std::vector<PlannerNode> nodes = {node_of("slow", 1000, 10), node_of("fast", 1000, 30)};
  const auto plan = make_plan(model, nodes, options_for(PlanGoal::many));
  ASSERT_TRUE(plan.ok());
  expect_valid(*plan, model);
  ASSERT_EQ(plan->stages.size(), 2U);
  for (const PlannedStage& stage : plan->stages) {
    const CostModel cost(model, plan->group_blocks);
    const double units = stage.range.count() + (stage.range.has_head ? 5 : 0);
    EXPECT_NEAR(units, stage.node_name == "fast" ? 26.25 : 8.75, 1.01);
  }
}

TEST(Planner, HeavyHeadGetsAStageOfItsOwn) {
  ModelProfile model = model_of(4);
  model.output_bytes = 40 * kMiB;
  const auto plan = make_plan(model, equal_nodes(2), over_all());
  ASSERT_TRUE(plan.ok());
  expect_valid(*plan, model);
  EXPECT_EQ(plan->split_text(), "4,0");
  EXPECT_THAT(plan_table(*plan), HasSubstr("  head  "));
}

TEST(Planner, MemoryIsExactToTheByte) {
  const ModelProfile model = model_of(8);
  PlanOptions options{.context = 160, .sequences_wanted = 1, .step_tokens = 16, .split = {}};
  const CostModel cost(model, blocks_for(model, 160, 1, 16));
  const uint64_t need = cost.memory({0, 9}).total();
  std::vector<PlannerNode> nodes = equal_nodes(1);
  nodes[0].memory_bytes = need;
  EXPECT_TRUE(make_plan(model, nodes, options).ok());
  nodes[0].memory_bytes = need - 1;
  const auto refused = make_plan(model, nodes, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::resource_exhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("short by 1 B"));
  EXPECT_THAT(refused.status().message(), HasSubstr("KV cache"));
}

TEST(Planner, SaysWhatWouldFit) {
  const ModelProfile model = model_of(8);
  // 8 layers * 1 KiB a block: 4,096 tokens take 2 MiB, 1,024 half of one.
  std::vector<PlannerNode> nodes = equal_nodes(1);
  nodes[0].memory_bytes = 37 * kMiB + 700 * 1024;
  const auto refused = make_plan(model, nodes, {.context = 4096});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().hint(), HasSubstr("a context of 1280 tokens would fit"));
  EXPECT_TRUE(make_plan(model, nodes, {.context = 1280}).ok());
}

TEST(Planner, PieceThatFitsNowhereIsNamed) {
  ModelProfile model = model_of(8);
  model.output_bytes = 60 * kMiB;
  const auto refused = make_plan(model, equal_nodes(4, 50), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("head alone needs"));
}

TEST(Planner, UnknownSpeedsCountAsEqual) {
  const ModelProfile model = model_of(30);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<PlannerNode> nodes = equal_nodes(3);
  for (const double speed : {0.0, -5.0, nan, std::numeric_limits<double>::infinity()}) {
    for (PlannerNode& node : nodes) {
      node.read_bytes_per_s = speed;
      node.int8_ops_per_s = speed;
      node.hop_us = speed;
    }
    const auto plan = make_plan(model, nodes, over_all());
    ASSERT_TRUE(plan.ok());
    expect_valid(*plan, model);
    EXPECT_EQ(plan->stages.size(), 3U);
    EXPECT_GT(plan->predicted_tokens_per_s(), 0);
    ASSERT_GE(plan->remarks.size(), 2U);
    EXPECT_EQ(plan->remarks[0],
              "the speed of worker-1, worker-2 and worker-3 is not known; assumed is 10.0 GB/s");
    EXPECT_EQ(plan->remarks[1],
              "the time of a hop of worker-1, worker-2 and worker-3 is not "
              "known; assumed is 150 µs");
  }
  nodes[1].read_bytes_per_s = 30e9;
  const auto mean = make_plan(model, nodes, {});
  EXPECT_EQ(mean->remarks[0],
            "the speed of worker-1 and worker-3 is not known; assumed is 30.0 "
            "GB/s, the mean of the others");
}

TEST(Planner, AnAssumedRateIsSaidWhereItMatters) {
  const ModelProfile model = model_of(30);
  std::vector<PlannerNode> nodes = {node_of("a", 1000, 40)};
  nodes[0].int8_ops_per_s = 0;
  EXPECT_THAT(make_plan(model, nodes, {})->remarks, ::testing::IsEmpty());
  nodes[0].read_bytes_per_s = 400e9;
  EXPECT_THAT(make_plan(model, nodes, {})->remarks,
              ::testing::ElementsAre("the 8-bit rate of a is not known; assumed is 200 GOP/s"));
}

TEST(Planner, NodesWithoutMemoryAreSparesOrAnError) {
  const ModelProfile model = model_of(30);
  std::vector<PlannerNode> nodes = equal_nodes(3);
  nodes[1].memory_bytes = 0;
  const auto plan = make_plan(model, nodes, options_for(PlanGoal::many));
  ASSERT_TRUE(plan.ok());
  expect_valid(*plan, model);
  EXPECT_THAT(spares_of(*plan), ::testing::ElementsAre("worker-2"));
  EXPECT_EQ(plan->left_out[0].why, "the smallest part of the model needs 4.0 MiB, it has 0 B");
  for (PlannerNode& node : nodes) node.memory_bytes = 0;
  EXPECT_EQ(make_plan(model, nodes, {}).status().code(), StatusCode::resource_exhausted);
  EXPECT_EQ(make_plan(model, {}, {}).status().code(), StatusCode::invalid_argument);
}

TEST(Planner, WorkersOfOneHostShareItsMemory) {
  const auto on_host = [](const std::string& name, uint64_t memory_mib, uint64_t host_mib) {
    PlannerNode node = node_of(name, memory_mib, 10);
    node.host = "h";
    node.host_bytes = host_mib * kMiB;
    return node;
  };
  // The second came when the first held 20 MiB already; the third is elsewhere.
  std::vector<PlannerNode> nodes = {on_host("a", 90, 90), on_host("b", 70, 70),
                                    node_of("c", 90, 10)};
  std::vector<PlannerNode> shared = with_shared_hosts(nodes);
  EXPECT_EQ(shared[0].memory_bytes, 45 * kMiB);
  EXPECT_EQ(shared[1].memory_bytes, 45 * kMiB);
  EXPECT_EQ(shared[2].memory_bytes, 90 * kMiB);
  // One is told how much to use: it may, and the other has what is left.
  nodes[0].memory_is_stated = true;
  nodes[0].memory_bytes = 80 * kMiB;
  shared = with_shared_hosts(nodes);
  EXPECT_EQ(shared[0].memory_bytes, 80 * kMiB);
  EXPECT_EQ(shared[1].memory_bytes, 10 * kMiB);
  nodes[0].memory_bytes = 1000 * kMiB;
  EXPECT_EQ(with_shared_hosts(nodes)[1].memory_bytes, 0u);
  // The planner goes by the shares: 8 layers of 2 MiB and 20 MiB at the ends fit twice 90 MiB, and
  // 90 MiB, but not twice 12.
  const ModelProfile model = model_of(8);
  PlanOptions options;
  options.context = 256;
  EXPECT_TRUE(make_plan(model, {on_host("a", 90, 90), on_host("b", 90, 90)}, options).ok());
  const auto refused = make_plan(model, {on_host("a", 24, 24), on_host("b", 24, 24)}, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("short by"));
  PlannerNode other = on_host("b", 24, 24);
  other.host = "g";
  EXPECT_TRUE(make_plan(model, {on_host("a", 24, 24), other}, options).ok());
}

TEST(Planner, WindowsTakeFewerBlocks) {
  ModelProfile model = model_of(4);
  model.group_windows = {0, 512};
  EXPECT_THAT(blocks_for(model, 4096, 2, 512), ::testing::ElementsAre(512, 130));
  EXPECT_THAT(blocks_for(model, 100, 2, 512), ::testing::ElementsAre(14, 14));
  PlanOptions options{.context = 4096, .sequences_wanted = 1};
  EXPECT_THAT(make_plan(model, equal_nodes(2), options)->group_blocks,
              ::testing::ElementsAre(256, 65));
  options.ignore_windows = true;
  EXPECT_THAT(make_plan(model, equal_nodes(2), options)->group_blocks,
              ::testing::ElementsAre(256, 256));
}

TEST(Planner, SplitIsObeyedToTheLetter) {
  const ModelProfile model = model_of(30);
  const auto plan_of = [&](const char* text, uint32_t workers) {
    PlanOptions options;
    options.split = parse_split(text, 30).value();
    return make_plan(model, equal_nodes(workers), options);
  };
  const auto plan = plan_of("10,12,8", 3);
  ASSERT_TRUE(plan.ok());
  expect_valid(*plan, model);
  EXPECT_EQ(plan->split_text(), "10,12,8");
  const auto named = plan_of("worker-3:29,1,0", 4);
  ASSERT_TRUE(named.ok()) << named.status().to_string();
  expect_valid(*named, model);
  EXPECT_EQ(named->stages[0].node_name, "worker-3");
  EXPECT_EQ(named->stages[1].node_name, "worker-1");
  EXPECT_THAT(spares_of(*named), ::testing::ElementsAre("worker-4"));
  EXPECT_EQ(named->left_out[0].why, "--split gives it no layers");
  EXPECT_THAT(plan_of("10,12,8", 2).status().message(), HasSubstr("3 stages, but there are 2"));
  const Status unknown = plan_of("worker-9:30", 2).status();
  EXPECT_EQ(unknown.message(), "--split names 'worker-9', and there is no such worker");
  EXPECT_EQ(unknown.hint(), "there are: worker-1, worker-2");
  PlanOptions options;
  options.split = parse_split("28,2", 30).value();
  const auto refused = make_plan(model, equal_nodes(2, 40), options);
  EXPECT_THAT(refused.status().message(), HasSubstr("short by"));
  EXPECT_THAT(refused.status().message(), HasSubstr("on worker-1: layers 0-27"));
}

TEST(Planner, BadSplitsAreRefused) {
  for (const char* text :
       {"",        ",",      "10,", "10,x,20", "-1,31",         "0,30",   "30,0,0",
        "10,12,9", "1e1,20", ":30", "nan,30",  "99999999999,1", "10 ,20", "0",
        "0,0",     "1,-1",   "0,1", "NaN",     "1e-30,1",       "inf,30"}) {
    EXPECT_EQ(parse_split(text, 30).status().code(), StatusCode::invalid_argument) << text;
  }
  EXPECT_TRUE(parse_split("30,0", 30).ok());
  // By itself, before the model is known.
  EXPECT_TRUE(parse_split("1,2").ok());
  EXPECT_FALSE(parse_split("1,").ok());
  EXPECT_FALSE(parse_split("").ok());
  EXPECT_THAT(parse_split("w1:10,w1:20", 30).status().message(), HasSubstr("'w1' is named twice"));
}

TEST(Planner, NodesOfOneNameAreRefused) {
  std::vector<PlannerNode> nodes = equal_nodes(3);
  nodes[2].name = "worker-1";
  const auto plan = make_plan(model_of(30), nodes, {});
  EXPECT_EQ(plan.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(plan.status().message(), HasSubstr("two nodes are named 'worker-1'"));
}

TEST(Planner, StepsAreGivenSeveralTimesWhatIsPredicted) {
  auto plan = make_plan(model_of(30), equal_nodes(2), over_all());
  ASSERT_TRUE(plan.ok());
  const double predicted_s = 1 / plan->predicted_tokens_per_s();
  const double allowance_s = std::chrono::duration<double>(plan->token_allowance()).count();
  EXPECT_NEAR(allowance_s, 4 * predicted_s, 1e-5);
  plan->step_time_by_plan = false;
  EXPECT_EQ(plan->token_allowance(), Duration::zero());
}

TEST(Planner, TableAndJsonSayTheSame) {
  const ModelProfile model = model_of(30);
  const auto plan = make_plan(model, equal_nodes(2), over_all());
  ASSERT_TRUE(plan.ok());
  const std::string table = plan_table(*plan);
  EXPECT_THAT(table, HasSubstr("worker-1"));
  EXPECT_THAT(table, HasSubstr("+ head"));
  EXPECT_THAT(table, HasSubstr("tokens/s"));
  const std::string json = plan_json(*plan);
  EXPECT_THAT(json, HasSubstr("\"split\":\"" + plan->split_text() + "\""));
}

}  // namespace
}  // namespace strata::coordinator
