// Numbers as people read them, the same in the command line, logs, errors and documents.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace strata {

// "0 B", "1.5 KiB", "98.4 MiB": binary units, one decimal from KiB on.
std::string human_bytes(uint64_t bytes);

// "90,112,000": with thousands separators.
std::string human_count(uint64_t value);

// "85 µs", "12.3 ms", "1.20 s", "2 min 5 s".
std::string human_duration(std::chrono::nanoseconds duration);

// "512", "64K", "1.5GiB", "2GB": K, M, G, T are binary with or without "iB" or "B".
// Errors: INVALID_ARGUMENT for anything else, for a negative and for more than 2^63 - 1 bytes.
Result<uint64_t> parse_bytes(std::string_view text);
// A size that is memory for a part of a model: below 1 MiB it is a forgotten unit. Errors: those of
// parse_bytes(); INVALID_ARGUMENT.
Result<uint64_t> parse_memory(std::string_view text);
Status check_memory(uint64_t bytes);

}  // namespace strata
