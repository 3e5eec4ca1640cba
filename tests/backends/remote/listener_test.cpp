// Goal: a listener takes what it can, says why it cannot listen, and outlives a flood of
// connections. Method: sockets on loopback; limits of descriptors set by its option and by
// setrlimit.
#include "backends/remote/listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace strata::remote {
namespace {

// Keeps what a listener takes.
class Taken {
 public:
  Listener::Take take() {
    return [this](int, FileDescriptor connection) {
      const std::lock_guard lock(mutex_);
      connections_.push_back(std::move(connection));
      changed_.notify_all();
    };
  }
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10),
                             [&] { return connections_.size() >= count; });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return connections_.size();
  }
  void close_all() {
    const std::lock_guard lock(mutex_);
    connections_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<FileDescriptor> connections_;
};

FileDescriptor new_socket() { return FileDescriptor(::socket(AF_INET, SOCK_STREAM, 0)); }

bool connect_to(const FileDescriptor& socket, uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  const timeval limit{10, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
}

// The other side has closed it; a read that runs into its limit gives EAGAIN.
bool is_closed(const FileDescriptor& socket) {
  char byte = 0;
  const ssize_t got = ::read(socket.get(), &byte, 1);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

TEST(Listener, TakesConnectionsAndGivesItsPortBack) {
  Taken taken;
  auto listener = Listener::bind({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const uint16_t port = listener.value()->port();
  ASSERT_NE(port, 0);
  const auto second = Listener::bind({"127.0.0.1", port});
  EXPECT_EQ(second.status().code(), StatusCode::already_exists);
  ASSERT_TRUE(listener.value()->start(taken.take()).ok());
  const FileDescriptor client = new_socket();
  ASSERT_TRUE(connect_to(client, port));
  EXPECT_TRUE(taken.wait_for(1));
  listener.value()->stop();
  EXPECT_TRUE(Listener::bind({"127.0.0.1", port}).ok());
}

TEST(Listener, OfANameHasOnePortForAllItsAddresses) {
  Taken taken;
  auto listener = Listener::bind({"localhost", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  ASSERT_TRUE(listener.value()->start(taken.take()).ok());
  const FileDescriptor client = new_socket();
  ASSERT_TRUE(connect_to(client, listener.value()->port()));
  EXPECT_TRUE(taken.wait_for(1));
}

TEST(Listener, OnAllAddressesOfIp6TakesIp4) {
  Taken taken;
  auto listener = Listener::bind({"::", 0});
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here: " << listener.status().to_string();
  ASSERT_TRUE(listener.value()->start(taken.take()).ok());
  const FileDescriptor client = new_socket();
  ASSERT_TRUE(connect_to(client, listener.value()->port()));
  EXPECT_TRUE(taken.wait_for(1));
}

TEST(Listener, SaysWhyItCannot) {
  EXPECT_EQ(Listener::bind({"192.0.2.1", 0}).status().message(),
            "cannot listen on 192.0.2.1:0: not an address of this machine");
  const auto unknown = Listener::bind({"no-such-host.invalid", 0});
  EXPECT_EQ(unknown.status().code(), StatusCode::invalid_argument);
}

TEST(Listener, BeyondItsNumberConnectionsAreClosedUntilOthersEnd) {
  constexpr int kClients = 12;
  std::vector<FileDescriptor> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(new_socket());
  Taken taken;
  // Room for the listening socket, its event and about four connections.
  auto listener = Listener::bind({"127.0.0.1", 0}, clients.back().get() + 7);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  ASSERT_TRUE(listener.value()->start(taken.take()).ok());
  for (const FileDescriptor& client : clients) {
    ASSERT_TRUE(connect_to(client, listener.value()->port()));
  }
  EXPECT_TRUE(is_closed(clients.back()));
  const size_t count = taken.count();
  EXPECT_GE(count, 1U);
  EXPECT_LE(count, 6U);
  taken.close_all();
  clients.back() = new_socket();
  ASSERT_TRUE(connect_to(clients.back(), listener.value()->port()));
  EXPECT_TRUE(taken.wait_for(1));
}

// gRPC's own listener would be gone after this.
TEST(Listener, GoesOnAfterTheProcessHadNoDescriptorLeft) {
  Taken taken;
  auto listener = Listener::bind({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  ASSERT_TRUE(listener.value()->start(taken.take()).ok());
  std::vector<FileDescriptor> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(new_socket());
  // The lowest number that is free.
  const int next = FileDescriptor(::dup(clients.back().get())).get();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (const FileDescriptor& client : clients) {
    EXPECT_TRUE(connect_to(client, listener.value()->port()));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(taken.count(), 0U);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(taken.wait_for(3));
}

}  // namespace
}  // namespace strata::remote
