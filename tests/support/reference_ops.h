// Reference ops: every op of a graph in plain C++ on F32 and I32, summed in double.
//
// What the simulated device runs, and an oracle for other backends' results (to a tolerance: it
// does not follow the kernel contract). Weights and caches must be F32. The cache layout is its
// own: element (dim, head, position in block) at (position * heads + head) * head_dim + dim.
// In-place results are safe. Slow, and without any attempt at speed.
//
// Threads: functions without state.
#pragma once

#include <cstddef>
#include <functional>

#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace strata::testing {

// Where the host finds the tensor's first byte.
using HostAddress = std::function<std::byte*(const Tensor&)>;
inline std::byte* plain_address(const Tensor& tensor) { return tensor.data; }

// Whether run_reference can compute the node: types only.
bool reference_supports(const Tensor& node);
// Computes one node from its sources. Errors: UNIMPLEMENTED for other types; OUT_OF_RANGE for an
// id, cell or block outside its table.
Status run_reference(const Tensor& node, const HostAddress& address);

}  // namespace strata::testing
