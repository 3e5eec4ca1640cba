// Addresses, channels and servers: everything about a connection but what is said over it.
//
// TLS is to come: credentials are insecure, so that an address beyond loopback is refused unless
// the caller says `insecure_network`. Each call carries the token in its metadata, and each server
// compares it in constant time. One message cap of 4 MiB everywhere; keepalive pings find a frozen
// or cut-off peer in about 3 s (a closed connection is noticed at once).
//
// This header names gRPC's types but does not include them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace grpc {
class Channel;
class ClientContext;
class Server;
class Service;
class ServerContextBase;
namespace experimental {
class ExternalConnectionAcceptor;
}  // namespace experimental
}  // namespace grpc

namespace strata::remote {

// What one gRPC message may hold; larger things travel in pieces.
inline constexpr size_t kMessageBytesMax = size_t{4} << 20;
// The most payload in one piece.
inline constexpr size_t kPieceBytesMax = size_t{2} << 20;
// The coordinator's port unless told otherwise.
inline constexpr uint16_t kDefaultPort = 50051;

struct Address {
  std::string host;  // name, IPv4, or IPv6 without brackets
  uint16_t port = 0;

  // "host:port", "[::1]:50051".
  std::string text() const;
  // 127.0.0.0/8, ::1 or "localhost".
  bool is_loopback() const;
  // 0.0.0.0 or ::, all of a host's addresses.
  bool is_wildcard() const;
  bool operator==(const Address&) const = default;
};

enum class AddressUse {
  listen,     // port 0 lets the system choose
  listening,  // what a listener says of itself: may be all addresses, on a port that is known
  dial,
};

// "HOST:PORT", "HOST", ":PORT" (loopback), "[::1]:50051", "::1", "[fe80::1%eth0]:50051"; without a
// port: kDefaultPort, to dial and to listen alike. Errors: INVALID_ARGUMENT naming the text and
// what is wrong with it: spaces, a comma, a port that is no number or beyond 65535, port 0 or a
// wildcard to dial.
Result<Address> parse_address(std::string_view text, AddressUse use);

// An address at which others may reach a listener on all addresses: the first of this machine that
// is up and no loopback, else loopback. Others are themselves.
Address reachable_address(const Address& listening);

// PERMISSION_DENIED for an address beyond loopback unless `insecure_network`.
Status check_exposure(const Address& address, bool insecure_network);

// The address at which others reach a listener: `listen`, with a wildcard host replaced by the
// one that its owner's connection comes from. `grpc_peer` is ServerContext::peer()'s text, such as
// "ipv4:10.0.0.2:4711". Errors: INVALID_ARGUMENT for a loopback listener whose owner comes from
// another machine: nobody would reach it.
Result<Address> advertised_address(const Address& listen, std::string_view grpc_peer);

// Has each thread that waits for gRPC watch its own connections. By default one thread of the
// process watches for all and wakes the one that an event is for: a thread more on the way of each
// frame (docs/performance.md, A hop). Costs time in the number of connections: for processes that
// have few, such as workers. The environment's GRPC_POLL_STRATEGY goes first. Before the first
// channel or server of the process, and before its other threads.
void expect_few_connections();

// gRPC waits for ever where the system gives it no thread, and aborts without a descriptor: ask
// before the first channel or server.
// Errors: RESOURCE_EXHAUSTED if this process cannot have the threads or files that they need.
Status check_rpc_threads();

// A channel of its own (not shared with others to the same address), connecting lazily.
std::shared_ptr<grpc::Channel> open_channel(const Address& address);
// Waits until the channel is connected. Errors: why_unreachable() at once if nothing listens there,
// no host has that name, or there is no way to it; DEADLINE_EXCEEDED if nothing answers; CANCELLED
// within 50 ms after `stop` was asked for.
Status wait_connected(grpc::Channel& channel, const Address& address, std::string_view who,
                      std::chrono::milliseconds timeout, const std::stop_token& stop = {});

// UNAVAILABLE "cannot reach <who> at <address>: ..." with what is in the way, as the system says it
// when it is asked anew: gRPC does not tell. Takes up to a second, and the time of a look-up.
Status why_unreachable(const Address& address, std::string_view who);

// Puts the token, and the caller's name for the other side's log, into a call's metadata.
void add_credentials(grpc::ClientContext& context, const std::string& token,
                     const std::string& caller);
// UNAUTHENTICATED unless the call carries the token.
Status check_caller(const grpc::ServerContextBase& context, const std::string& token);
// In what ends an answer: that its status is the other node's own word. A status without it was
// made on this side, because the connection broke or the call was given up. Before the call's end.
void mark_answer(grpc::ServerContextBase& context);
// Requires: the call has ended.
bool is_answer(const grpc::ClientContext& context);
// The name that the caller gave with add_credentials; "?" if none. Not proven, for messages.
std::string caller_name(const grpc::ServerContextBase& context);

class Listener;
class StreamAcceptor;

struct ServerOptions {
  Address listen;
  bool insecure_network = false;
  std::vector<grpc::Service*> services;  // callback services; must outlive the server
  StreamAcceptor* streams = nullptr;     // serves Stage.Steps and Stage.Results; may be null
};

// A listening gRPC server. Threads: any; start and shutdown once each.
class RpcServer {
 public:
  // Errors: PERMISSION_DENIED (check_exposure), ALREADY_EXISTS "cannot listen on ...: the port is
  // taken", INVALID_ARGUMENT for a host that is not one of this machine's.
  static Result<std::unique_ptr<RpcServer>> start(const ServerOptions& options);
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // With the port that the system chose, if it was 0.
  const Address& address() const { return address_; }
  // Refuses new calls, lets those that run end until `grace` is over, then cancels them.
  void shutdown(std::chrono::milliseconds grace);

 private:
  RpcServer();
  Address address_;
  std::unique_ptr<Listener> listener_;
  // Where the listener's connections go.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
  StreamAcceptor* streams_ = nullptr;
  bool down_ = false;
};

}  // namespace strata::remote
