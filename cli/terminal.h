// What a person sees: progress that redraws itself on a terminal and stands as plain lines
// elsewhere, tables, and colours only where a terminal shows them.
//
// Answers go to standard output, everything else to standard error, so that a pipe gets the answer
// alone. Threads: any; lines do not mix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/mutex.h"

namespace strata::cli {

class Terminal {
 public:
  // Looks at standard output, standard error, and TERM and NO_COLOR.
  Terminal();

  bool is_interactive() const { return stdout_is_tty_; }

  // One line on standard error; "warning: " stands before it if it is one. Ends a progress bar.
  void line(std::string_view text, bool is_warning = false);
  // A progress bar named `what`, redrawn in place on a terminal; elsewhere a line at each quarter.
  // fraction 1 ends it.
  void progress(std::string_view what, double fraction, std::string_view detail = {});
  // Text on standard output, at once.
  void answer(std::string_view text);

  std::string dim(std::string_view text) const;   // for standard error
  std::string bold(std::string_view text) const;  // for standard output

 private:
  void clear_bar() STRATA_REQUIRES(mutex_);

  bool stdout_is_tty_ = false;
  bool stderr_is_tty_ = false;
  bool colours_ = false;
  Mutex mutex_;
  bool bar_shown_ STRATA_GUARDED_BY(mutex_) = false;
  std::string bar_name_ STRATA_GUARDED_BY(mutex_);
  int quarter_noted_ STRATA_GUARDED_BY(mutex_) = 0;
};

// Rows of cells as aligned columns; the first row is the head. `right`: columns that are aligned
// to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right = {});

}  // namespace strata::cli
