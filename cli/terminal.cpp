#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace strata::cli {
namespace {

constexpr int kBarCells = 24;
// What is over sooner needs no bar; a line in a log should be worth more.
constexpr auto kBarAfter = std::chrono::milliseconds(150);
constexpr auto kLinesAfter = std::chrono::seconds(1);
constexpr auto kRedrawInterval = std::chrono::milliseconds(50);

// fmt::print ends the program where standard error is gone or its disk is full; this does not.
void print_error(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

Terminal::Terminal(bool is_quiet)
    : is_quiet_(is_quiet), stdout_is_tty_(::isatty(1) == 1), stderr_is_tty_(::isatty(2) == 1) {
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  colours_ = !dumb && !is_set("NO_COLOR");
}

void Terminal::clear_bar() {
  if (bar_shown_) std::fputs("\r\033[K", stderr);
  bar_shown_ = false;
}

void Terminal::line(std::string_view text, bool is_warning) {
  if (is_quiet_) return;
  const MutexLock lock(mutex_);
  clear_bar();
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  print_error(fmt::format("{}{}\n", is_warning ? "warning: " : "", text));
}

void Terminal::progress(std::string_view what, double fraction, std::string_view detail) {
  if (is_quiet_) return;
  const MutexLock lock(mutex_);
  if (!std::isfinite(fraction)) fraction = 0;
  fraction = std::clamp(fraction, 0.0, 1.0);
  if (bar_name_ != what) {
    bar_name_ = what;
    quarter_noted_ = 0;
    bar_begun_ = SystemClock().now();
    bar_drawn_ = {};
  }
  const TimePoint now = SystemClock().now();
  if (stderr_is_tty_) {
    if (fraction >= 1) return clear_bar();
    if (now - bar_begun_ < kBarAfter || now - bar_drawn_ < kRedrawInterval) return;
    bar_drawn_ = now;
    const int filled = static_cast<int>(fraction * kBarCells);
    std::string bar;
    for (int i = 0; i < kBarCells; ++i) bar += i < filled ? "━" : "─";
    print_error(fmt::format("\r\033[K{} {} {:3.0f}% {}", what, bar, fraction * 100, detail));
    bar_shown_ = true;
    std::fflush(stderr);
    return;
  }
  const int quarter = static_cast<int>(fraction * 4);
  if (quarter == quarter_noted_ || now - bar_begun_ < kLinesAfter) return;
  quarter_noted_ = quarter;
  print_error(
      fmt::format("{}: {}%{}{}\n", what, quarter * 25, detail.empty() ? "" : " of ", detail));
}

void Terminal::status(std::string_view text) {
  if (is_quiet_) return;
  if (!stderr_is_tty_) return line(text);
  const MutexLock lock(mutex_);
  print_error(fmt::format("\r\033[K{}", dim(text)));
  bar_shown_ = true;
  std::fflush(stderr);
}

void Terminal::answer(std::string_view text) {
  const MutexLock lock(mutex_);
  clear_bar();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Terminal::stream(std::string_view text, bool is_dim) {
  if (!stdout_is_tty_) return answer(text);
  const std::string shown = without_controls(text);
  answer(is_dim && colours_ ? fmt::format("\033[2m{}\033[0m", shown) : shown);
}

std::string without_controls(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    // U+0080 to U+009F are controls too.
    const bool is_c1 = c == 0xC2 && next >= 0x80 && next < 0xA0;
    if (is_c1) ++i;
    if (is_c1 || c == 0x7F || (c < 0x20 && c != '\n' && c != '\t')) {
      shown += "\uFFFD";
    } else {
      shown += static_cast<char>(c);
    }
  }
  return shown;
}

void Terminal::end_line() {
  const MutexLock lock(mutex_);
  clear_bar();
}

std::string Terminal::dim(std::string_view text) const {
  return colours_ && stderr_is_tty_ ? fmt::format("\033[2m{}\033[0m", text) : std::string(text);
}

std::string Terminal::bold(std::string_view text) const {
  return colours_ && stdout_is_tty_ ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

}  // namespace strata::cli
