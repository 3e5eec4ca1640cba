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

// UTF-8 continuation bytes take no place on a terminal.
size_t shown_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

// fmt::print ends the program where standard error is gone or its disk is full; this does not.
void print_error(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

Terminal::Terminal() : stdout_is_tty_(::isatty(1) == 1), stderr_is_tty_(::isatty(2) == 1) {
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  colours_ = !dumb && !is_set("NO_COLOR");
}

void Terminal::clear_bar() {
  if (bar_shown_) std::fputs("\r\033[K", stderr);
  bar_shown_ = false;
}

void Terminal::line(std::string_view text, bool is_warning) {
  const MutexLock lock(mutex_);
  clear_bar();
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  print_error(fmt::format("{}{}\n", is_warning ? "warning: " : "", text));
}

void Terminal::progress(std::string_view what, double fraction, std::string_view detail) {
  const MutexLock lock(mutex_);
  if (!std::isfinite(fraction)) fraction = 0;
  fraction = std::clamp(fraction, 0.0, 1.0);
  if (bar_name_ != what) {
    bar_name_ = what;
    quarter_noted_ = 0;
  }
  if (stderr_is_tty_) {
    const int filled = static_cast<int>(fraction * kBarCells);
    std::string bar;
    for (int i = 0; i < kBarCells; ++i) bar += i < filled ? "━" : "─";
    print_error(fmt::format("\r\033[K{} {} {:3.0f}% {}", what, bar, fraction * 100, detail));
    bar_shown_ = true;
    if (fraction >= 1) clear_bar();
    std::fflush(stderr);
    return;
  }
  const int quarter = static_cast<int>(fraction * 4);
  if (quarter == quarter_noted_) return;
  quarter_noted_ = quarter;
  print_error(
      fmt::format("{}: {}%{}{}\n", what, quarter * 25, detail.empty() ? "" : " of ", detail));
}

void Terminal::answer(std::string_view text) {
  const MutexLock lock(mutex_);
  clear_bar();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string Terminal::dim(std::string_view text) const {
  return colours_ && stderr_is_tty_ ? fmt::format("\033[2m{}\033[0m", text) : std::string(text);
}

std::string Terminal::bold(std::string_view text) const {
  return colours_ && stdout_is_tty_ ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], shown_width(row[c]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string gap(widths[c] - shown_width(row[c]), ' ');
      const bool to_right = std::find(right.begin(), right.end(), c) != right.end();
      line += to_right ? gap + row[c] : row[c] + gap;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace strata::cli
