// What a person sees: progress that redraws itself on a terminal and stands as plain lines
// elsewhere, tables, and colours only where a terminal shows them.
//
// Answers go to standard output, everything else to standard error, so that a pipe gets the answer
// alone. With `is_quiet` (a command's --json) there is the answer and nothing else, so that an
// error stands alone on standard error. Threads: any; lines do not mix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "serve/progress.h"

namespace strata::cli {

class Terminal final : public serve::ProgressDisplay {
 public:
  // Looks at standard output, standard error, and TERM and NO_COLOR.
  explicit Terminal(bool is_quiet = false);

  bool is_interactive() const { return stdout_is_tty_; }
  // Whether status() and progress() are seen by a person and vanish again.
  bool shows_progress() const { return stderr_is_tty_ && !is_quiet_; }

  // One line on standard error; "warning: " stands before it if it is one. Ends a progress bar.
  void line(std::string_view text, bool is_warning = false) override;
  // A progress bar named `what`, redrawn in place on a terminal; elsewhere a line at each quarter.
  // fraction 1 takes it away. What takes no time shows nothing.
  void progress(std::string_view what, double fraction, std::string_view detail = {}) override;
  // What is being waited for: replaced by what comes next on a terminal, a line elsewhere.
  void status(std::string_view text);
  // Text on standard output, at once.
  void answer(std::string_view text);
  // The same for text that a model wrote: on a terminal, control characters but tabs and line
  // breaks are shown as U+FFFD, since a terminal would obey them. `is_dim`: pale there.
  void stream(std::string_view text, bool is_dim = false);
  // Takes a progress bar or a status away, before somebody else writes to standard error.
  void end_line();

  std::string dim(std::string_view text) const;   // for standard error
  std::string bold(std::string_view text) const;  // for standard output

 private:
  void clear_bar() STRATA_REQUIRES(mutex_);

  const bool is_quiet_;
  bool stdout_is_tty_ = false;
  bool stderr_is_tty_ = false;
  bool colours_ = false;
  Mutex mutex_;
  bool bar_shown_ STRATA_GUARDED_BY(mutex_) = false;
  std::string bar_name_ STRATA_GUARDED_BY(mutex_);
  TimePoint bar_begun_ STRATA_GUARDED_BY(mutex_);
  TimePoint bar_drawn_ STRATA_GUARDED_BY(mutex_);
  int quarter_noted_ STRATA_GUARDED_BY(mutex_) = 0;
};

// The text with U+FFFD in place of each control character but tab and line break.
std::string without_controls(std::string_view text);

}  // namespace strata::cli
