#include "runtime/base/human.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace strata {

std::string human_bytes(uint64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits = {"B",   "KiB", "MiB",
                                                             "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_count(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string human_duration(std::chrono::nanoseconds duration) {
  const double us = static_cast<double>(duration.count()) / 1e3;
  if (us < 1e3) return fmt::format("{:.0f} µs", us);
  if (us < 1e6) return fmt::format("{:.1f} ms", us / 1e3);
  if (us < 60e6) return fmt::format("{:.2f} s", us / 1e6);
  const auto seconds = static_cast<int64_t>(us / 1e6);
  return fmt::format("{} min {} s", seconds / 60, seconds % 60);
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const Status error = invalid_argument(fmt::format("'{}' is not a size", text),
                                        "write a number with K, M, G or T, such as 1.5G");
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || !std::isfinite(number) || number < 0) return error;
  std::string suffix;
  for (const char* p = end; p != text.data() + text.size(); ++p) {
    suffix += static_cast<char>(std::toupper(static_cast<unsigned char>(*p)));
  }
  static constexpr std::string_view kUnits = "KMGT";
  double scale = 1;
  if (!suffix.empty() && suffix != "B") {
    const size_t unit = kUnits.find(suffix[0]);
    const std::string_view rest = std::string_view(suffix).substr(1);
    if (unit == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "IB")) {
      return error;
    }
    scale = std::pow(1024.0, static_cast<double>(unit + 1));
  }
  if (number * scale >= 9.2e18) return error;
  return static_cast<uint64_t>(number * scale);
}

Status check_memory(uint64_t bytes) {
  constexpr uint64_t kLeastBytes = 1 << 20;
  if (bytes >= kLeastBytes) return ok_status();
  return invalid_argument(fmt::format("{} of memory hold no part of a model; the least is {}",
                                      human_bytes(bytes), human_bytes(kLeastBytes)),
                          "write a number with its unit, such as 8GiB");
}

Result<uint64_t> parse_memory(std::string_view text) {
  const uint64_t bytes = TRY(parse_bytes(text));
  TRY(check_memory(bytes));
  return bytes;
}

}  // namespace strata
