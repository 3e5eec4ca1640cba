// ProgressDisplay: where what takes long tells how far it is. The command line's Terminal is one.
//
// Threads: any.
#pragma once

#include <string_view>

namespace strata::serve {

class ProgressDisplay {
 public:
  virtual ~ProgressDisplay() = default;
  // One line for a person.
  virtual void line(std::string_view text, bool is_warning) = 0;
  // How much of `what` is done, 0 to 1; `detail` stands beside it.
  virtual void progress(std::string_view what, double fraction, std::string_view detail) = 0;
};

}  // namespace strata::serve
