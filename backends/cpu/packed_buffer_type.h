// Memory for weights with rows interleaved by 16, as the CPU's matrix kernels read them.
//
// write() takes GGUF rows and rearranges them; read() gives the file's bytes back exactly. The
// layout of each type stands in repack.h. It is a little larger than the file's for K-quants
// (unpacked 6-bit scales, +3%) and for a last group of fewer than 16 rows.
//
// Over several memory nodes its pages are spread (runtime/topology/memory_spread.h).
//
// Threads: as BufferType; writes to different groups of 16 rows may run at once.
#pragma once

#include "runtime/memory/buffer.h"

namespace strata::cpu {

// One immutable object for the whole process. write() and read() take whole rows; write() starts at
// a row that is a multiple of 16 within its matrix and ends at one, or at the matrix's end.
// Errors: INVALID_ARGUMENT otherwise. fill() sets the packed bytes.
const BufferType& packed_buffer_type();

// True for what may be placed there: matrices {k, rows} and {k, rows, experts} of a type with
// kernels, with more than one row. Vectors (norms, biases) belong in host memory.
bool can_pack(const Tensor& tensor);

}  // namespace strata::cpu
