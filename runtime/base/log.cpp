#include "runtime/base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <array>
#include <memory>

namespace strata::log {

Status configure(std::string_view who, std::string_view level) {
  static constexpr std::array<std::string_view, 5> kLevels = {"error", "warn", "info", "debug",
                                                              "off"};
  if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) {
    return invalid_argument(fmt::format("unknown log level '{}'", level),
                            "use error, warn, info, debug or off");
  }
  auto logger = std::make_shared<spdlog::logger>(
      "strata", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  const std::string prefix = who.empty() ? "" : std::string(who) + ": ";
  logger->set_pattern("%H:%M:%S.%e %^%-5l%$ " + prefix + "%v");
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  return ok_status();
}

}  // namespace strata::log
