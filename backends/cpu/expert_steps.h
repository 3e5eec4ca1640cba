// Steps of a mixture of experts besides the products: choosing, weighing and adding up.
#pragma once

#include <memory>

#include "backends/cpu/item_step.h"

namespace strata::cpu {

bool supports_expert_step(const Tensor& node);
std::unique_ptr<ItemStep> make_top_k_step(const Tensor& node);
std::unique_ptr<Step> make_route_step(const Tensor& node);
std::unique_ptr<ItemStep> make_combine_step(const Tensor& node);

}  // namespace strata::cpu
