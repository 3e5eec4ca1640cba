// The architectures of this folder. Only architecture.cpp, the registry, includes this file.
#pragma once

#include "runtime/model/architecture.h"

namespace strata {

const Architecture& llama_architecture();
const Architecture& gemma3_architecture();
const Architecture& qwen3_architecture();
const Architecture& gpt2_architecture();

}  // namespace strata
