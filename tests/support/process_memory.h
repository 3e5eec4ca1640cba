// How much memory this process uses, for tests that bound it.
#pragma once

#include <cstdint>

namespace strata::test {

// Resident bytes now.
uint64_t resident_bytes();
// The most resident bytes since reset_peak_resident(); since the start where the kernel refuses to
// reset it.
uint64_t peak_resident_bytes();
void reset_peak_resident();

// True in builds with a sanitizer, whose own memory makes such bounds meaningless.
constexpr bool under_sanitizer() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return true;
#else
  return false;
#endif
#else
  return false;
#endif
}

}  // namespace strata::test
