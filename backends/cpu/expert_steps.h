// Steps of a mixture of experts besides the products: choosing, weighing and adding up.
#pragma once

#include <memory>

#include "backends/cpu/step.h"

namespace strata::cpu {

bool supports_expert_step(const Tensor& node);
// For top_k, route_weights and combine.
std::unique_ptr<Step> make_expert_step(const Tensor& node, int threads);

}  // namespace strata::cpu
