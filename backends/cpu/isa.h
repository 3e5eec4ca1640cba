// Which vector path of the kernels runs: found by asking the processor, or forced by name.
//
// All paths give equal bits, so the choice is one of speed only; forcing one is for tests and for
// finding faults. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace strata::cpu {

enum class IsaLevel : uint8_t { scalar, avx2, avx512 };

struct Isa {
  IsaLevel level = IsaLevel::scalar;
  // Four-way int8 dot products: AVX-VNNI beside avx2, AVX-512 VNNI beside avx512.
  bool vnni = false;

  bool operator==(const Isa&) const = default;
};

// "avx512+vnni".
std::string isa_name(Isa isa);
// The best that processor and operating system support.
Isa detect_isa();
// Everything that runs here, slowest first: scalar, avx2, avx2+vnni, avx512, avx512+vnni.
std::vector<Isa> available_isas();
// "scalar", "avx2", "avx512", each with "+vnni" or "-vnni" to force or forbid it (else: if there),
// or "" and "auto" for the best. Errors: INVALID_ARGUMENT for a name that is none,
// FAILED_PRECONDITION for what this processor lacks.
Result<Isa> choose_isa(std::string_view name);

}  // namespace strata::cpu
