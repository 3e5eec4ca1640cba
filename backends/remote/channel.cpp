#include "backends/remote/channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "backends/remote/activation_stream.h"
#include "backends/remote/listener.h"
#include "backends/remote/token.h"
#include "backends/remote/wire_fields.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"
#include "runtime/base/thread_start.h"

namespace strata::remote {
namespace {

constexpr const char* kTokenKey = "strata-token";
constexpr const char* kCallerKey = "strata-node";
constexpr const char* kAnswerKey = "strata-answer";
// Of a listener, a connection and the library's own to wake threads; seven were seen to be too few.
constexpr size_t kLibraryDescriptors = 12;

// A ping after 1 s of silence, given up 3 s later: a frozen peer is found within the 5 s of the
// fault matrix, and one that stops for a second is forgiven.
constexpr int kKeepaliveTimeMs = 1000;
constexpr int kKeepaliveTimeoutMs = 3000;
// The whole of one piece in flight without waiting for the window to open.
constexpr int kWindowBytes = 4 << 20;
constexpr int kHttp2FrameBytes = 1 << 20;
constexpr int kReadChunkBytes = 64 << 10;
// How long a wait for a connection may take to notice that it is to end.
constexpr std::chrono::milliseconds kStopInterval{50};
constexpr int kHandshakeTimeoutMs = 10'000;
// gRPC puts a whole message together before it looks at its size, and before the caller's token is
// seen: beyond this, for all connections of a server, it ends streams.
constexpr size_t kBufferedBytesMax = size_t{512} << 20;
constexpr int kConcurrentCallsMax = 1024;
// What gRPC starts for itself in a process with a server and a few channels, and a few of ours.
constexpr int kLibraryThreads = 16;

// gRPC and protobuf write lines of their own to standard error, some of them whenever a peer sends
// nonsense; what matters of them reaches the user as a Status.
void route_library_logs() {
  static std::once_flag once;
  std::call_once(once, [] {
    google::protobuf::SetLogHandler(
        [](google::protobuf::LogLevel, const char*, int, const std::string& text) {
          log::debug("protobuf: {}", text);
        });
    gpr_set_log_function(
        [](gpr_log_func_args* args) { log::debug("grpc: {}", std::string_view(args->message)); });
  });
}

template <typename Set>
void set_common_options(const Set& set) {
  set(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  set(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadChunkBytes);
}

// The library ends the process where it gets no descriptor to wake its threads by.
Status check_descriptor_room() {
  std::array<FileDescriptor, kLibraryDescriptors> tried;
  for (size_t i = 0; i < tried.size(); ++i) {
    tried[i] = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (tried[i].is_open() || (errno != EMFILE && errno != ENFILE)) continue;
    return resource_exhausted(
        fmt::format("this process may open {} more files and connections, it needs {} at least", i,
                    tried.size()),
        "raise its limit: ulimit -n, or LimitNOFILE of its unit");
  }
  return ok_status();
}

}  // namespace

void expect_few_connections() { ::setenv("GRPC_POLL_STRATEGY", "poll", 0); }

Status check_rpc_threads() {
  TRY(check_descriptor_room());
  return check_thread_room(kLibraryThreads);
}

std::shared_ptr<grpc::Channel> open_channel(const Address& address) {
  route_library_logs();
  grpc::ChannelArguments arguments;
  set_common_options([&](const char* key, int value) { arguments.SetInt(key, value); });
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMessageBytesMax));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMessageBytesMax));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Never through a proxy of the environment: nodes reach each other directly.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  return grpc::CreateCustomChannel(address.text(), grpc::InsecureChannelCredentials(), arguments);
}

Status wait_connected(grpc::Channel& channel, const Address& address, std::string_view who,
                      std::chrono::milliseconds timeout, const std::stop_token& stop) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (stop.stop_requested()) {
      return cancelled(fmt::format("asked to end while connecting to {}", who));
    }
    const grpc_connectivity_state state = channel.GetState(true);
    if (state == GRPC_CHANNEL_READY) return ok_status();
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return why_unreachable(address, who);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const auto part = std::clamp(left, std::chrono::milliseconds(0), kStopInterval);
    if (!channel.WaitForStateChange(state, std::chrono::system_clock::now() + part) &&
        left <= part) {
      return deadline_exceeded(
          fmt::format("{} at {} does not answer", who, address.text()),
          "is the address right, does a firewall let the port through, is that process frozen?");
    }
  }
}

void add_credentials(grpc::ClientContext& context, const std::string& token,
                     const std::string& caller) {
  context.AddMetadata(kTokenKey, token);
  context.AddMetadata(kCallerKey, caller);
}

Status check_caller(const grpc::ServerContextBase& context, const std::string& token) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTokenKey);
  if (found == metadata.end()) {
    return {StatusCode::unauthenticated, "the call carries no token",
            "give the cluster's token with --token-file or STRATA_TOKEN"};
  }
  if (tokens_equal({found->second.data(), found->second.size()}, token)) return ok_status();
  return {StatusCode::unauthenticated, "the token is not this cluster's",
          "give the coordinator's token with --token-file or STRATA_TOKEN"};
}

void mark_answer(grpc::ServerContextBase& context) { context.AddTrailingMetadata(kAnswerKey, "1"); }

bool is_answer(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().count(kAnswerKey) > 0;
}

std::string caller_name(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kCallerKey);
  if (found == metadata.end()) return "?";
  return peer_text(std::string(found->second.data(), found->second.size()), 63);
}

Result<std::unique_ptr<RpcServer>> RpcServer::start(const ServerOptions& options) {
  route_library_logs();
  TRY(check_exposure(options.listen, options.insecure_network));
  TRY(check_rpc_threads());
  grpc::ServerBuilder builder;
  set_common_options([&](const char* key, int value) { builder.AddChannelArgument(key, value); });
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMessageBytesMax));
  builder.SetMaxSendMessageSize(static_cast<int>(kMessageBytesMax));
  builder.SetResourceQuota(grpc::ResourceQuota("server").Resize(kBufferedBytesMax));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kConcurrentCallsMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveTimeMs / 2);
  // Nobody here compresses; a peer that does could make a lot of memory of little.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  std::unique_ptr<RpcServer> server(new RpcServer());
  server->listener_ = TRY(Listener::bind(options.listen));
  using Builder = grpc::ServerBuilder::experimental_type;
  server->connections_ = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  if (options.streams != nullptr) options.streams->register_with(builder);
  server->server_ = builder.BuildAndStart();
  if (!server->server_) {
    if (options.streams != nullptr) options.streams->stop();
    return unavailable(fmt::format("gRPC cannot serve {}", options.listen.text()));
  }
  server->address_ = options.listen;
  server->address_.port = server->listener_->port();
  server->streams_ = options.streams;
  if (options.streams != nullptr) TRY(options.streams->start());
  TRY(server->listener_->start(
      [&connections = *server->connections_](int listening, FileDescriptor connection) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
        parameters.listener_fd = listening;
        parameters.fd = connection.release();
        connections.HandleNewConnection(&parameters);
      }));
  return server;
}

RpcServer::RpcServer() = default;
RpcServer::~RpcServer() { shutdown(std::chrono::milliseconds(0)); }

void RpcServer::shutdown(std::chrono::milliseconds grace) {
  if (down_ || !server_) return;
  down_ = true;
  listener_->stop();
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  if (streams_ != nullptr) streams_->stop();
  server_->Wait();
}

}  // namespace strata::remote
