// What this process's TCP connections have carried, as the kernel counts it.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace strata::cli {

// Payload bytes, sent and acknowledged or received, of all connections that are open now. A
// connection that closes takes its count along.
uint64_t own_tcp_bytes();

}  // namespace strata::cli
