// Numbers from the operating system: for tokens, identities and seeds that nobody chose. What must
// be the same in each run comes from runtime/sampling/counter_rng.h. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace strata {

// Fills the bytes from the kernel's generator, which never fails once the machine is up.
void fill_random(std::span<std::byte> bytes);
uint64_t random_u64();
// Two lower-case hexadecimal digits for each byte.
std::string random_hex(size_t bytes);

}  // namespace strata
