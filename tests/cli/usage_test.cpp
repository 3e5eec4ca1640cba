// Goal: whoever uses `strata` wrongly is told what is wrong in one sentence, programs get it as one
// JSON object, and --help explains everything within 100 columns.
// Method: the binary with each command and each kind of error; its streams are read apart.
#include "cli/usage.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/text_table.h"
#include "tests/support/command_run.h"
#include "tests/support/temp_dir.h"

namespace strata::cli {
namespace {

using nlohmann::json;
using test::CommandResult;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<std::string>& commands() {
  static const std::vector<std::string> names = {"run",     "chat",     "coordinator", "worker",
                                                 "ps",      "plan",     "bench",       "eval",
                                                 "inspect", "tokenize", "template",    "replan"};
  return names;
}

std::string model() { return std::string(STRATA_TEST_DATA) + "/models/llama.gguf"; }

CommandResult strata(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(STRATA_BINARY_DIR) + "/strata");
  // A token of its own, so that no test writes one into somebody's home.
  return test::run_command(arguments, {.environment = {"STRATA_TOKEN=usage-test-token-12345"}});
}

// The one object on standard error.
json error_of(const CommandResult& result, int exit_code) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  json object = json::parse(result.err, nullptr, false);
  if (!object.is_object() || !object.contains("error") || !object["error"].is_object()) {
    ADD_FAILURE() << "not one JSON object: " << result.err;
    return json::object({{"message", ""}});
  }
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_FALSE(object["error"]["code"].get<std::string>().empty());
  EXPECT_FALSE(object["error"]["message"].get<std::string>().empty());
  return object["error"];
}

// What each command needs so that it gets beyond the parser.
std::vector<std::string> valid(const std::string& command, const std::string& model_file) {
  if (command == "run") return {"run", "-m", model_file, "-p", "x"};
  if (command == "worker") return {"worker", "--join", "127.0.0.1:1"};
  if (command == "ps" || command == "replan") return {command, "--coordinator", "127.0.0.1:1"};
  if (command == "inspect") return {"inspect", model_file};
  if (command == "template") return {"template", "-m", model_file, "--messages", "-"};
  if (command == "eval") return {"eval", "-m", model_file, "--tokens", "none.json"};
  return {command, "-m", model_file};
}

TEST(Usage, HelpOfEachCommandExplainsItselfWithinTheColumns) {
  for (const std::string& command : commands()) {
    const CommandResult help = strata({command, "--help"});
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.err, IsEmpty());
    EXPECT_THAT(help.out, HasSubstr("Usage:\n  strata " + command));
    EXPECT_THAT(help.out, HasSubstr("Example:\n  "));
    EXPECT_THAT(help.out, HasSubstr("--json"));
    std::istringstream lines(help.out);
    std::string line;
    std::string before;
    while (std::getline(lines, line)) {
      EXPECT_LE(shown_width(line), kHelpColumns) << command << ": " << line;
      // An option's name alone on its line is followed by its explanation.
      if (line.starts_with("  -") || line.starts_with("      --")) {
        const size_t name = line.find("--");
        const bool explained = line.find("  ", name) != std::string::npos;
        before = explained ? "" : line;
      } else if (!before.empty()) {
        EXPECT_TRUE(line.starts_with(std::string(30, ' '))) << command << ": " << before;
        before.clear();
      }
    }
    EXPECT_EQ(strata({"help", command}).out, help.out);
  }
  const CommandResult all = strata({"--help"});
  for (const std::string& command : commands()) EXPECT_THAT(all.out, HasSubstr("  " + command));
  EXPECT_EQ(strata({"help"}).out, all.out);
}

TEST(Usage, UnknownWordsAreNamedAndTheNearestIsSuggested) {
  const auto said = [](std::vector<std::string> arguments) {
    const CommandResult result = strata(std::move(arguments));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out, IsEmpty());
    return result.err;
  };
  EXPECT_EQ(said({"bogus"}),
            "error: 'bogus' is no command\nhint: strata --help lists the commands\n");
  EXPECT_EQ(said({"chta"}), "error: 'chta' is no command\nhint: did you mean chat?\n");
  EXPECT_THAT(said({"benhc", "-m", "x"}), HasSubstr("did you mean bench?"));
  EXPECT_THAT(said({"tokenise"}), HasSubstr("did you mean tokenize?"));
  EXPECT_THAT(said({"coord"}), HasSubstr("did you mean coordinator?"));
  EXPECT_THAT(said({}), HasSubstr("no command is given"));
  EXPECT_THAT(said({"--bogus", "run"}), HasSubstr("no option --bogus stands before a command"));
  EXPECT_THAT(said({"run", "-m", "x", "--promt", "y"}), HasSubstr("did you mean --prompt?"));
  EXPECT_THAT(said({"run", "-m", "x", "-p", "y", "--temprature=1"}),
              HasSubstr("did you mean --temperature?"));
  EXPECT_THAT(said({"run", "-m", "x", "-p", "why", "is"}), HasSubstr("'is' is one word too many"));
  EXPECT_THAT(said({"run", "-m", "x"}), HasSubstr("--prompt"));
  EXPECT_THAT(said({"bench", "-m", "x", "--batch", "0"}), HasSubstr("--batch"));
  EXPECT_THAT(said({"bench", "-m", "x", "--gen", "many"}), HasSubstr("--gen"));
  EXPECT_THAT(said({"run", "-m", "x", "-p", "y", "--log-level"}), HasSubstr("--log-level"));
  EXPECT_THAT(said({"--log-level", "loud", "ps"}), HasSubstr("'loud'"));
  EXPECT_THAT(said({std::string("b\x1b[31m\nx")}), HasSubstr("b\\x1b[31m\\nx"));
  EXPECT_THAT(said({std::string(100'000, 'x')}), Not(HasSubstr(std::string(200, 'x'))));
}

TEST(Usage, NearestAllowsAThirdOfTheCharactersToBeWrong) {
  const std::vector<std::string> names = {"run", "chat", "coordinator"};
  EXPECT_EQ(nearest("rum", names), "run");
  EXPECT_EQ(nearest("chatt", names), "chat");
  EXPECT_EQ(nearest("coordinatro", names), "coordinator");
  EXPECT_EQ(nearest("co", names), "coordinator");
  EXPECT_EQ(nearest("xyz", names), "");
  EXPECT_EQ(nearest("", names), "");
}

TEST(JsonErrors, AreOneObjectForEveryWrongUse) {
  EXPECT_THAT(error_of(strata({"--json", "bogus"}), 2)["message"], HasSubstr("'bogus'"));
  EXPECT_THAT(error_of(strata({"chta", "--json"}), 2)["hint"], HasSubstr("chat"));
  EXPECT_THAT(error_of(strata({"--json"}), 2)["message"], HasSubstr("no command"));
  for (const std::string& command : commands()) {
    SCOPED_TRACE(command);
    error_of(strata({command, "--json", "--no-such-option"}), 2);
    error_of(strata({command, "--json", "--token-file"}), 2);
    if (command != "ps" && command != "replan") error_of(strata({command, "--json"}), 2);
    std::vector<std::string> extra = valid(command, "x");
    extra.insert(extra.end(), {"--json", "one", "two"});
    error_of(strata(extra), 2);
  }
  EXPECT_THAT(error_of(strata({"chat", "--json", "-m", "a", "--coordinator", "b"}), 2)["message"],
              HasSubstr("both"));
  error_of(strata({"eval", "-m", model(), "--tokens", "x", "--kv-type", "q6", "--json"}), 2);
  error_of(strata({"bench", "-m", model(), "--isa", "neon", "--json"}), 2);
  EXPECT_EQ(error_of(strata({"chat", "-m", model(), "--pin", "yes", "--json"}), 2)["message"],
            "--pin: 'yes' is none of auto, on and off");
  error_of(strata({"worker", "--join", "127.0.0.1:1", "--pin", "1", "--json"}), 2);
  error_of(strata({"worker", "--join", "a:b:c", "--json"}), 2);
  error_of(strata({"plan", "-m", model(), "--node", "a", "--json"}), 2);
}

TEST(JsonErrors, AreOneObjectForEveryFailure) {
  const test::TempDir folder;
  const std::string torn = folder.write("torn.gguf", "GGUF\x03");
  for (const std::string& command : commands()) {
    SCOPED_TRACE(command);
    for (const std::string& file : {folder.path() + "/none.gguf", torn}) {
      if (command == "worker") continue;  // goes on trying to join
      std::vector<std::string> arguments = valid(command, file);
      arguments.push_back("--json");
      error_of(strata(arguments), 1);
    }
  }
  // With progress on the way to the error.
  const json beyond =
      error_of(strata({"coordinator", "-m", model(), "--listen", "127.0.0.1:0", "--address-file",
                       folder.path() + "/no/where", "--json", "--split", "1,1"}),
               1);
  EXPECT_THAT(beyond["message"], HasSubstr("the model has 3"));
  error_of(strata({"run", "-m", model(), "-p", "", "--raw", "--temperature", "-1", "--json"}), 1);
  error_of(strata({"bench", "-m", model(), "--workers", "2", "--split", "1,1,1", "--json"}), 1);
  error_of(strata({"run", "-m", model(), "-p", "x", "--ctx", "4000000000", "--json"}), 1);
  EXPECT_THAT(error_of(strata({"run", "-m", model(), "-p", "x", "--threads", "1000", "--pin", "on",
                               "--json"}),
                       1)["message"],
              HasSubstr("--pin on: 1000 threads, and "));
}

TEST(Exposure, ClientsDialNothingBeyondThisMachineWithoutAWord) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"run", "-p", "x"}, {"chat"}, {"ps"}, {"plan", "-m", model()}}) {
    for (const char* address : {"10.255.255.1:50051", "somewhere.example", "[fe80::1%lo]:50051"}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--coordinator", address, "--json"});
      const json error = error_of(strata(arguments), 1);
      EXPECT_EQ(error["code"], "PERMISSION_DENIED") << command.front();
      EXPECT_THAT(error["hint"], HasSubstr("--insecure-network"));
    }
  }
  // With the word it is dialled: nobody is there.
  const json error = error_of(
      strata({"ps", "--coordinator", "ip6-no-such-host.invalid:1", "--insecure-network", "--json"}),
      1);
  EXPECT_NE(error["code"], "PERMISSION_DENIED");
}

TEST(Addresses, AreReadAlikeByEveryOption) {
  struct Case {
    const char* text;
    const char* said;
  };
  const std::vector<std::vector<std::string>> options = {
      {"ps", "--coordinator"},
      {"run", "-p", "x", "--coordinator"},
      {"coordinator", "-m", model(), "--listen"},
      {"worker", "--join"},
      {"worker", "--join", "127.0.0.1:1", "--listen"}};
  for (const Case& each : {Case{"host:", "port after ':' is missing"}, Case{"host:99999", "65535"},
                           Case{" host:50051 ", "space"}, Case{"127.0.0.1:1,", "comma"},
                           Case{"a:b:c", "more than one ':'"}, Case{"[::1", "']' is missing"},
                           Case{"http://host:1", "URL"}, Case{"300.1.1.1", "IPv4"}}) {
    for (std::vector<std::string> arguments : options) {
      arguments.insert(arguments.end(), {each.text, "--json"});
      const std::string name = arguments[arguments.size() - 3];
      EXPECT_THAT(error_of(strata(arguments), 2)["message"].get<std::string>(),
                  testing::AllOf(HasSubstr(each.said), HasSubstr(name)));
    }
  }
  // To dial alone.
  for (const char* text : {"host:0", "0.0.0.0:50051", "[::]:50051"}) {
    error_of(strata({"ps", "--coordinator", text, "--json"}), 2);
    error_of(strata({"worker", "--join", text, "--json"}), 2);
  }
}

TEST(Splits, AreReadAlikeInOneProcessAndOverWorkers) {
  const test::TempDir folder;
  const std::string tokens = folder.write("tokens.json", "[[1,2,3]]");
  const auto run_each = [&](const char* split, int exit_code, const char* said) {
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {"eval", "-m", model(), "--tokens", tokens},
             {"bench", "-m", model()},
             {"run", "-m", model(), "-p", "x"},
             {"coordinator", "-m", model(), "--listen", "127.0.0.1:0"},
             {"plan", "-m", model(), "--node", "a:1GiB", "--node", "b:1GiB"}}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--split", split, "--json"});
      const json error = error_of(strata(arguments), exit_code);
      EXPECT_THAT(error["message"].get<std::string>(),
                  testing::AllOf(HasSubstr("--split"), HasSubstr(said)))
          << command.front() << " " << split;
    }
  };
  run_each("", 2, "no layers");
  run_each("0,0", 2, "only the last");
  run_each("0,3", 2, "only the last");
  run_each("1,-1", 2, "'-1' is not a number of layers");
  run_each("NaN", 2, "'NaN'");
  run_each("1e-30,1", 2, "'1e-30'");
  run_each("1,,2", 2, "''");
  run_each("1,1", 1, "2 layers in all, the model has 3");
  run_each("1,1,1,1", 1, "4 layers in all, the model has 3");
  run_each("4294967295,1", 1, "the model has 3");
  EXPECT_EQ(strata({"eval", "-m", model(), "--tokens", tokens, "--split", "2,1,0"}).exit_code, 0);
  const json named = error_of(strata({"bench", "-m", model(), "--split", "a:2,b:1", "--json"}), 1);
  EXPECT_THAT(named["message"], HasSubstr("no names"));
}

}  // namespace
}  // namespace strata::cli
