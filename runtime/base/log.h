// Logging: one line an event, to standard error, through spdlog.
//
// Use `log::info("worker {} joined with {}", name, human_bytes(free))`. Levels: error (something
// failed and somebody should act), warn (it works, but not as asked), info (what a person running
// the program wants to see), debug (what an engineer wants). Threads: any.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "runtime/base/status.h"

namespace strata::log {

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

// Sends log lines to standard error as "15:04:05.123 info  worker-1: text". `who` names the process
// ("coordinator", a worker's name) and may be empty. Errors: INVALID_ARGUMENT for an unknown level
// (error, warn, info, debug, off).
Status configure(std::string_view who, std::string_view level);

}  // namespace strata::log
