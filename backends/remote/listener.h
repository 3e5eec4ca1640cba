// Listener: the sockets that a server listens on, and the thread that accepts from them.
//
// gRPC's own listener ends for good once the process has no descriptors left, which a few thousand
// silent sockets bring about; this one keeps some back for the process's files and closes what
// comes beyond, so that those who are served go on, and others get in again when the silent ones
// are thrown out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backends/remote/channel.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/status.h"

struct addrinfo;

namespace strata::remote {

// Lets this process open as many descriptors as it may (the hard limit); a shell's usual limit of
// 1,024 is soon reached. For a program's start.
void raise_descriptor_limit();

// Threads: bind and start by one thread, once each; take is called by the listener's own.
class Listener {
 public:
  // Accepted connections, non-blocking, owned by whoever takes them.
  using Take = std::function<void(int listening, FileDescriptor connection)>;

  // Listens on all addresses of the host's name, all with one port; those of a family that this
  // machine lacks are left out. "::" takes IPv4 as well. Connections are closed at once while the
  // process has `descriptors_max` descriptors open; 0: its limit, less kDescriptorsKeptBack.
  // Errors: ALREADY_EXISTS "the port is taken"; INVALID_ARGUMENT for a host that is unknown or
  // not this machine's, and for ports that need root.
  static Result<std::unique_ptr<Listener>> bind(const Address& address, int descriptors_max = 0);
  static constexpr int kDescriptorsKeptBack = 128;

  ~Listener();  // as stop()
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The port that the system chose, if the address had none.
  uint16_t port() const { return port_; }
  // Errors: RESOURCE_EXHAUSTED without a thread.
  Status start(Take take);
  // Closes the sockets; take is not called any more when this returns.
  void stop();

 private:
  Listener() = default;
  Status add_all(const addrinfo* list, const Address& address);
  Status add(const addrinfo& found, const Address& address);
  void run(const Take& take);
  // False when there was nothing to accept.
  bool accept_one(int listening, const Take& take);

  std::vector<FileDescriptor> sockets_;
  FileDescriptor stop_event_;
  uint16_t port_ = 0;
  int descriptors_max_ = 0;
  // Said when they are a power of two.
  uint64_t refused_ = 0;
  uint64_t failures_ = 0;
  std::thread thread_;
};

}  // namespace strata::remote
