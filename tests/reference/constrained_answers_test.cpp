// Goal: whatever a model says under a schema is JSON that fits it. Method: SmolLM2 at temperature
// 5, which makes noise of any answer that is not held, under 50 schemas that bound their lengths.
// Each answer that ends by itself is parsed, and judged by the automaton for checking, which
// jsonschema has agreed with (tests/runtime/grammar); check_answers.py there asks jsonschema
// itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/matcher.h"
#include "serve/local_engine.h"

namespace strata {
namespace {

struct Answer {
  std::string text;
  std::string reason;
  std::string tokens;
  Status status;
};

class ConstrainedAnswers : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("STRATA_MODELS_DIR");
    const std::string path = folder == nullptr ? "" : std::string(folder) + "/smollm2.gguf";
    if (path.empty() || !std::filesystem::exists(path)) {
      GTEST_SKIP() << "STRATA_MODELS_DIR has no smollm2.gguf";
    }
    serve::LocalEngineOptions options;
    options.model.path = path;
    options.model.kv_type = "f16";
    options.context = 256;
    options.sequences = 10;
    auto opened = serve::LocalEngine::open(options, terminal_, {});
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    engine_ = std::move(opened).value();
  }

  std::future<Answer> ask(const remote::GenerateRequest& request) {
    const auto promise = std::make_shared<std::promise<Answer>>();
    const auto answer = std::make_shared<Answer>();
    engine_->generator().start(request, [promise, answer](coordinator::AnswerEvent event) {
      if (const auto* token = std::get_if<remote::GenerateToken>(&event)) {
        answer->text += token->text;
        answer->tokens += std::to_string(token->id) + " ";
      }
      if (const auto* finished = std::get_if<remote::GenerateFinished>(&event)) {
        answer->reason = finished->reason;
        promise->set_value(*answer);
      }
      if (const auto* status = std::get_if<Status>(&event)) {
        answer->status = *status;
        promise->set_value(*answer);
      }
    });
    return promise->get_future();
  }

  static remote::GenerateRequest request_for(const std::string& schema, uint64_t seed) {
    remote::GenerateRequest request;
    request.prompt =
        remote::ChatPrompt{.messages = messages_json({{"user", "Give me an example."}})};
    request.grammar = {.kind = GrammarSpec::Kind::json_schema, .text = schema};
    request.temperature = 5.0F;
    request.top_p = 1.0F;
    request.seed = seed;
    request.max_tokens = 120;
    return request;
  }

  cli::Terminal terminal_;
  std::unique_ptr<serve::LocalEngine> engine_;
};

TEST_F(ConstrainedAnswers, FitTheirSchemasAtTemperatureFive) {
  std::ifstream file(STRATA_TEST_DATA "/grammar/bounded_schemas.json");
  const nlohmann::json schemas = nlohmann::json::parse(file);
  ASSERT_EQ(schemas.size(), 50U);
  std::vector<std::future<Answer>> answers;
  for (size_t i = 0; i < schemas.size(); ++i) {
    answers.push_back(ask(request_for(schemas[i].dump(), 100 + i)));
  }
  size_t ended = 0;
  for (size_t i = 0; i < schemas.size(); ++i) {
    const Answer answer = answers[i].get();
    ASSERT_TRUE(answer.status.ok()) << answer.status.to_string() << schemas[i];
    if (answer.reason != "stop") continue;
    ++ended;
    EXPECT_TRUE(nlohmann::json::accept(answer.text)) << answer.text << "\n" << schemas[i];
    grammar::Matcher matcher(
        grammar::compile_schema(schemas[i].dump(), grammar::Strictness::checking).value());
    EXPECT_TRUE(matcher.accept(answer.text) && matcher.can_end()) << answer.text << schemas[i];
  }
  EXPECT_GE(ended, 45U) << "most schemas leave no room for long answers";
}

TEST_F(ConstrainedAnswers, AreRepeatable) {
  const std::string schema = R"({"type":"array","items":{"enum":["a","b"]},"maxItems":8})";
  const Answer first = ask(request_for(schema, 7)).get();
  const Answer second = ask(request_for(schema, 7)).get();
  EXPECT_EQ(first.tokens, second.tokens);
}

TEST_F(ConstrainedAnswers, StopWhereNothingMayFollow) {
  remote::GenerateRequest request = request_for("", 1);
  request.grammar = {.kind = GrammarSpec::Kind::gbnf, .text = "root ::= \"yes\""};
  request.ignore_end = true;
  request.max_tokens = 64;
  const Answer answer = ask(request).get();
  EXPECT_EQ(answer.text, "yes");
  EXPECT_EQ(answer.reason, "stop");
}

TEST_F(ConstrainedAnswers, ABiasForAControlTokenDoesNotPassTheGrammar) {
  remote::GenerateRequest request = request_for(R"({"enum":["a","b"]})", 1);
  request.logit_bias = {{0, 100.0F}, {1, 100.0F}, {3, 100.0F}};
  const Answer answer = ask(request).get();
  EXPECT_TRUE(answer.text == "\"a\"" || answer.text == "\"b\"") << answer.text;
}

TEST_F(ConstrainedAnswers, BadGrammarsAreRefused) {
  for (const char* text : {"rout::=", "", "root ::= root", "root ::= (\"a\""}) {
    remote::GenerateRequest request = request_for("", 1);
    request.grammar = {.kind = GrammarSpec::Kind::gbnf, .text = text};
    EXPECT_EQ(ask(request).get().status.code(), StatusCode::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace strata
