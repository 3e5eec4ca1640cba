#include "runtime/model/step.h"

namespace strata {

uint32_t StepPlan::live_tokens() const {
  uint32_t count = 0;
  for (const StepRow& row : rows) {
    if ((row.flags & StepRow::dead) == 0) count += row.count;
  }
  return count;
}

}  // namespace strata
