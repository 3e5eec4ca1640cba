// The sound inputs that each fuzzer's driver starts from.
#pragma once

#include <string>
#include <vector>

namespace strata::fuzz {

// Defined beside each fuzz target.
std::vector<std::string> corpus();

}  // namespace strata::fuzz
