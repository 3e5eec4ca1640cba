// What a hop costs: round trips between two processes on loopback, for activations of one token to
// one prompt chunk, over raw TCP, over a bare gRPC stream, and over our own streams.
//
//   hop_bench [ROUNDS]             prints a table: p50 and p99 in µs of a round trip
//   hop_bench [ROUNDS] --cold      the same as a decode step meets it: before each message both
//                                  sides read as many bytes as a stage has weights, so that
//                                  nothing of the way lies in a core's cache, and the receiver has
//                                  slept for a while
//
// Ours: a step goes there by RemoteStage (plan, frame, crc, decoding), a result comes back by
// RemoteResults: two hops. TCP and gRPC send the same number of bytes there and 64 back. Every
// receiver sleeps in the kernel while it waits, as a worker does.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/remote/remote_stage.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"

namespace strata::remote {
namespace {

constexpr size_t kAnswerBytes = 64;
constexpr const char* kToken = "bench";

// Reads its bytes once, as a decode step reads a stage's weights.
class CacheEvictor {
 public:
  explicit CacheEvictor(size_t bytes) : words_(bytes / sizeof(uint64_t), 1) {}
  void run() {
    uint64_t sum = 0;
    for (const uint64_t word : words_) sum += word;
    STRATA_CHECK(sum == words_.size(), "the memory is broken");
  }

 private:
  std::vector<uint64_t> words_;
};

// With --cold; the sender's takes longer, so that the receiver sleeps when the message comes.
constexpr size_t kSenderReads = size_t{64} << 20;
constexpr size_t kReceiverReads = size_t{32} << 20;

struct Ports {
  uint16_t tcp = 0;
  uint16_t grpc = 0;
  uint16_t strata = 0;
};

// --- Raw TCP -------------------------------------------------------------------------------------

void read_all(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t got = ::read(fd, data, size);
    if (got <= 0) std::_Exit(0);
    data += got;
    size -= static_cast<size_t>(got);
  }
}

void write_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t put = ::write(fd, data, size);
    if (put <= 0) std::_Exit(0);
    data += put;
    size -= static_cast<size_t>(put);
  }
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int listen_tcp(uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  STRATA_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  STRATA_CHECK(::listen(fd, 1) == 0, "listen");
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
  return fd;
}

// Each request is its size, then so many bytes.
void serve_tcp(int listener, CacheEvictor& evictor) {
  const int fd = ::accept(listener, nullptr, nullptr);
  set_no_delay(fd);
  std::vector<char> buffer;
  const std::array<char, kAnswerBytes> answer = {};
  for (;;) {
    uint64_t size = 0;
    read_all(fd, reinterpret_cast<char*>(&size), sizeof(size));
    buffer.resize(size);
    read_all(fd, buffer.data(), size);
    write_all(fd, answer.data(), answer.size());
    evictor.run();
  }
}

class TcpPeer {
 public:
  explicit TcpPeer(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    STRATA_CHECK(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
                 "connect");
    set_no_delay(fd_);
  }
  ~TcpPeer() { ::close(fd_); }
  void round_trip(size_t size) {
    message_.resize(sizeof(uint64_t) + size);
    const uint64_t count = size;
    std::copy_n(reinterpret_cast<const char*>(&count), sizeof(count), message_.data());
    write_all(fd_, message_.data(), message_.size());
    std::array<char, kAnswerBytes> answer;
    read_all(fd_, answer.data(), answer.size());
  }

 private:
  int fd_;
  std::vector<char> message_;
};

// --- Bare gRPC: raw bytes on a completion queue, no frame, no checks -----------------------------

void wait_event(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  if (!queue.Next(&tag, &ok) || !ok) std::_Exit(0);
}

struct GrpcEcho {
  grpc::AsyncGenericService service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  std::unique_ptr<grpc::Server> server;
  uint16_t port = 0;

  void start() {
    grpc::ServerBuilder builder;
    int chosen = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &chosen);
    builder.RegisterAsyncGenericService(&service);
    queue = builder.AddCompletionQueue();
    server = builder.BuildAndStart();
    port = static_cast<uint16_t>(chosen);
  }
  void serve(CacheEvictor& evictor) {
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream(&context);
    service.RequestCall(&context, &stream, queue.get(), queue.get(), nullptr);
    wait_event(*queue);
    const std::array<char, kAnswerBytes> bytes = {};
    for (;;) {
      grpc::ByteBuffer message;
      stream.Read(&message, nullptr);
      wait_event(*queue);
      grpc::Slice slice(bytes.data(), bytes.size());
      stream.Write(grpc::ByteBuffer(&slice, 1), nullptr);
      wait_event(*queue);
      evictor.run();
    }
  }
};

class GrpcPeer {
 public:
  explicit GrpcPeer(uint16_t port)
      : channel_(grpc::CreateChannel(fmt::format("127.0.0.1:{}", port),
                                     grpc::InsecureChannelCredentials())),
        stub_(channel_) {
    call_ = stub_.PrepareCall(&context_, "/echo", &queue_);
    call_->StartCall(nullptr);
    wait_event(queue_);
  }
  ~GrpcPeer() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  void round_trip(size_t size) {
    payload_.resize(size);
    grpc::Slice slice(payload_.data(), payload_.size(), grpc::Slice::STATIC_SLICE);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    wait_event(queue_);
    grpc::ByteBuffer answer;
    call_->Read(&answer, nullptr);
    wait_event(queue_);
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  std::vector<char> payload_;
};

// --- Ours ----------------------------------------------------------------------------------------

// One value handed from the acceptor's thread to the one that waits, as to a stage thread.
template <typename T>
class Handover {
 public:
  void put(T value) {
    MutexLock lock(mutex_);
    value_ = std::move(value);
    changed_.notify_one();
  }
  T take() {
    MutexLock lock(mutex_);
    while (!value_) changed_.wait(mutex_);
    T value = std::move(*value_);
    value_.reset();
    return value;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<T> value_ STRATA_GUARDED_BY(mutex_);
};

class Node final : public PipelineHandler {
 public:
  Node() : receiver_(kToken, *this) {
    ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.streams = receiver_.acceptor();
    server_ = RpcServer::start(options).value();
  }
  uint16_t port() const { return server_->address().port; }
  Status on_stream_open(const StreamCaller&) override { return ok_status(); }
  Status on_large_frame(const StreamCaller&, uint64_t) override { return ok_status(); }
  Status on_step(const std::string&, StepFrame frame) override {
    steps.put(std::move(frame));
    return ok_status();
  }
  Status on_result(const std::string&, StepResult result) override {
    results.put(std::move(result));
    return ok_status();
  }
  void on_stream_closed(const StreamCaller&, const Status&) override {}

  Handover<StepFrame> steps;
  Handover<StepResult> results;

 private:
  PipelineReceiver receiver_;
  std::unique_ptr<RpcServer> server_;
};

RemoteOptions to_port(uint16_t port) {
  RemoteOptions options;
  options.address = {"127.0.0.1", port};
  options.peer = "peer";
  options.caller = "bench";
  options.token = kToken;
  options.epoch = 1;
  return options;
}

void serve_strata(Node& node, uint16_t parent_port, CacheEvictor& evictor) {
  auto back = RemoteResults::connect(to_port(parent_port), [](const Status&) { std::_Exit(0); });
  STRATA_CHECK(back.ok(), back.status().to_string());
  for (;;) {
    const StepFrame frame = node.steps.take();
    StepResult result;
    result.epoch = frame.plan.epoch;
    result.step_id = frame.plan.step_id;
    result.records.resize(1);
    back.value()->deliver(std::move(result));
    evictor.run();
  }
}

StepFrame make_step(uint64_t step, uint32_t n_tokens, uint32_t n_embd) {
  StepFrame frame;
  frame.plan.epoch = 1;
  frame.plan.step_id = step;
  frame.plan.rows = {{0, 100, n_tokens, StepRow::sample}};
  frame.plan.tokens.assign(n_tokens, 1);
  frame.activations.assign(uint64_t{n_tokens} * n_embd, 0.5f);
  return frame;
}

// --- The two processes ---------------------------------------------------------------------------

[[noreturn]] void run_child(int to_parent, int from_parent, bool cold) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  CacheEvictor evictor(cold ? kReceiverReads : 0);
  Ports ports;
  const int listener = listen_tcp(ports.tcp);
  GrpcEcho echo;
  echo.start();
  Node node;
  ports.grpc = echo.port;
  ports.strata = node.port();
  STRATA_CHECK(::write(to_parent, &ports, sizeof(ports)) == sizeof(ports), "write");
  std::thread tcp([&] { serve_tcp(listener, evictor); });
  std::thread grpc([&] { echo.serve(evictor); });
  uint16_t parent_port = 0;
  read_all(from_parent, reinterpret_cast<char*>(&parent_port), sizeof(parent_port));
  serve_strata(node, parent_port, evictor);
  std::_Exit(0);
}

struct Figures {
  double p50_us = 0;
  double p99_us = 0;
};

Figures measure(int rounds, CacheEvictor& evictor, const std::function<void()>& round_trip) {
  for (int i = 0; i < rounds / 10 + 5; ++i) round_trip();
  std::vector<double> us;
  for (int i = 0; i < rounds; ++i) {
    evictor.run();
    const auto begin = std::chrono::steady_clock::now();
    round_trip();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                     .count());
  }
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us[us.size() * 99 / 100]};
}

int run_parent(const Ports& ports, int to_child, int rounds, bool cold) {
  CacheEvictor evictor(cold ? kSenderReads : 0);
  Node node;
  const uint16_t port = node.port();
  write_all(to_child, reinterpret_cast<const char*>(&port), sizeof(port));
  TcpPeer tcp(ports.tcp);
  GrpcPeer grpc(ports.grpc);
  auto stage = RemoteStage::connect(to_port(ports.strata), {});
  STRATA_CHECK(stage.ok(), stage.status().to_string());
  fmt::print("round trip, µs: p50 (p99)\n{:>8} {:>6} {:>20} {:>20} {:>20} {:>10}\n", "bytes",
             "tokens", "TCP", "gRPC", "strata", "per hop");
  uint64_t step = 0;
  struct Size {
    uint32_t n_tokens, n_embd;
  };
  for (const Size size : {Size{1, 576}, Size{1, 2048}, Size{8, 2048}, Size{64, 576}, Size{512, 576},
                          Size{512, 2560}}) {
    const size_t bytes = size_t{size.n_tokens} * size.n_embd * sizeof(float);
    const int count = bytes > 200'000 ? std::max(20, rounds / 20) : rounds;
    const Figures by_tcp = measure(count, evictor, [&] { tcp.round_trip(bytes); });
    // gRPC takes no message over 4 MiB: there the largest are sent as one of that size.
    const size_t grpc_bytes = std::min<size_t>(bytes, 4'000'000);
    const Figures by_grpc = measure(count, evictor, [&] { grpc.round_trip(grpc_bytes); });
    const Figures by_strata = measure(count, evictor, [&] {
      stage.value()->submit(make_step(++step, size.n_tokens, size.n_embd));
      node.results.take();
    });
    const auto text = [](const Figures& f) {
      return fmt::format("{:.1f} ({:.0f})", f.p50_us, f.p99_us);
    };
    fmt::print("{:>8} {:>6} {:>20} {:>20} {:>20} {:>10.1f}\n", bytes, size.n_tokens, text(by_tcp),
               text(by_grpc), text(by_strata), by_strata.p50_us / 2);
  }
  return 0;
}

}  // namespace
}  // namespace strata::remote

int main(int argc, char** argv) {
  using namespace strata::remote;
  const bool cold = argc > 1 && std::string_view(argv[argc - 1]) == "--cold";
  if (cold) --argc;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : cold ? 200 : 2000;
  if (argc > 2 || rounds < 1 || rounds > 10'000'000) {
    fmt::print(stderr, "usage: hop_bench [ROUNDS] [--cold]\n");
    return 2;
  }
  // The other process, before this one has used gRPC, which does not outlive a fork.
  int to_parent[2];
  int to_child[2];
  if (::pipe(to_parent) != 0 || ::pipe(to_child) != 0) return 1;
  expect_few_connections();
  const pid_t child = ::fork();
  if (child == 0) run_child(to_parent[1], to_child[0], cold);
  Ports ports;
  read_all(to_parent[0], reinterpret_cast<char*>(&ports), sizeof(ports));
  const int code = run_parent(ports, to_child[1], rounds, cold);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return code;
}
