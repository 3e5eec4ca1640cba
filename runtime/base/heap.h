// How this process takes memory from the system and gives it back: the C library's settings, in one
// place.
//
// The library's defaults suit a process that grows and stays so. One that loads a stage, drops it
// and loads another would keep what was free in each of up to eight arenas a core, and, since the
// library learns from each large block that was freed, soon hold blocks of up to 32 MiB that way
// too. What a worker counts against its --memory would then be a part of what it has.
//
// Other C libraries than glibc are left as they are.
#pragma once

namespace strata {

// Few arenas; large blocks are the system's own and go back at once. Call before the first thread.
void configure_heap();

// Gives back what is free: after something large is gone. Takes milliseconds.
void return_free_heap();

}  // namespace strata
