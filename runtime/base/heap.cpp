#include "runtime/base/heap.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace strata {

#if defined(__GLIBC__)
namespace {

// Threads that compute take nothing in a step, and those of connections little: two arenas are not
// waited for. With sixteen, 10 MB in use were seen to hold 291.
constexpr int kArenas = 2;
// Blocks of a MiB and more (pieces of tensors, headers, prompts' activations) cost a system call
// each, which is nothing beside what is done with their bytes.
constexpr int kOwnMappingBytes = 1 << 20;
// Free at the end of an arena beyond this goes back by itself.
constexpr int kTrimBytes = 1 << 20;

}  // namespace

void configure_heap() {
  ::mallopt(M_ARENA_MAX, kArenas);
  ::mallopt(M_MMAP_THRESHOLD, kOwnMappingBytes);
  ::mallopt(M_TRIM_THRESHOLD, kTrimBytes);
}

void return_free_heap() { ::malloc_trim(0); }
#else
void configure_heap() {}
void return_free_heap() {}
#endif

}  // namespace strata
