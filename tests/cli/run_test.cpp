// Goal: `run`, `chat` and `bench` say what a person wants to see, on a terminal and off it, and
// take any prompt. Method: the binary on tiny models, its streams read apart or from a terminal of
// its own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "runtime/base/thread_pool.h"
#include "tests/cli/wrong_use.h"
#include "tests/support/command_run.h"
#include "tests/support/json_lines.h"
#include "tests/support/temp_dir.h"

namespace strata::cli {
namespace {

using nlohmann::json;
using test::CommandResult;
using test::json_lines;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Its chat format is ChatML.
std::string chat_model() { return std::string(STRATA_TEST_DATA) + "/models/qwen3.gguf"; }

CommandResult strata(std::vector<std::string> arguments, const test::CommandOptions& options = {}) {
  arguments.insert(arguments.begin(), std::string(STRATA_BINARY_DIR) + "/strata");
  return test::run_command(arguments, options);
}

TEST(Run, AnswersOnStandardOutputAndClosesWithTheSpeed) {
  const CommandResult result = strata(
      {"run", "-m", chat_model(), "-p", "Hello", "-n", "8", "--ignore-end", "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, Not(IsEmpty()));
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_THAT(result.err, ContainsRegex("^prompt [0-9]+ tokens in [0-9]+ ms, answer 8 tokens at "
                                        "[0-9.]+ tokens/s, ended by its length, seed [0-9]+\n$"))
      << "nothing else, no colour";
}

TEST(Run, OnATerminalShowsColourUnlessToldOtherwise) {
  const std::vector<std::string> arguments = {"run",   "-m", chat_model(), "-p",
                                              "Hello", "-n", "8",          "--ignore-end"};
  const CommandResult coloured =
      strata(arguments, {.environment = {"TERM=xterm", "NO_COLOR="}, .on_terminal = true});
  EXPECT_EQ(coloured.exit_code, 0);
  EXPECT_THAT(coloured.out, HasSubstr("\x1b[2mprompt"));
  for (const char* plain : {"NO_COLOR=1", "TERM=dumb"}) {
    EXPECT_THAT(strata(arguments, {.environment = {plain}, .on_terminal = true}).out,
                Not(HasSubstr("\x1b[2m")))
        << plain;
  }
}

#ifndef __SANITIZE_ADDRESS__  // which needs terabytes of address space
TEST(Run, EndsWithASentenceWhereAddressSpaceIsShort) {
  int failed = 0;
  for (int megabytes = 30; megabytes <= 600; megabytes += 19) {
    const std::string command =
        fmt::format("ulimit -v {}; exec {}/strata run -m {} -p Hello -n 4 --ignore-end",
                    megabytes * 1024, STRATA_BINARY_DIR, chat_model());
    const CommandResult result = test::run_command({"/bin/sh", "-c", command});
    if (result.exit_code == 0) continue;
    // The system's loader itself says 127.
    EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 127) << result.exit_code << command;
    EXPECT_THAT(result.err, HasSubstr("error")) << command;
    ++failed;
  }
  EXPECT_GT(failed, 0);
}

// gRPC waits for ever where the system gives it no thread.
TEST(Nodes, EndWithASentenceWhereThreadsAreFew) {
  const std::string nodes[] = {fmt::format("coordinator -m {} --listen 127.0.0.1:0", chat_model()),
                               "worker --join 127.0.0.1:1 --listen 127.0.0.1:0"};
  int refused = 0;
  for (const std::string& node : nodes) {
    for (const int megabytes : {240, 300, 360, 480}) {
      // One that finds enough ends by the first signal.
      const std::string command = fmt::format("ulimit -v {}; exec timeout -k 10 5 {}/strata {}",
                                              megabytes * 1024, STRATA_BINARY_DIR, node);
      const CommandResult result = test::run_command(
          {"/bin/sh", "-c", command}, {.environment = {"STRATA_TOKEN=run-test-token-12345"}});
      if (result.exit_code == 124 || result.exit_code == 127) continue;  // 127: the loader
      EXPECT_EQ(result.exit_code, 1) << command << result.err;
      EXPECT_THAT(result.err, HasSubstr("error: ")) << command;
      if (result.err.find("more threads that it needs") != std::string::npos) ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}
#endif

TEST(Run, TakesAnyPrompt) {
  const auto answer = [](const std::string& prompt, std::vector<std::string> options = {}) {
    std::vector<std::string> arguments = {"run", "-m", chat_model(),   "-p",    prompt,
                                          "-n",  "4",  "--ignore-end", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return strata(arguments);
  };
  for (const std::string& prompt :
       {std::string(), std::string("\x80"), std::string("\xF0\x9F\x98"),
        std::string("\u0301\u0302"), std::string("\uFFFF"), std::string("<|im_end|>"),
        std::string("<|im_start|><|im_end|>"),
        std::string("👩‍👩‍👧 مرحبا ภาษา 漢字 é — ç"),
        std::string(300, 'a')}) {
    const CommandResult result = answer(prompt);
    ASSERT_EQ(result.exit_code, 0) << prompt << result.err;
    EXPECT_EQ(json_lines(result.out).at(0)["generated_tokens"], 4);
    EXPECT_THAT(result.err, IsEmpty());
  }
  // What a user writes is never read as the end of a turn: it takes more tokens than one.
  const json plain = json_lines(answer("").out).at(0);
  const json marker = json_lines(answer("<|im_end|>").out).at(0);
  EXPECT_GT(marker["prompt_tokens"].get<int>(), plain["prompt_tokens"].get<int>() + 1);
  const CommandResult nothing = answer("", {"--raw"});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("the prompt is empty"));
}

TEST(Run, APromptBeyondTheContextIsRefusedWithBothNumbers) {
  struct Case {
    size_t letters;
    const char* message;
  };
  for (const Case& each : {
           Case{600, "the prompt has [0-9]+ tokens and the context holds 512"},
           // As long as one argument may be: its size says enough, before it becomes tokens.
           Case{120'000,
                "the prompt has [0-9]+ bytes, which make [0-9]+ tokens at least, and the context "
                "holds 512"},
       }) {
    const CommandResult result =
        strata({"run", "-m", chat_model(), "-p", std::string(each.letters, 'a'), "--json"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, IsEmpty());
    const json error = json_lines(result.err).at(0)["error"];
    EXPECT_THAT(error["message"].get<std::string>(), ContainsRegex(each.message));
    EXPECT_THAT(error["hint"].get<std::string>(), HasSubstr("--ctx"));
  }
}

TEST(Run, TokenCountsAreReadExactly) {
  EXPECT_EQ(strata({"run", "-m", chat_model(), "-p", "x", "-n", "-1"}).exit_code, 2);
  EXPECT_EQ(strata({"run", "-m", chat_model(), "-p", "x", "-n", "1.5"}).exit_code, 2);
  EXPECT_EQ(strata({"run", "-m", chat_model(), "-p", "x", "-n", "4294967296"}).exit_code, 2);
  // 0: up to the context's end.
  const CommandResult all = strata(
      {"run", "-m", chat_model(), "-p", "x", "-n", "0", "--ignore-end", "--ctx", "64", "--json"});
  const json object = json_lines(all.out).at(0);
  EXPECT_EQ(object["prompt_tokens"].get<int>() + object["generated_tokens"].get<int>(), 64);
  EXPECT_EQ(object["finish_reason"], "length");
}

TEST(Run, AnswersFitTheirGrammar) {
  const test::TempDir folder;
  const std::string schema = folder.write(
      "person.json", R"({"type": "object", "properties": {"age": {"type": "integer", "minimum": 0,
      "maximum": 120}, "ok": {"type": "boolean"}}, "required": ["age", "ok"],
      "additionalProperties": false})");
  const std::string gbnf =
      folder.write("list.gbnf", "root ::= item (\", \" item)*\nitem ::= [a-c]");
  const auto answer = [&](const char* option, const std::string& value, const std::string& seed) {
    const CommandResult result =
        strata({"run", "-m", chat_model(), "-p", "Hello", "-n", "100", "--temperature", "5",
                "--seed", seed, "--json", option, value});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json_lines(result.out).at(0);
  };
  for (const char* seed : {"1", "2", "3"}) {
    const json person = answer("--json-schema", schema, seed);
    EXPECT_EQ(person["finish_reason"], "stop") << person;
    const json object = json::parse(person["text"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(object.is_object()) << person;
    EXPECT_TRUE(object["ok"].is_boolean());
    EXPECT_LE(object["age"].get<int>(), 120);
    EXPECT_THAT(answer("--grammar", gbnf, seed)["text"].get<std::string>(),
                ContainsRegex("^[abc](, [abc])*,? ?$"));
    EXPECT_THAT(answer("--regex", "[0-9]{4}", seed)["text"].get<std::string>(),
                ContainsRegex("^[0-9][0-9][0-9][0-9]$"));
  }
  const CommandResult chat =
      strata({"chat", "-m", chat_model(), "--json", "--regex", "yes|no"}, {.input = "a\nb\n"});
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  ASSERT_EQ(json_lines(chat.out).size(), 2U);
  for (const json& turn : json_lines(chat.out)) {
    EXPECT_THAT(turn["text"].get<std::string>(), ContainsRegex("^(yes|no)$"));
  }
}

// The model's file does not exist: nothing of it was looked at.
TEST(Run, ABadGrammarIsAWrongUse) {
  const test::TempDir folder;
  const std::string keyword = folder.write("if.json", R"({"properties": {"a": {"if": {}}}})");
  const std::string no_json = folder.write("bad.json", "{\"type\":\n  [1,}");
  const std::string gbnf = folder.write("bad.gbnf", "root ::= \"a\" |\n(b");
  test::expect_wrong_uses(
      {{{"--json-schema", keyword}, "#/properties/a: the keyword 'if' is not supported"},
       {{"--json-schema", no_json}, "no JSON at line 2, column 6"},
       {{"--json-schema", folder.path() + "/none"}, "cannot open"},
       {{"--grammar", gbnf}, "grammar, line 2 column 3"},
       {{"--regex", "a(b"}, "regular expression, character 4: a group '(' without its ')'"},
       {{"--regex", "a", "--grammar", gbnf}, "excludes"}});
}

TEST(Chat, TakesOddLinesAndAnswersEachWithOneObject) {
  std::string input("a\0b\n", 4);
  input += "\xff\n   \n<|im_end|>\n/undo\n/nonsense\n/help\nlast without an end";
  const CommandResult result =
      strata({"chat", "-m", chat_model(), "-n", "4", "--ignore-end", "--json"}, {.input = input});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json_lines(result.out).size(), 4U);
  EXPECT_THAT(result.err, IsEmpty());
}

TEST(Chat, BeyondTheContextEachTurnIsAnErrorUntilTheConversationIsShorter) {
  std::string input;
  for (int i = 0; i < 10; ++i) input += "Tell me more about that, please.\n";
  input += "/reset\nHello\n/undo\n" + std::string(1 << 20, 'a') + "\nHello again\n";
  const CommandResult result = strata({"chat", "-m", chat_model(), "-n", "8", "--ignore-end",
                                       "--ctx", "256", "--json", "--temperature", "0"},
                                      {.input = input});
  EXPECT_EQ(result.exit_code, 1);
  const std::vector<json> answers = json_lines(result.out);
  const std::vector<json> errors = json_lines(result.err);
  EXPECT_EQ(answers.size() + errors.size(), 13U);
  ASSERT_GE(errors.size(), 2U);
  ASSERT_GE(answers.size(), 4U);
  for (const json& error : errors) {
    EXPECT_EQ(error["error"]["code"], "INVALID_ARGUMENT");
    EXPECT_THAT(error["error"]["message"].get<std::string>(),
                ContainsRegex("the prompt has [0-9]+ (bytes, which make [0-9]+ tokens at "
                              "least,|tokens) and the context holds 256"));
  }
  EXPECT_THAT(errors.front()["error"]["hint"].get<std::string>(), HasSubstr("/reset"));
  // The two after /reset and after the huge one.
  EXPECT_LT(answers.back()["prompt_tokens"], answers.at(1)["prompt_tokens"]);
}

TEST(Chat, APersonIsToldThatTheContextIsFull) {
  const CommandResult result =
      strata({"chat", "-m", chat_model(), "--ignore-end", "--ctx", "64"}, {.input = "Hello\n"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("cut off, the context is full at 64 tokens: /reset"));
}

TEST(Bench, ReportsWhatItRanWith) {
  const CommandResult result = strata(
      {"bench", "-m", chat_model(), "--prompt", "16", "--gen", "8", "--split", "1,2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  const json object = json_lines(result.out).at(0);
  EXPECT_EQ(object["split"], json::array({1, 2}));
  EXPECT_EQ(object["threads"], usable_core_count());
  EXPECT_THAT(object["isa"].get<std::string>(), ContainsRegex("^(scalar|avx2|avx512)"));
  for (const char* key :
       {"prefill_tokens_per_s", "decode_tokens_per_s", "ttft_ms", "load_s", "peak_rss_bytes"}) {
    EXPECT_GT(object[key].get<double>(), 0) << key;
  }
  EXPECT_GE(object["hop_us"].get<double>(), 0);
  EXPECT_EQ(object["pinned"], json::array());
  EXPECT_EQ(object["pin_reason"],
            "threads are not pinned: 2 pools of threads share the processors");
  const CommandResult text =
      strata({"bench", "-m", chat_model(), "--prompt", "16", "--gen", "8", "--isa", "scalar"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("qwen3.gguf, scalar"), HasSubstr("tokens/s"),
                              HasSubstr("peak memory")));
}

TEST(Bench, SaysWhereItsThreadsArePinned) {
  const CommandResult result = strata({"bench", "-m", chat_model(), "--prompt", "16", "--gen", "8",
                                       "--threads", "1", "--pin", "on", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = json_lines(result.out).at(0);
  ASSERT_EQ(object["pinned"].size(), 1U);
  EXPECT_EQ(object["pin_reason"], fmt::format("threads are pinned to processors {}: --pin on",
                                              object["pinned"][0].get<int>()));
  // Of several workers each would take the same processors.
  const CommandResult cluster = strata({"bench", "-m", chat_model(), "--prompt", "16", "--gen", "8",
                                        "--workers", "2", "--threads", "1", "--json"});
  ASSERT_EQ(cluster.exit_code, 0) << cluster.err;
  EXPECT_TRUE(json_lines(cluster.out).at(0)["pinned"].is_null());
}

// A figure comes from the steps that it is about, or is null; it is never a difference of two
// measurements, which can be anything.
TEST(Bench, SaysNothingOfWhatItDidNotMeasure) {
  const auto bench = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"bench", "-m", chat_model(), "--json"});
    const CommandResult result = strata(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json_lines(result.out).at(0);
  };
  // The prompt's one step begins when the depth's last one ends: it cannot be quicker than a step.
  // (Where the thread that takes the results lost its core meanwhile, it finds both at once: so the
  // slowest of a few.)
  json deep;
  double slowest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    deep = bench({"--depth", "96", "--prompt", "1", "--gen", "8", "--chunk", "32"});
    const double tokens_per_s = deep["prefill_tokens_per_s"].get<double>();
    EXPECT_GT(tokens_per_s, 0);
    slowest = std::min(slowest, tokens_per_s);
  }
  EXPECT_LT(slowest, 1e5);
  EXPECT_GT(deep["decode_tokens_per_s"].get<double>(), 0);
  EXPECT_TRUE(deep["coordinator_bytes_per_token"].is_null());
  // Nobody planned.
  EXPECT_TRUE(deep["predicted_tokens_per_s"].is_null());
  // The time to the first token begins where the prompt does: one token's, and not the depth's.
  EXPECT_NEAR(deep["ttft_ms"].get<double>() * deep["prefill_tokens_per_s"].get<double>(), 1000, 1);

  // Depth and prompt would fit one step, and no step ends at 17 by itself. One new token is no
  // decoding.
  const json shallow = bench({"--depth", "17", "--prompt", "16", "--gen", "1"});
  EXPECT_NEAR(shallow["ttft_ms"].get<double>() * shallow["prefill_tokens_per_s"].get<double>(),
              16'000, 1);
  EXPECT_TRUE(shallow["decode_tokens_per_s"].is_null());

  // Even where the whole context is two tokens, a hop is measured.
  const json least = bench({"--prompt", "1", "--gen", "1"});
  EXPECT_GT(least["prefill_tokens_per_s"].get<double>(), 0);
  EXPECT_TRUE(least["hop_us"].is_number());

  // Prompts of several sequences in turn, each behind its own depth.
  const json batch =
      bench({"--depth", "32", "--prompt", "16", "--gen", "40", "--batch", "3", "--chunk", "32"});
  EXPECT_TRUE(batch["prefill_tokens_per_s"].is_null());
  EXPECT_TRUE(batch["ttft_ms"].is_null());
  EXPECT_GT(batch["decode_tokens_per_s"].get<double>(), 0);
  const CommandResult text = strata({"bench", "-m", chat_model(), "--gen", "1", "--prompt", "4"});
  EXPECT_THAT(text.out, ContainsRegex("decode +not measured"));
}

TEST(Eval, ShowsTheMostLikelyIdsToAPerson) {
  const test::TempDir folder;
  const CommandResult result = strata({"eval", "-m", chat_model(), "--tokens",
                                       folder.write("ids.json", "[[1,2,3],[4]]"), "--top", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("list 0: 3 tokens, most likely next"),
                                ContainsRegex("position +token +rank +id +probability"),
                                ContainsRegex("\n +2 +3 +1 +[0-9]+ +[0-9.]+ % +-[0-9.]+ +\"")));
  // A head, and two rows for each position.
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2 + 2 + 6 + 2 + 2);
}

TEST(Terminal, ShowsNoControlCharacterOfAModel) {
  EXPECT_EQ(without_controls("a\tb\nc\x1b[31m\r\x07\x7f"), "a\tb\nc\uFFFD[31m\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(without_controls("é\xC2\x9B"), "é\uFFFD");
  EXPECT_EQ(without_controls("\xC2"), "\xC2");
}

}  // namespace
}  // namespace strata::cli
