// Records to messages and back: nothing is lost, and what a peer must not say is refused.
#include "backends/remote/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace strata::remote {
namespace {

using testing::HasSubstr;

const std::string kDigest = "sha256:" + std::string(64, 'b');

StepFrame make_step() {
  StepFrame step;
  step.plan.epoch = 3;
  step.plan.step_id = 9;
  step.plan.budget_ms = 1500;
  OpenSequence open;
  open.slot = 2;
  open.sequence_id = uint64_t{1} << 40;
  open.prompt_tokens = 5;
  open.max_new_tokens = 64;
  open.sampling.temperature = 0.3f;
  open.sampling.top_k = 40;
  open.sampling.seed = 0xfedcba9876543210;
  open.sampling.logit_bias = {{7, -100.0f}, {9, 1.5f}};
  open.sampling.logprobs = true;
  open.sampling.top_logprobs = 3;
  open.sampling.grammar = {GrammarSpec::Kind::gbnf, std::string("root ::= \"a\0\"", 13), true};
  open.answer_tokens = 1;
  open.end_ids = {1, 2};
  open.history = {5, 6, 7};
  step.plan.opens = {open};
  step.plan.closes = {4, 2};
  step.plan.block_changes = {{2, 1, 0, 17}, {2, 0, 0, -1}};
  step.plan.block_copies = {{1, 4, 5}};
  step.plan.rows = {{2, 0, 3, 0},
                    {3, 10, 1, StepRow::input_from_tail | StepRow::sample},
                    {5, 4, 1, StepRow::input_from_tail | StepRow::dead}};
  step.plan.tokens = {11, 12, 13};
  step.plan.busy_ns = 123'456'789;
  step.plan.failure = data_loss("a: step 9: the weights are gone", "look at the disk");
  step.activations.assign(4 * 8, 0.5f);  // {8, 4 live tokens}
  return step;
}

TEST(Wire, AStepComesBackAsItWas) {
  const StepFrame step = make_step();
  auto frame = to_frame(make_step());
  ASSERT_TRUE(frame.ok()) << frame.status().to_string();
  EXPECT_EQ(frame.value().n_tokens, 4u);
  EXPECT_EQ(frame.value().n_embd, 8u);
  const auto result = step_from_frame(std::move(frame).value());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const StepPlan& plan = result.value().plan;
  EXPECT_EQ(plan.epoch, 3u);
  EXPECT_EQ(plan.step_id, 9u);
  EXPECT_EQ(plan.budget_ms, 1500u);
  ASSERT_EQ(plan.opens.size(), 1u);
  const OpenSequence& open = plan.opens[0];
  EXPECT_EQ(open.sequence_id, uint64_t{1} << 40);
  EXPECT_EQ(open.sampling.seed, 0xfedcba9876543210u);
  EXPECT_EQ(open.sampling.logit_bias, step.plan.opens[0].sampling.logit_bias);
  EXPECT_EQ(open.sampling.temperature, 0.3f);
  EXPECT_EQ(open.sampling.penalty_last_n, 64);
  EXPECT_EQ(open.sampling.grammar, step.plan.opens[0].sampling.grammar);
  EXPECT_EQ(open.answer_tokens, 1U);
  EXPECT_EQ(open.end_ids, step.plan.opens[0].end_ids);
  EXPECT_EQ(open.history, step.plan.opens[0].history);
  EXPECT_EQ(plan.closes, step.plan.closes);
  ASSERT_EQ(plan.block_changes.size(), 2u);
  EXPECT_EQ(plan.block_changes[1].block, -1);
  EXPECT_EQ(plan.block_copies[0].to, 5);
  ASSERT_EQ(plan.rows.size(), 3u);
  EXPECT_EQ(plan.rows[2].flags, StepRow::input_from_tail | StepRow::dead);
  EXPECT_EQ(plan.tokens, step.plan.tokens);
  EXPECT_EQ(result.value().activations, step.activations);
  EXPECT_EQ(plan.busy_ns, 123'456'789u);
  EXPECT_EQ(plan.failure.code(), StatusCode::data_loss);
  EXPECT_EQ(plan.failure.hint(), "look at the disk");
}

TEST(Wire, ARowIsSmall) {
  StepFrame step;
  for (uint32_t i = 0; i < 100; ++i) {
    step.plan.rows.push_back({i, 4000 + i, 1, StepRow::input_from_tail | StepRow::sample});
  }
  EXPECT_LE(to_frame(std::move(step)).value().record.size(), 100u * 24);
}

std::string refused(const v1::StepPlan& plan, uint32_t n_tokens = 0) {
  Frame frame;
  frame.record = plan.SerializeAsString();
  frame.n_tokens = n_tokens;
  frame.n_embd = n_tokens > 0 ? 2 : 0;
  frame.rows.assign(uint64_t{n_tokens} * 2, 0.0f);
  const auto result = step_from_frame(std::move(frame));
  return result.ok() ? "no error" : result.status().message();
}

TEST(Wire, RefusesPlansWhoseNumbersDisagree) {
  v1::StepPlan plan;
  v1::StepRow* row = plan.add_rows();
  row->set_count(2);
  plan.add_tokens(1);
  EXPECT_THAT(refused(plan), HasSubstr("1 token ids for rows of 2 tokens"));
  plan.add_tokens(1);
  EXPECT_EQ(refused(plan), "no error");
  EXPECT_THAT(refused(plan, 3), HasSubstr("activations of 3 tokens for a plan of 2"));
  row->set_count(0);
  EXPECT_THAT(refused(plan), HasSubstr("count 0"));
  row->set_count(0x80000000);
  EXPECT_THAT(refused(plan), HasSubstr("count 2147483648"));
  row->set_count(2);
  row->set_flags(16);
  EXPECT_THAT(refused(plan), HasSubstr("unknown flags 0x10"));
  row->set_flags(StepRow::input_from_tail);
  EXPECT_THAT(refused(plan), HasSubstr("one input token"));
  row->set_flags(0);
  row->set_position(0xffffffff);
  EXPECT_THAT(refused(plan), HasSubstr("too large"));
  Frame garbage;
  garbage.record = std::string(9, '\xff');
  EXPECT_THAT(step_from_frame(garbage).status().message(), HasSubstr("no StepPlan"));
}

TEST(Wire, RandomRecordsNeverHarm) {
  const unsigned seed = 7;
  std::mt19937 random(seed);
  const Frame good = to_frame(make_step()).value();
  for (int round = 0; round < 20'000; ++round) {
    Frame frame = good;
    for (int i = 0; i < 3; ++i) {
      frame.record[random() % frame.record.size()] = static_cast<char>(random());
    }
    const auto step = step_from_frame(frame);
    if (step.ok()) {
      EXPECT_EQ(step.value().plan.live_tokens(), 4u) << "seed " << seed << " round " << round;
    }
    static_cast<void>(result_from_frame(frame).ok());
  }
}

TEST(Wire, AResultComesBackAsItWas) {
  StepResult result;
  result.epoch = 3;
  result.step_id = 9;
  TokenRecord first;
  first.slot = 1;
  first.sequence_id = 77;
  first.position = 6;
  first.token = 42;
  first.logprob = -0.25f;
  first.end = SequenceEnd::end_token;
  first.top = {{42, -0.25f}, {1, -3.0f}};
  TokenRecord second;
  second.logits = {1.0f, 2.0f, 3.0f};
  TokenRecord third;
  third.logits = {4.0f};
  third.error = data_loss("non-finite logits", "look at the weights");
  third.end = SequenceEnd::error;
  result.records = {first, second, third};
  result.busy_ns = 77;
  auto frame = to_frame(result);
  ASSERT_TRUE(frame.ok());
  ASSERT_TRUE(check_frame(frame.value()).ok());
  const auto back = result_from_frame(std::move(frame).value());
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  ASSERT_EQ(back.value().records.size(), 3u);
  const TokenRecord& token = back.value().records[0];
  EXPECT_EQ(back.value().busy_ns, 77u);
  EXPECT_EQ(token.token, 42);
  EXPECT_EQ(token.end, SequenceEnd::end_token);
  EXPECT_EQ(token.top, first.top);
  EXPECT_EQ(back.value().records[1].token, -1);
  EXPECT_EQ(back.value().records[1].logits, second.logits);
  EXPECT_EQ(back.value().records[2].logits, third.logits);
  EXPECT_EQ(back.value().records[2].error.hint(), "look at the weights");
  EXPECT_TRUE(back.value().status.ok());
}

TEST(Wire, RefusesResultsThatClaimTooMuch) {
  v1::StepResult message;
  message.add_records()->set_logits_count(~uint64_t{0});
  Frame frame;
  frame.record = message.SerializeAsString();
  frame.n_tokens = 2;
  frame.n_embd = 1;
  frame.rows = {1, 2};
  EXPECT_THAT(result_from_frame(frame).status().message(), HasSubstr("claims"));
  message.mutable_records(0)->set_logits_count(1);
  frame.record = message.SerializeAsString();
  EXPECT_THAT(result_from_frame(frame).status().message(), HasSubstr("1 belong to records"));
  message.mutable_records(0)->set_end(9);
  frame.record = message.SerializeAsString();
  EXPECT_THAT(result_from_frame(frame).status().message(), HasSubstr("end 9"));
}

Hello make_hello() {
  Hello hello;
  hello.name = "worker-1";
  hello.identity = std::string(32, 'f');
  hello.version = kProtocolVersion;
  hello.listen_address = "0.0.0.0:7000";
  DeviceReport device;
  device.name = "CPU";
  device.description = "a processor";
  device.memory = {10, 20};
  device.speed = {1e10, 2e11, 3e10};
  hello.devices = {device};
  hello.host_id = std::string(32, 'a');
  hello.memory_is_stated = true;
  hello.memory_limit_bytes = 1 << 30;
  hello.last_epoch = 8;
  hello.threads = 2;
  hello.process_id = 4711;
  hello.held_model_digest = kDigest;
  hello.held_range = {3, 9, false, true};
  hello.cluster_id = "c1";
  hello.hop_us = 87.5;
  return hello;
}

TEST(Wire, AHelloComesBackAsItWas) {
  const auto back = from_proto(to_proto(FromWorker(make_hello())));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  const Hello& hello = std::get<Hello>(back.value());
  EXPECT_EQ(hello.name, "worker-1");
  EXPECT_EQ(hello.version, kProtocolVersion);
  EXPECT_EQ(hello.listen_address, "0.0.0.0:7000");
  EXPECT_EQ(hello.devices[0].memory.free_bytes, 10u);
  EXPECT_EQ(hello.devices[0].speed.int8_ops_per_s, 2e11);
  EXPECT_EQ(hello.host_id, make_hello().host_id);
  EXPECT_TRUE(hello.memory_is_stated);
  EXPECT_EQ(hello.held_range, make_hello().held_range);
  EXPECT_EQ(hello.process_id, 4711u);
  EXPECT_EQ(hello.cluster_id, "c1");
  EXPECT_EQ(hello.hop_us, 87.5);
}

TEST(Wire, RefusesAHelloByTheFieldThatIsWrong) {
  const auto why = [](auto change) {
    Hello hello = make_hello();
    change(hello);
    return from_proto(to_proto(FromWorker(hello))).status().message();
  };
  EXPECT_THAT(why([](Hello& h) { h.name = "a b"; }), HasSubstr("worker name"));
  EXPECT_THAT(why([](Hello& h) { h.identity = "x"; }), HasSubstr("identity"));
  EXPECT_THAT(why([](Hello& h) { h.listen_address = "a:0"; }), HasSubstr("listen_address"));
  EXPECT_THAT(why([](Hello& h) { h.host_id = "../x"; }), HasSubstr("the host id"));
  EXPECT_THAT(why([](Hello& h) { h.devices[0].speed.f32_ops_per_s = -1; }), HasSubstr("speed"));
  EXPECT_THAT(why([](Hello& h) { h.hop_us = -1; }), HasSubstr("hop_us"));
  EXPECT_THAT(why([](Hello& h) { h.held_range = {5, 3, false, false}; }), HasSubstr("[5, 3)"));
  EXPECT_THAT(from_proto(v1::FromWorker()).status().message(), HasSubstr("does not know"));
}

TEST(Wire, AHeartbeatSaysWhatTheStageDoes) {
  Heartbeat beat;
  beat.epoch = 3;
  beat.progress = 9;
  beat.activity = StageActivity::awaiting_token;
  beat.step = 12;
  beat.step_tokens = 40;
  beat.busy_ns = 1'000'000;
  beat.tokens_done = 77;
  beat.positions_read = 5'000;
  const auto back = from_proto(to_proto(FromWorker(beat)));
  ASSERT_TRUE(back.ok());
  const Heartbeat& out = std::get<Heartbeat>(back.value());
  EXPECT_EQ(out.activity, StageActivity::awaiting_token);
  EXPECT_EQ(out.step, 12u);
  EXPECT_EQ(out.step_tokens, 40u);
  EXPECT_EQ(out.busy_ns, 1'000'000u);
  EXPECT_EQ(out.tokens_done, 77u);
  EXPECT_EQ(out.positions_read, 5'000u);
  v1::FromWorker message = to_proto(FromWorker(beat));
  message.mutable_heartbeat()->set_activity(3);
  EXPECT_THAT(from_proto(message).status().message(), HasSubstr("activity 3"));
}

// What a peer says of itself stands in one line, and looks like what it is.
TEST(Wire, TextsOfPeersMakeNoLinesAndNoDisguise) {
  const auto said = [](const std::string& text) {
    v1::FromWorker message;
    message.mutable_leaving()->set_reason(text);
    return std::get<Leaving>(from_proto(message).value()).reason;
  };
  EXPECT_EQ(said("x\nready: 9 stages\r\tepoch"), "x ready: 9 stages  epoch");
  EXPECT_EQ(said("a\x1b[31mb\x7f"
                 "c\0d"),
            "a?[31mb?c");
  EXPECT_EQ(said("a\u009b31m"), "a?31m");
  EXPECT_EQ(said("a\u202eb\u2066c\u2069\u202a\u2028"), "a?b?c???");
  EXPECT_EQ(said("caf\u00e9 \u2026 \U0001f600"), "caf\u00e9 \u2026 \U0001f600");
  EXPECT_EQ(said("bad \x9b\xff\xe2\x80"), "bad ????");
  EXPECT_EQ(said(std::string(4095, 'x') + "\u00e9").size(), 4095U) << "no half characters";
}

TEST(Wire, DevicesAreFewAndTheirNamesShort) {
  Hello hello;
  hello.name = "w";
  hello.identity = std::string(32, 'a');
  hello.listen_address = "127.0.0.1:5";
  hello.devices.resize(1);
  hello.devices[0].name = std::string(4096, 'd');
  hello.devices[0].description = std::string(4096, 'e');
  const auto cut = from_proto(to_proto(FromWorker(hello)));
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  EXPECT_EQ(std::get<Hello>(*cut).devices[0].name.size(), 64U);
  EXPECT_EQ(std::get<Hello>(*cut).devices[0].description.size(), 128U);
  hello.devices.resize(3, hello.devices[0]);
  EXPECT_THAT(from_proto(to_proto(FromWorker(hello))).status().message(),
              HasSubstr("the names of 3 devices are more than 512 bytes"));
  hello.devices.assign(33, {});
  EXPECT_THAT(from_proto(to_proto(FromWorker(hello))).status().message(),
              HasSubstr("33 devices are more than 32"));
}

TEST(Wire, FailedRowsComeBackAndAreDeadOnes) {
  StepFrame step;
  step.plan.rows = {{0, 0, 1, StepRow::input_from_tail | StepRow::dead}, {1, 0, 1, 0}};
  step.plan.tokens = {5};
  step.plan.row_failures = {{0, data_loss("w1: the layers made a NaN", "the file is damaged")}};
  const auto back = step_from_frame(to_frame(step).value());
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  ASSERT_EQ(back->plan.row_failures.size(), 1U);
  EXPECT_EQ(back->plan.row_failures[0].row, 0U);
  EXPECT_EQ(back->plan.row_failures[0].why.to_string(), step.plan.row_failures[0].why.to_string());
  for (const uint32_t row : {1U, 2U, UINT32_MAX}) {
    step.plan.row_failures[0].row = row;
    EXPECT_THAT(step_from_frame(to_frame(step).value()).status().message(),
                HasSubstr("is said to have failed, but it is not dead"));
  }
}

TEST(Wire, CommandsComeBackAsTheyWere) {
  LoadStage load;
  load.epoch = 4;
  load.model = {"smollm2.gguf", kDigest};
  load.range = {0, 10, true, false};
  load.kv_type = "q8_0";
  load.context_tokens = 2048;
  load.blocks_per_group = {128, 64};
  load.max_step_tokens = 512;
  load.max_sequences = 16;
  load.threads = 2;
  load.max_outputs = 100;
  load.stream_key = std::string(32, 'a');
  load.steps_from = "coordinator";
  load.results_from = "b";
  const auto back = from_proto(to_proto(ToWorker{5, load}));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back.value().command_id, 5u);
  const LoadStage& out = std::get<LoadStage>(back.value().command);
  EXPECT_EQ(out.model, load.model);
  EXPECT_EQ(out.range, load.range);
  EXPECT_EQ(out.blocks_per_group, load.blocks_per_group);
  EXPECT_EQ(out.kv_type, "q8_0");
  EXPECT_EQ(out.max_outputs, 100u);
  EXPECT_EQ(out.stream_key, load.stream_key);
  EXPECT_EQ(out.steps_from, "coordinator");
  EXPECT_EQ(out.results_from, "b");

  StartEpoch start{4, 1, 3, {"b", "127.0.0.1:7001"}, {}};
  const auto started = from_proto(to_proto(ToWorker{6, start}));
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(std::get<StartEpoch>(started.value().command).next, start.next);
  EXPECT_TRUE(std::get<StartEpoch>(started.value().command).head.address.empty());

  load.range = {0, 1 << 30, false, false};
  EXPECT_THAT(from_proto(to_proto(ToWorker{1, load})).status().message(), HasSubstr("1073741824"));
  load.range = {0, 1, false, false};
  load.max_outputs = 513;
  EXPECT_THAT(from_proto(to_proto(ToWorker{1, load})).status().message(),
              HasSubstr("513 outputs of steps of 512 tokens"));
  load.max_outputs = 0;
  load.kv_type = "q2";
  EXPECT_THAT(from_proto(to_proto(ToWorker{1, load})).status().message(), HasSubstr("'q2'"));
  start.stage_index = 3;
  EXPECT_THAT(from_proto(to_proto(ToWorker{1, start})).status().message(),
              HasSubstr("stage 3 of 3"));
}

TEST(Wire, EventsOfAnAnswerThatIsSplit) {
  GenerateToken token{.id = 7, .text = "<t>f", .logprob = -1.0F, .top = {{2, -3.0F}}};
  token.deltas = {{AnswerDelta::Kind::call, "f", 1}, {AnswerDelta::Kind::arguments, "{", 1}};
  const auto back = from_proto(to_proto(GenerateEvent(token)));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(std::get<GenerateToken>(back.value()).deltas, token.deltas);
  v1::GenerateEvent message = to_proto(GenerateEvent(token));
  message.mutable_token()->mutable_deltas(0)->set_kind(4);
  EXPECT_THAT(from_proto(message).status().message(), HasSubstr("a delta of kind 4"));
  const auto started =
      from_proto(to_proto(GenerateEvent(GenerateStarted{.model = "m", .is_split = true})));
  EXPECT_TRUE(std::get<GenerateStarted>(started.value()).is_split);
}

TEST(Wire, RequestsKeepWhatIsSetAndWhatIsNot) {
  GenerateRequest request;
  request.prompt = ChatPrompt{.messages = "[1]", .tools = "[2]", .tool_choice = "\"auto\""};
  request.temperature = 0.0f;
  request.seed = 5;
  request.stop = {"\n\n"};
  request.logit_bias = {{3, -1.0f}};
  request.grammar = {GrammarSpec::Kind::json_schema, "{}", false};
  const auto back = from_proto(to_proto(request));
  ASSERT_TRUE(back.ok());
  const auto& chat = std::get<ChatPrompt>(back.value().prompt);
  EXPECT_EQ(chat.messages, "[1]");
  EXPECT_EQ(chat.tools, "[2]");
  EXPECT_EQ(chat.tool_choice, "\"auto\"");
  EXPECT_EQ(back.value().temperature, 0.0f);
  EXPECT_FALSE(back.value().top_p.has_value());
  EXPECT_EQ(back.value().seed, 5u);
  EXPECT_EQ(back.value().logit_bias, request.logit_bias);
  EXPECT_EQ(back.value().grammar, request.grammar);
  v1::GenerateRequest message = to_proto(request);
  message.mutable_grammar()->set_kind(9);
  EXPECT_THAT(from_proto(message).status().message(), HasSubstr("kind 9"));
  message.mutable_grammar()->set_kind(1);
  message.mutable_grammar()->set_text(std::string(kGrammarBytesMax + 1, ' '));
  EXPECT_THAT(from_proto(message).status().message(), HasSubstr("524289 bytes"));
  EXPECT_THAT(from_proto(v1::GenerateRequest()).status().message(), HasSubstr("no prompt"));
  request.stop = {""};
  EXPECT_FALSE(from_proto(to_proto(request)).ok());
}

TEST(Wire, AStatusCrossesWithItsHint) {
  const Status status = failed_precondition("fenced: epoch 3 < 4", "join again");
  const Status back = from_grpc(to_grpc(status));
  EXPECT_EQ(back.code(), StatusCode::failed_precondition);
  EXPECT_EQ(back.message(), "fenced: epoch 3 < 4");
  EXPECT_EQ(back.hint(), "join again");
  EXPECT_TRUE(from_grpc(to_grpc(ok_status())).ok());
}

}  // namespace
}  // namespace strata::remote
