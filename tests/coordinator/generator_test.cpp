// From text, chat or ids to an answer's events, over the engine and a pipeline that answers at
// once.
#include "coordinator/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/coordinator/fake_pipeline.h"

namespace strata::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocab = 384;  // of tests/data/models/llama.gguf

PipelineShape shape_of() {
  PipelineShape shape;
  shape.groups = {{.window = 0, .block_count = 64}};
  shape.context = 256;
  shape.vocab_size = kVocab;
  return shape;
}

class EchoSink final : public StepSink {
 public:
  explicit EchoSink(EngineLoop& loop)
      : loop_(loop), pipeline_(shape_of(), Duration(1), Duration(1)) {}
  void submit(StepFrame frame) override {
    pipeline_.submit(frame.plan, {});
    ASSERT_EQ(pipeline_.fault, "");
    loop_.deliver(pipeline_.take_result());
  }

 private:
  EngineLoop& loop_;
  FakePipeline pipeline_;
};

struct Outcome {
  std::string text;
  std::vector<int32_t> tokens;
  std::optional<remote::GenerateStarted> started;
  std::optional<remote::GenerateFinished> finished;
  Status status;
};

class GeneratorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = GgufFile::open(std::string(STRATA_TEST_DATA) + "/models/llama.gguf");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    auto created = Generator::create(file.value(), loop_);
    ASSERT_TRUE(created.ok()) << created.status().to_string();
    generator_ = std::move(created).value();
    loop_.attach(shape_of(), std::make_shared<EchoSink>(loop_));
  }

  Outcome answer(const remote::GenerateRequest& request) {
    const auto outcome = std::make_shared<Outcome>();
    const auto ended = std::make_shared<std::promise<void>>();
    generator_->start(request, [outcome, ended](AnswerEvent event) {
      if (auto* started = std::get_if<remote::GenerateStarted>(&event)) outcome->started = *started;
      if (auto* token = std::get_if<remote::GenerateToken>(&event)) {
        outcome->text += token->text;
        if (token->id >= 0) outcome->tokens.push_back(token->id);
      }
      if (auto* finished = std::get_if<remote::GenerateFinished>(&event)) {
        outcome->finished = *finished;
        ended->set_value();
      }
      if (auto* status = std::get_if<Status>(&event)) {
        outcome->status = *status;
        ended->set_value();
      }
    });
    ended->get_future().get();
    return *outcome;
  }

  static remote::GenerateRequest ids_request(uint32_t max_tokens) {
    remote::GenerateRequest request;
    request.prompt = remote::TokenPrompt{1, 50, 60, 70};
    request.max_tokens = max_tokens;
    request.ignore_end = true;
    return request;
  }

  EngineLoop loop_{EngineLimits{}};
  std::unique_ptr<Generator> generator_;
};

TEST_F(GeneratorTest, StreamsTheTextOfTheModelsTokens) {
  const Outcome outcome = answer(ids_request(30));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_EQ(outcome.tokens, expected_tokens({1, 50, 60, 70}, 30, {}, kVocab));
  EXPECT_EQ(outcome.started->prompt_tokens, 4U);
  EXPECT_EQ(outcome.started->model, "llama.gguf");
  EXPECT_EQ(outcome.finished->reason, "length");
  EXPECT_EQ(outcome.finished->generated_tokens, 30U);
  EXPECT_FALSE(outcome.text.empty());
}

TEST_F(GeneratorTest, StopStringEndsTheAnswerBeforeIt) {
  const std::string whole = answer(ids_request(60)).text;
  ASSERT_GT(whole.size(), 20U);
  // A piece out of the middle that begins with an ASCII character.
  size_t at = 10;
  while (static_cast<unsigned char>(whole[at]) >= 0x80U) ++at;
  size_t end = at + 3;
  while (end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xC0U) == 0x80U) ++end;
  const std::string stop = whole.substr(at, end - at);
  remote::GenerateRequest request = ids_request(60);
  request.stop = {"never in it", stop};
  const Outcome outcome = answer(request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_EQ(outcome.text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(outcome.finished->reason, "stop");
  EXPECT_LT(outcome.finished->generated_tokens, 60U);
}

TEST_F(GeneratorTest, ZeroTokensMeansUpToTheContextsEnd) {
  const Outcome outcome = answer(ids_request(0));
  EXPECT_EQ(outcome.tokens.size(), 252U);
  EXPECT_EQ(outcome.finished->reason, "length");
}

TEST_F(GeneratorTest, TextGetsOneBosAndChatTheModelsFrame) {
  remote::GenerateRequest request;
  request.prompt = std::string("Hello");
  request.max_tokens = 1;
  const Outcome text = answer(request);
  const auto ids =
      generator_->tokenizer().encode("Hello", {.add_special = true, .single_bos = true});
  EXPECT_EQ(text.started->prompt_tokens, ids.size());
  request.prompt = remote::ChatPrompt{.messages = messages_json({{"user", "Hello"}})};
  const Outcome chat = answer(request);
  if (generator_->chat_format() == nullptr) {
    EXPECT_EQ(chat.status.code(), StatusCode::unimplemented);
    EXPECT_THAT(chat.status.hint(), HasSubstr("--raw"));
  } else {
    EXPECT_GT(chat.started->prompt_tokens, ids.size());
  }
}

TEST_F(GeneratorTest, RefusesWhatMakesNoSense) {
  remote::GenerateRequest request = ids_request(5);
  request.stop = {"a", ""};
  EXPECT_THAT(answer(request).status.message(), HasSubstr("stop string 1 is empty"));
  request.stop.assign(17, "x");
  EXPECT_THAT(answer(request).status.message(), HasSubstr("17 stop strings"));
  request = ids_request(5);
  request.prompt = remote::TokenPrompt{1, -1};
  EXPECT_THAT(answer(request).status.message(), HasSubstr("token 1 of the prompt is -1"));
  request = ids_request(5);
  request.top_p = 1.5F;
  EXPECT_THAT(answer(request).status.message(), HasSubstr("top_p"));
  request = ids_request(5);
  request.logit_bias = {{kVocab, 1.0F}};
  EXPECT_EQ(answer(request).status.code(), StatusCode::invalid_argument);
}

TEST_F(GeneratorTest, SeedIsReportedAndDefaultsAreTheProjects) {
  remote::GenerateRequest request = ids_request(1);
  request.seed = 77;
  EXPECT_EQ(answer(request).started->seed, 77U);
  request.seed.reset();
  EXPECT_NE(answer(request).started->seed, answer(request).started->seed);
  const auto defaults = recommended_sampling(Metadata());
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->temperature, 0.7F);
  EXPECT_EQ(defaults->top_p, 0.95F);
}

}  // namespace
}  // namespace strata::coordinator
