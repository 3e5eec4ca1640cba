// Host memory: the plain BufferType, and buffers over memory that somebody else owns.
#pragma once

#include <memory>

#include "runtime/memory/buffer.h"

namespace strata {

// Ordinary memory, 64-byte aligned, zeroed by the kernel page by page as it is first touched. One
// immutable object for the whole process.
const BufferType& host_buffer_type();

// A read-only buffer over bytes owned elsewhere, such as a range of a mapped file: tensors keep the
// file's layout and cost no memory of their own. `keep_alive` is held as long as the buffer lives.
// `alignment` of its type is that of GGUF (32 by default, any power of two).
Result<std::unique_ptr<Buffer>> wrap_host_memory(std::span<const std::byte> bytes,
                                                 std::shared_ptr<const void> keep_alive);

}  // namespace strata
