#include "tests/support/process_memory.h"

#include <fstream>
#include <string>

namespace strata::test {
namespace {

// A line such as "VmHWM:     1234 kB" of /proc/self/status, in bytes; 0 without it.
uint64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    uint64_t kibibytes = 0;
    if (word == field + ":" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

uint64_t resident_bytes() { return status_bytes("VmRSS"); }
uint64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

void reset_peak_resident() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5";  // resets VmHWM (proc(5))
}

}  // namespace strata::test
