// Goal: Ctrl-C at any moment ends every command, and leaves no process behind.
// Method: each command is started with a mark in its environment, gets SIGINT at a random moment
// (the seed is printed), and must end within seconds; then no process on the machine may carry the
// mark. STRATA_INTERRUPTS sets how many moments are tried.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "tests/cluster/cluster_harness.h"

namespace strata::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

int moments() {
  const char* text = std::getenv("STRATA_INTERRUPTS");
  return text == nullptr ? 30 : std::atoi(text);
}

// Processes whose environment holds `mark`, but for this one.
std::vector<std::string> processes_with(const std::string& mark) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    std::stringstream environment;
    environment << file.rdbuf();
    if (environment.str().find(mark) != std::string::npos) found.push_back(pid);
  }
  return found;
}

struct Case {
  std::string name;
  std::vector<std::string> arguments;
  int longest_ms;            // the last moment that is tried
  std::string program = {};  // empty: the binary under test
  bool whole_group = false;  // as a terminal's Ctrl-C, which all of a group's processes get
};

// Until a shell has started both sides of its pipe: a signal to the group reaches only those that
// are in it by then, and the shell's own end would leave the others to themselves.
void wait_for_pipeline(const std::string& mark) {
  constexpr size_t kShellAndBothSides = 3;
  const TimePoint deadline = SystemClock().now() + seconds(10);
  while (processes_with(mark).size() < kShellAndBothSides && SystemClock().now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

class Interrupt : public ::testing::Test {
 protected:
  // Starts it, interrupts it at a random moment, and sees it end and nothing stay.
  void interrupt(const Case& each, int signal_number) {
    std::uniform_int_distribution<int> moment(0, each.longest_ms);
    for (int i = 0; i < moments(); ++i) {
      const int wait_ms = moment(source_);
      const std::string mark = fmt::format("STRATA_TEST_MARK={}-{}-{}", each.name, ::getpid(), i);
      SCOPED_TRACE(fmt::format("{} after {} ms (seed {})", each.name, wait_ms, seed_));
      auto started = serve::ChildProcess::start(
          each.program.empty() ? strata_binary() : each.program, each.arguments,
          {mark, "STRATA_TOKEN=interrupt-test-token-0123"});
      ASSERT_TRUE(started.ok()) << started.status().to_string();
      serve::ChildProcess& child = *started.value();
      if (each.whole_group) wait_for_pipeline(mark);
      std::this_thread::sleep_for(milliseconds(wait_ms));
      if (each.whole_group) {
        ::kill(-child.pid(), signal_number);
      } else {
        child.signal(signal_number);
      }
      const TimePoint deadline = SystemClock().now() + seconds(10);
      while (child.is_running() && SystemClock().now() < deadline) {
        std::this_thread::sleep_for(milliseconds(2));
      }
      ASSERT_FALSE(child.is_running()) << child.last_lines();
      // Children that the kernel ends with their parent may need a moment.
      while (!processes_with(mark).empty() && SystemClock().now() < deadline) {
        std::this_thread::sleep_for(milliseconds(2));
      }
      EXPECT_TRUE(processes_with(mark).empty()) << child.last_lines();
      // Ended by itself, by an error, or before it looked for signals: never by a crash.
      const std::string end = child.end_text();
      EXPECT_TRUE(end == "exit code 0" || end == "exit code 1" ||
                  end == fmt::format("exit code {}", 128 + signal_number) ||
                  end == fmt::format("signal {}", signal_number))
          << end << "\n"
          << child.last_lines();
    }
  }

  const TempDir folder_;
  const unsigned seed_ = std::random_device()();
  std::mt19937 source_{seed_};
};

// The plan may just be made anew, without the worker that left: asks until all tokens come.
bool answers_again(ClusterHarness& cluster) {
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    if (!cluster.wait_state("ready")) return false;
    if (cluster.run("Once", 8).tokens.size() == 8) return true;
  }
  return false;
}

TEST_F(Interrupt, RunInOneProcess) {
  interrupt({"run",
             {"run", "-m", model_path("llama.gguf"), "-p", "Once", "--raw", "--ignore-end", "-n",
              "100000", "--threads", "2"},
             150},
            SIGINT);
}

TEST_F(Interrupt, RunAgainstACoordinator) {
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::string token = folder_.write("token", cluster.token());
  ASSERT_EQ(::chmod(token.c_str(), 0600), 0);
  interrupt({"client",
             {"run", "--coordinator", cluster.address(), "--token-file", token, "-p", "Once",
              "--raw", "--ignore-end", "-n", "100000"},
             150},
            SIGINT);
  EXPECT_TRUE(answers_again(cluster)) << cluster.logs();
  // Clients that were killed before they looked for signals are noticed by their connections.
  const TimePoint deadline = SystemClock().now() + seconds(5);
  while (cluster.status().live_sequences > 0 && SystemClock().now() < deadline) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(cluster.status().live_sequences, 0U);
}

// At the prompt and in the middle of an answer. The whole group is signalled, so that whoever holds
// the chat's standard input open ends too.
TEST_F(Interrupt, Chat) {
  const std::string chat = strata_binary() + " chat -m " + model_path("qwen3.gguf");
  for (const int number : {SIGINT, SIGTERM}) {
    interrupt({"chat", {"-c", "sleep 100 | " + chat}, 150, "/bin/sh", true}, number);
    interrupt({"chat-answer",
               {"-c", "(echo Hello; exec sleep 100) | " + chat + " --ignore-end --ctx 100000"},
               150,
               "/bin/sh",
               true},
              number);
  }
}

TEST_F(Interrupt, EvalOverWorkers) {
  std::string ids = "[[1";
  for (int i = 0; i < 20'000; ++i) ids += ",7";
  const std::string tokens = folder_.write("ids.json", ids + "]]");
  interrupt({"eval",
             {"eval", "-m", model_path("llama.gguf"), "--tokens", tokens, "--workers", "2",
              "--bits", "--threads", "1"},
             800},
            SIGINT);
}

TEST_F(Interrupt, BenchOverWorkers) {
  interrupt({"bench",
             {"bench", "-m", model_path("llama.gguf"), "--workers", "2", "--threads", "1", "--gen",
              "50000"},
             1500},
            SIGINT);
}

TEST_F(Interrupt, CoordinatorAndWorkers) {
  interrupt({"coordinator",
             {"coordinator", "-m", model_path("llama.gguf"), "--listen", "127.0.0.1:0"},
             200},
            SIGINT);
  ClusterHarness cluster({.workers = 1});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::string token = folder_.write("token", cluster.token());
  ASSERT_EQ(::chmod(token.c_str(), 0600), 0);
  interrupt({"worker",
             {"worker", "--join", cluster.address(), "--token-file", token, "--name", "passing",
              "--models", folder_.path(), "--cache", folder_.path()},
             2000},
            SIGINT);
  EXPECT_TRUE(answers_again(cluster)) << cluster.logs();
}

// The script that a newcomer runs first, alone and as a terminal interrupts it.
TEST_F(Interrupt, Quickstart) {
  const char* models = std::getenv("STRATA_MODELS_DIR");
  if (models == nullptr) GTEST_SKIP() << "STRATA_MODELS_DIR is not set";
  if (!std::string(STRATA_BINARY_DIR).ends_with("/build/release/bin")) {
    GTEST_SKIP() << "the script runs the release build";
  }
  const std::string script = std::string(STRATA_TEST_DATA) + "/../../deploy/quickstart.sh";
  for (const bool whole_group : {false, true}) {
    interrupt({whole_group ? "quickstart-group" : "quickstart",
               {"Why?", "-n", "200"},
               4000,
               script,
               whole_group},
              SIGINT);
  }
}

}  // namespace
}  // namespace strata::test
