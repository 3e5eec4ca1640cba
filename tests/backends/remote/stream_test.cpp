// Streams between two ends on loopback: frames of all sizes in order, refusals in words, and a peer
// that dies or goes noticed at once. The peer that is killed is a child process.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "backends/remote/remote_stage.h"
#include "backends/remote/stream_gate.h"
#include "tests/backends/remote/inbox.h"

namespace strata::remote {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class Node final : public PipelineHandler {
 public:
  explicit Node(std::string token = "secret", uint64_t epoch = 4,
                const Address& listen = {"127.0.0.1", 0})
      : epoch_(epoch), receiver_(std::move(token), *this) {
    ServerOptions options;
    options.listen = listen;
    options.streams = receiver_.acceptor();
    server_ = RpcServer::start(options).value();
  }
  ~Node() override { stop(); }
  void stop() { server_->shutdown(milliseconds(0)); }
  void expect_cluster(const std::string& id) { receiver_.expect_cluster(id); }

  Status on_stream_open(const StreamCaller& caller) override {
    return gate_ ? gate_->admit(caller) : ok_status();
  }
  Status on_large_frame(const StreamCaller&, uint64_t step) override {
    return step < 1000 ? ok_status() : failed_precondition("such a step is not due");
  }
  Status on_step(const std::string& from, StepFrame frame) override {
    TRY(check_epoch(frame.plan.epoch, epoch_));
    last_from_ = from;
    steps.put(std::move(frame));
    return ok_status();
  }
  Status on_result(const std::string&, StepResult result) override {
    results.put(std::move(result));
    return ok_status();
  }
  void on_stream_closed(const StreamCaller& caller, const Status& why) override {
    closed.put({caller.name, why});
  }

  RemoteOptions options(const std::string& token = "secret") const {
    RemoteOptions out;
    out.address = server_->address();
    out.peer = "node-b";
    out.caller = "node-a";
    out.token = token;
    out.epoch = epoch_;
    return out;
  }
  // Before the first stream.
  void guard(StreamGate::Expected expected) { gate_.emplace().expect(std::move(expected)); }
  const std::string& last_from() const { return last_from_; }

  Inbox<StepFrame> steps;
  Inbox<StepResult> results;
  Inbox<std::pair<std::string, Status>> closed;

 private:
  const uint64_t epoch_;
  std::optional<StreamGate> gate_;
  std::string last_from_;
  PipelineReceiver receiver_;
  std::unique_ptr<RpcServer> server_;
};

StepFrame make_step(uint64_t step_id, uint32_t n_tokens, uint32_t n_embd, uint64_t epoch = 4) {
  StepFrame frame;
  frame.plan.epoch = epoch;
  frame.plan.step_id = step_id;
  frame.plan.rows = {{0, 0, n_tokens, StepRow::sample}};
  frame.plan.tokens.assign(n_tokens, 1);
  frame.activations.resize(uint64_t{n_tokens} * n_embd);
  for (size_t i = 0; i < frame.activations.size(); ++i) {
    frame.activations[i] = static_cast<float>(i % 1021) + static_cast<float>(step_id);
  }
  return frame;
}

TEST(Stream, CarriesFramesOfAllSizesInOrder) {
  Node node;
  auto stage = RemoteStage::connect(node.options(), {});
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  // 2.3 kB, 5.9 kB, 64 KiB and a bit, 5.2 MB in pieces, and small ones after it.
  const std::vector<uint32_t> tokens = {1, 4, 29, 2, 2304, 1, 3, 512, 1};
  for (size_t i = 0; i < tokens.size(); ++i) {
    stage.value()->submit(make_step(i + 1, tokens[i], 576));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto got = node.steps.take();
    ASSERT_TRUE(got.has_value()) << i;
    const StepFrame sent = make_step(i + 1, tokens[i], 576);
    EXPECT_EQ(got->plan.step_id, i + 1);
    EXPECT_EQ(got->activations, sent.activations) << i;
  }
  EXPECT_EQ(node.last_from(), "node-a");
  stage.value().reset();
  const auto closed = node.closed.take();
  ASSERT_TRUE(closed.has_value());
  EXPECT_TRUE(closed->second.ok()) << closed->second.to_string();
}

TEST(Stream, PingPongBetweenTwoNodes) {
  Node head;
  Node tail;
  auto to_tail = RemoteStage::connect(tail.options(), {});
  auto to_head = RemoteResults::connect(head.options(), {});
  ASSERT_TRUE(to_tail.ok() && to_head.ok());
  for (const uint32_t n_tokens : {1u, 64u, 2300u}) {
    for (uint64_t step = 1; step <= 20; ++step) {
      to_tail.value()->submit(make_step(step, n_tokens, 576));
      const auto got = tail.steps.take();
      ASSERT_TRUE(got.has_value());
      StepResult result;
      result.epoch = 4;
      result.step_id = got->plan.step_id;
      result.records.resize(1);
      result.records[0].token = static_cast<int32_t>(step);
      to_head.value()->deliver(std::move(result));
      const auto answer = head.results.take();
      ASSERT_TRUE(answer.has_value());
      EXPECT_EQ(answer->records[0].token, static_cast<int32_t>(step));
    }
  }
}

TEST(Stream, CarriesManyLogits) {
  Node node;
  auto results = RemoteResults::connect(node.options(), {});
  ASSERT_TRUE(results.ok());
  StepResult result;
  result.epoch = 4;
  result.records.resize(2);
  result.records[0].logits.assign(49152 * 40, 0.25f);
  result.records[1].logits.assign(49152, -1.0f);
  results.value()->deliver(result);
  const auto got = node.results.take();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->records[0].logits, result.records[0].logits);
  EXPECT_EQ(got->records[1].logits, result.records[1].logits);
}

TEST(Stream, RefusesAWrongToken) {
  Node node;
  const auto stage = RemoteStage::connect(node.options("wrong"), {});
  ASSERT_FALSE(stage.ok());
  EXPECT_EQ(stage.status().code(), StatusCode::unauthenticated);
  EXPECT_THAT(stage.status().message(), HasSubstr("the token is not this cluster's"));
  EXPECT_FALSE(node.closed.take(milliseconds(50)).has_value());
}

TEST(Stream, RefusesAnotherClusterByItsId) {
  Node node;
  node.expect_cluster("c1");
  RemoteOptions options = node.options();
  options.cluster_id = "c2";
  const auto stranger = RemoteStage::connect(options, {});
  EXPECT_EQ(stranger.status().code(), StatusCode::failed_precondition);
  EXPECT_THAT(stranger.status().message(),
              HasSubstr("node-a belongs to cluster c2, and this node to cluster c1"));
  EXPECT_FALSE(RemoteStage::connect(node.options(), {}).ok()) << "says no cluster";
  options.cluster_id = "c1";
  EXPECT_TRUE(RemoteStage::connect(options, {}).ok());
}

TEST(Stream, StopEndsTheWaitForAConnection) {
  // Listens, takes no connection, and its backlog is full.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(fd, 0), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size), 0);
  std::stop_source stop;
  RemoteOptions options;
  options.address = {"127.0.0.1", ntohs(at.sin_port)};
  options.peer = "node-b";
  options.caller = "node-a";
  options.token = "secret";
  options.connect_timeout = milliseconds(20'000);
  options.stop = stop.get_token();
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(100));
    stop.request_stop();
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto stage = RemoteStage::connect(options, {});
  stopper.join();
  ::close(fd);
  EXPECT_EQ(stage.status().code(), StatusCode::cancelled) << stage.status().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
}

TEST(Stream, FencesAnOldEpoch) {
  Node node;
  Inbox<Status> lost;
  auto stage = RemoteStage::connect(node.options(), [&](const Status& s) { lost.put(s); });
  ASSERT_TRUE(stage.ok());
  stage.value()->submit(make_step(1, 1, 8, 3));
  const auto why = lost.take();
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->code(), StatusCode::failed_precondition);
  EXPECT_THAT(why->message(), HasSubstr("fenced: epoch 3 < 4"));
  EXPECT_THAT(why->message(), HasSubstr("node-b"));
  EXPECT_FALSE(node.steps.take(milliseconds(50)).has_value());
}

// The token is not enough: the epoch's key, the right node, and one stream of each.
TEST(Stream, OnlyThePlansOwnStreamsGetIn) {
  Node node;
  const std::string key(32, 'a');
  node.guard({.epoch = 4, .key = key, .steps_from = {"node-a"}, .results_from = {"tail"}});
  RemoteOptions options = node.options();
  EXPECT_THAT(RemoteStage::connect(options, {}).status().message(),
              HasSubstr("node-a does not show the key of epoch 4"));
  options.stream_key = std::string(32, 'b');
  EXPECT_EQ(RemoteStage::connect(options, {}).status().code(), StatusCode::permission_denied);
  options.stream_key = key;
  options.epoch = 3;
  EXPECT_THAT(RemoteStage::connect(options, {}).status().message(),
              HasSubstr("fenced: epoch 3 < 4"));
  options.epoch = 4;
  EXPECT_THAT(RemoteResults::connect(options, {}).status().message(),
              HasSubstr("node-a has no results for this node"));
  auto first = RemoteStage::connect(options, {});
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(RemoteStage::connect(options, {}).status().code(), StatusCode::already_exists);
  first.value()->submit(make_step(1, 1, 8));
  EXPECT_TRUE(node.steps.take().has_value()) << "the first one goes on";
  EXPECT_FALSE(node.closed.take(milliseconds(50)).has_value()) << "who is refused was never there";
  options.caller = "tail";
  EXPECT_TRUE(RemoteResults::connect(options, {}).ok());
}

TEST(Stream, NamesAPeerThatCannotBeReached) {
  RemoteOptions options;
  {
    Node node;
    options = node.options();
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto stage = RemoteStage::connect(options, {});
  ASSERT_FALSE(stage.ok());
  EXPECT_EQ(stage.status().code(), StatusCode::unavailable);
  EXPECT_THAT(stage.status().message(), HasSubstr("cannot reach node-b at 127.0.0.1:"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(4000));
}

TEST(Stream, TellsOnceWhenTheServerEnds) {
  auto node = std::make_unique<Node>();
  Inbox<Status> lost;
  auto stage = RemoteStage::connect(node->options(), [&](const Status& s) { lost.put(s); });
  ASSERT_TRUE(stage.ok());
  node.reset();
  const auto why = lost.take(milliseconds(1000));
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->code(), StatusCode::unavailable);
  for (uint64_t i = 1; i < 5; ++i) stage.value()->submit(make_step(i, 1, 8));
  EXPECT_FALSE(lost.take(milliseconds(50)).has_value());
}

TEST(Stream, TellsTheReceiverWhenTheSenderIsGone) {
  Node node;
  for (int round = 0; round < 5; ++round) {
    auto stage = RemoteStage::connect(node.options(), {});
    ASSERT_TRUE(stage.ok());
    stage.value()->submit(make_step(1, 1, 8));
    ASSERT_TRUE(node.steps.take().has_value());
  }
  for (int round = 0; round < 5; ++round) ASSERT_TRUE(node.closed.take().has_value());
}

// A node in another process, to be killed or frozen: this test binary again, running the disabled
// test below, which writes its port.
class OtherProcess {
 public:
  OtherProcess() {
    int port_pipe[2];
    EXPECT_EQ(::pipe(port_pipe), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(port_pipe[1], 1);
      ::execl("/proc/self/exe", "stream_test", "--gtest_also_run_disabled_tests",
              "--gtest_filter=StreamDeath.DISABLED_Child", nullptr);
      ::_exit(1);
    }
    ::close(port_pipe[1]);
    std::string text;
    char c = 0;
    while (text.find(';') == std::string::npos && ::read(port_pipe[0], &c, 1) == 1) text += c;
    ::close(port_pipe[0]);
    const size_t at = text.find("port=");
    EXPECT_NE(at, std::string::npos) << text;
    options_.address = {"127.0.0.1", static_cast<uint16_t>(std::stoi(text.substr(at + 5)))};
    options_.peer = "node-b";
    options_.caller = "node-a";
    options_.token = "secret";
    options_.epoch = 4;
  }
  ~OtherProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void signal(int number) const { ASSERT_EQ(::kill(pid_, number), 0); }
  const RemoteOptions& options() const { return options_; }

 private:
  pid_t pid_ = -1;
  RemoteOptions options_;
};

TEST(StreamDeath, AKilledPeerIsNoticedWithinASecond) {
  OtherProcess other;
  Inbox<Status> lost;
  auto stage = RemoteStage::connect(other.options(), [&](const Status& s) { lost.put(s); });
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  // In the middle of a long frame.
  stage.value()->submit(make_step(1, 2304, 576));
  const auto begin = std::chrono::steady_clock::now();
  other.signal(SIGKILL);
  const auto why = lost.take();
  const auto took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(why.has_value());
  EXPECT_THAT(why->message(), HasSubstr("lost node-b at 127.0.0.1:"));
  EXPECT_LT(took, milliseconds(1000));
}

TEST(StreamDeath, AFrozenPeerIsForgivenASecondAndGivenUpWithinFive) {
  OtherProcess other;
  Inbox<Status> lost;
  auto stage = RemoteStage::connect(other.options(), [&](const Status& s) { lost.put(s); });
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  other.signal(SIGSTOP);
  EXPECT_FALSE(lost.take(milliseconds(1000)).has_value());
  other.signal(SIGCONT);
  EXPECT_FALSE(lost.take(milliseconds(1500)).has_value());
  other.signal(SIGSTOP);
  const auto why = lost.take(milliseconds(5000));
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->code(), StatusCode::unavailable);
  EXPECT_THAT(why->message(), HasSubstr("lost node-b at 127.0.0.1:"));
}

TEST(StreamDeath, APortIsFreeAtOnceAfterAKill) {
  for (int round = 0; round < 3; ++round) {
    Address address;
    std::unique_ptr<RemoteStage> stage;
    {
      OtherProcess other;
      address = other.options().address;
      stage = RemoteStage::connect(other.options(), {}).value();
    }
    Node node("secret", 4, address);
    EXPECT_EQ(node.options().address, address);
  }
}

TEST(StreamDeath, DISABLED_Child) {
  Node node;
  const std::string text = "port=" + std::to_string(node.options().address.port) + ";";
  ASSERT_EQ(::write(1, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

// One call as anybody could make it.
grpc::Status raw_call(const Address& address, const std::string& method, const std::string& bytes,
                      grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
  grpc::GenericStub stub(grpc::CreateChannel(address.text(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  add_credentials(context, "secret", "stranger");
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  context.set_compression_algorithm(compression);
  grpc::Slice slice(bytes);
  grpc::CompletionQueue events;
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &events);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  events.Next(&tag, &ok);
  return status;
}

// The node still serves others.
void expect_alive(Node& node) {
  auto stage = RemoteStage::connect(node.options(), {});
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  stage.value()->submit(make_step(1, 1, 8));
  EXPECT_TRUE(node.steps.take().has_value());
}

TEST(HostilePeer, GetsACodeAndOthersAreServed) {
  Node node;
  const Address address = node.options().address;
  const std::string steps = "/strata.v1.Stage/Steps";
  EXPECT_EQ(raw_call(address, steps, "no frame").error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(raw_call(address, steps, std::string(5 << 20, 'x')).error_code(),
            grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(raw_call(address, steps, std::string(1 << 20, '\0'), GRPC_COMPRESS_GZIP).error_code(),
            grpc::UNIMPLEMENTED);
  EXPECT_EQ(raw_call(address, "/strata.v1.Stage/Other", "x").error_code(), grpc::UNIMPLEMENTED);
  EXPECT_EQ(raw_call(address, "/strata.v1.Cluster/Status", "x").error_code(), grpc::UNIMPLEMENTED);
  expect_alive(node);
}

TEST(HostilePeer, BytesThatAreNoGrpcCloseTheirConnectionOnly) {
  Node node;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(1000, '\xff'),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string(9, '\xff')}) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(node.options().address.port);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    const timeval limit{15, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ASSERT_GT(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    char buffer[4096];
    ssize_t got = 0;
    while ((got = ::read(fd, buffer, sizeof(buffer))) > 0) {
    }
    // The server has closed it; a wait that runs into its limit gives EAGAIN.
    EXPECT_TRUE(got == 0 || errno == ECONNRESET) << errno;
    ::close(fd);
  }
  expect_alive(node);
}

TEST(HostilePeer, ManySilentSocketsHarmNobody) {
  Node node;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(node.options().address.port);
  std::vector<int> sockets;
  for (int i = 0; i < 500; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) break;
    sockets.push_back(fd);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0) << i;
    // Every other one begins a handshake and goes no further.
    if (i % 2 == 0) {
      ASSERT_GT(::send(fd, "PRI * HTTP/2.0", 14, MSG_NOSIGNAL), 0);
    }
  }
  EXPECT_GT(sockets.size(), 100U);
  expect_alive(node);
  for (const int fd : sockets) ::close(fd);
  expect_alive(node);
}

TEST(HostilePeer, StreamsThatAreResetAtOnceHarmNobody) {
  Node node;
  const Address address = node.options().address;
  grpc::GenericStub stub(grpc::CreateChannel(address.text(), grpc::InsecureChannelCredentials()));
  for (int i = 0; i < 2000; ++i) {
    grpc::ClientContext context;
    if (i % 2 == 0) add_credentials(context, "secret", "stranger");
    grpc::CompletionQueue events;
    const auto call = stub.PrepareCall(&context, "/strata.v1.Stage/Steps", &events);
    call->StartCall(nullptr);
    context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    for (int event = 0; event < 2; ++event) events.Next(&tag, &ok);
  }
  expect_alive(node);
}

}  // namespace
}  // namespace strata::remote
