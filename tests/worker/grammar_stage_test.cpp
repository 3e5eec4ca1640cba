// Goal: an answer under a grammar fits it, is the same over one stage and several, and goes on
// alike on a stage that takes over in the middle. Method: a tiny model of random weights, whose
// answers fit nothing by themselves.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "backends/backends.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/matcher.h"
#include "runtime/text/tokenizer.h"
#include "tests/worker/step_support.h"
#include "worker/grammar_loader.h"
#include "worker/local_pipeline.h"

namespace strata::worker::test {
namespace {

using testing::HasSubstr;

constexpr uint32_t kPrompt = 5;
constexpr std::string_view kSchema =
    R"({"type":"object","properties":{"a":{"enum":["x","yy"]},"n":{"type":"integer","minimum":1,
        "maximum":99}},"required":["a","n"],"additionalProperties":false})";

struct Answer {
  std::vector<int32_t> tokens;
  SequenceEnd end = SequenceEnd::none;
  Status error;
};

class GrammarStageTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(register_all(devices_, {}).ok());
    file_ = *GgufFile::open(std::string(STRATA_TEST_DATA) + "/models/llama.gguf");
    tokenizer_ = make_tokenizer(file_->metadata()).value();
    grammar_ = {.kind = GrammarSpec::Kind::json_schema, .text = std::string(kSchema)};
  }

  std::unique_ptr<LocalPipeline> pipeline(const std::vector<int32_t>& counts, Results& sink) {
    LocalPipelineOptions options;
    options.ranges = *split_layers(3, counts);
    options.stage.kv.type = DType::f32;
    options.stage.kv.group_blocks = {32};
    options.stage.max_batch_tokens = 64;
    options.stage.max_sequences = 4;
    options.stage.max_context = 128;
    options.stage.devices = devices_.devices();
    options.stage.backend.threads = 1;
    options.slots_max = 4;
    auto made = LocalPipeline::create(file_, options, sink);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }

  // A step that opens slot 0 with the prompt and `before`, as one who takes over would ask for it.
  StepPlan opening(Steps& steps, uint32_t count, const std::vector<int32_t>& before) const {
    StepPlan plan = steps.next();
    const auto known = static_cast<uint32_t>(kPrompt + before.size());
    open_slot(plan, 0, known, count);
    OpenSequence& open = plan.opens[0];
    open.sampling.temperature = 5.0F;
    open.sampling.top_p = 1.0F;
    open.sampling.seed = seed_;
    open.sampling.grammar = grammar_;
    open.sampling.logit_bias = bias_;
    open.sampling.logprobs = logprobs_;
    open.end_ids = ends_;
    open.history = prompt(kPrompt);
    open.history.insert(open.history.end(), before.begin(), before.end());
    open.answer_tokens = static_cast<uint32_t>(before.size());
    plan.rows.push_back({.slot = 0, .position = 0, .count = known, .flags = StepRow::sample});
    plan.tokens = open.history;
    return plan;
  }

  // Up to `count` tokens after the prompt and `before`. The first sample is asked for until the
  // tail is ready.
  Answer answer(const std::vector<int32_t>& counts, uint32_t count,
                std::vector<int32_t> before = {}) {
    Results results;
    const auto stages = pipeline(counts, results);
    Steps steps(1);
    Answer result;
    result.tokens = std::move(before);
    const auto known = static_cast<uint32_t>(kPrompt + result.tokens.size());
    StepPlan first = opening(steps, count, result.tokens);
    size_t done = 1;
    while (true) {
      stages->submit({std::move(first), {}});
      const StepResult step = results.wait(done).back();
      if (step.records.empty() || step.records[0].end != SequenceEnd::not_ready) break;
      EXPECT_EQ(step.records[0].token, -1);
      first = opening(steps, count, result.tokens);
      first.closes = {0};
      ++done;
    }
    for (uint32_t i = 0; i + 1 < count; ++i) {
      StepPlan next = steps.next();
      add_decode_row(next, 0, known + i);
      stages->submit({std::move(next), {}});
    }
    const std::vector<StepResult> all = results.wait(done + count - 1);
    for (size_t i = done - 1; i < all.size(); ++i) take(all[i], result);
    return result;
  }

  static void take(const StepResult& step, Answer& result) {
    EXPECT_TRUE(step.status.ok()) << step.status.to_string();
    for (const TokenRecord& record : step.records) {
      if (!record.error.ok()) result.error = record.error;
      result.end = record.end;
      if (record.end != SequenceEnd::end_token) result.tokens.push_back(record.token);
    }
  }

  std::string text_of(const Answer& answer) const { return tokenizer_->decode(answer.tokens); }

  DeviceRegistry devices_;
  std::shared_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  GrammarSpec grammar_;
  std::vector<std::pair<int32_t, float>> bias_;
  uint64_t seed_ = 3;
  bool logprobs_ = false;
  std::vector<int32_t> ends_ = {2};
};

TEST_F(GrammarStageTest, TheAnswerFitsAndIsTheSameOverStages) {
  const Answer alone = answer({3}, 60);
  EXPECT_EQ(alone.end, SequenceEnd::end_token);
  grammar::Matcher matcher(grammar::compile_schema(kSchema, grammar::Strictness::checking).value());
  EXPECT_TRUE(matcher.accept(text_of(alone)) && matcher.can_end()) << text_of(alone);
  for (const std::vector<int32_t>& split : {std::vector<int32_t>{1, 1, 1}, {0, 3}, {3, 0}}) {
    EXPECT_EQ(answer(split, 60).tokens, alone.tokens);
  }
}

TEST_F(GrammarStageTest, GoesOnAlikeFromAnyToken) {
  const Answer whole = answer({3}, 60);
  for (size_t cut = 1; cut < whole.tokens.size(); cut += 3) {
    const auto end = whole.tokens.begin() + static_cast<ptrdiff_t>(cut);
    EXPECT_EQ(answer({3}, 60, {whole.tokens.begin(), end}).tokens, whole.tokens) << cut;
  }
}

// Whatever token would spell a name again, the answer goes on with another one.
TEST_F(GrammarStageTest, ANameThatCameBeforeEndsNoAnswer) {
  grammar_ = {.kind = GrammarSpec::Kind::json_schema,
              .text = R"({"type":"object","patternProperties":{"^x[01]{1,2}$":{"const":1}},
                          "additionalProperties":false,"minProperties":4})"};
  int ended = 0;
  for (seed_ = 1; seed_ <= 12; ++seed_) {
    const Answer done = answer({3}, 60);
    EXPECT_TRUE(done.error.ok()) << done.error.to_string() << " after " << text_of(done);
    if (done.end != SequenceEnd::end_token) continue;
    ++ended;
    grammar::Matcher matcher(
        grammar::compile_schema(grammar_.text, grammar::Strictness::checking).value());
    EXPECT_TRUE(matcher.accept(text_of(done)) && matcher.can_end()) << text_of(done);
  }
  EXPECT_GE(ended, 3);
}

// Logprobs need the sampler at each token, so that none is taken without it.
TEST_F(GrammarStageTest, TokensWithoutAChoiceAreTheSameWithTheSampler) {
  for (const char* pattern : {"abcdefgh[xyz]{3}ijklm[0-9]{2}", "a*b", "(one|other) of two"}) {
    grammar_ = {.kind = GrammarSpec::Kind::regex, .text = pattern};
    logprobs_ = false;
    const Answer skipped = answer({3}, 60);
    logprobs_ = true;
    EXPECT_EQ(answer({1, 2}, 60).tokens, skipped.tokens) << pattern;
  }
}

// The tail compiles beside its work: who has no grammar gets tokens meanwhile.
TEST_F(GrammarStageTest, OthersGoOnWhileAGrammarIsCompiled) {
  grammar_ = {.kind = GrammarSpec::Kind::regex, .text = "(a|b)*a(a|b){13}"};  // a quarter second
  Results results;
  const auto stages = pipeline({3}, results);
  Steps steps(1);
  size_t done = 0;
  while (true) {
    StepPlan plan = opening(steps, 20, {});
    open_slot(plan, 1, kPrompt, 100);
    add_prompt_row(plan, 1, kPrompt);
    if (done > 0) plan.closes = {0, 1};
    stages->submit({std::move(plan), {}});
    const StepResult step = results.wait(++done).back();
    ASSERT_EQ(step.records.size(), 2U);
    EXPECT_GE(step.records[1].token, 0);
    if (step.records[0].end != SequenceEnd::not_ready) break;
  }
  EXPECT_GE(done, 4U);
}

TEST_F(GrammarStageTest, EndsWhereNothingMayFollow) {
  grammar_ = {.kind = GrammarSpec::Kind::regex, .text = "ab"};
  ends_.clear();
  const Answer done = answer({3}, 20);
  EXPECT_EQ(done.end, SequenceEnd::end_token);
  EXPECT_EQ(text_of(done), "ab");
  EXPECT_TRUE(done.error.ok());
}

TEST_F(GrammarStageTest, NoBiasPassesTheGrammar) {
  for (int32_t id = 0; id < 3; ++id) bias_.emplace_back(id, 100.0F);
  const Answer done = answer({3}, 60);
  grammar::Matcher matcher(grammar::compile_schema(kSchema, grammar::Strictness::checking).value());
  EXPECT_TRUE(matcher.accept(text_of(done))) << text_of(done);
  bias_.clear();
  for (int32_t id = 0; id < 384; ++id) bias_.emplace_back(id, -100.0F);
  const Answer none = answer({3}, 5);
  EXPECT_EQ(none.error.code(), StatusCode::failed_precondition) << none.error.to_string();
  EXPECT_EQ(none.end, SequenceEnd::error);
}

TEST_F(GrammarStageTest, AGrammarThatIsNoneFailsTheRowOnly) {
  grammar_ = {.kind = GrammarSpec::Kind::gbnf, .text = "rout::="};
  const Answer failed = answer({3}, 3);
  EXPECT_THAT(failed.error.message(), HasSubstr("there is no rule 'root'"));
  EXPECT_EQ(failed.end, SequenceEnd::error);
  grammar_ = {.kind = GrammarSpec::Kind::regex, .text = "[0-9]+"};
  EXPECT_THAT(answer({3}, 3, prompt(2)).error.message(), HasSubstr("does not fit the grammar"));
}

// More than are kept waiting, each asked for again and again as postponed sequences do.
TEST_F(GrammarStageTest, ManyDifferentGrammarsAllGetReady) {
  GrammarLoader loader(file_);
  std::vector<GrammarSpec> waiting;
  for (int i = 0; i < 150; ++i) {
    waiting.push_back(
        {.kind = GrammarSpec::Kind::regex, .text = fmt::format("[a-z]{{{}}}", i + 1)});
  }
  for (const GrammarSpec& spec : waiting) loader.prepare(spec);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!waiting.empty() && std::chrono::steady_clock::now() < deadline) {
    std::erase_if(waiting, [&loader](const GrammarSpec& spec) {
      const auto started = loader.start(spec);
      EXPECT_TRUE(started.ok()) << started.status().to_string();
      return !started.ok() || started->has_value();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(waiting.empty()) << waiting.size() << " never got ready";
}

}  // namespace
}  // namespace strata::worker::test
