// The ops of the block KV cache: writing keys and values, and attention over them.
#pragma once

#include <memory>

#include "backends/cpu/item_step.h"

namespace strata::cpu {

// F32, F16, Q8_0, Q4_0 caches; the quantised ones for even head sizes from 32 on.
bool supports_kv_write(const Tensor& node);
bool supports_attention(const Tensor& node);

std::unique_ptr<ItemStep> make_kv_write_step(const Tensor& node);
std::unique_ptr<Step> make_attention_step(const Tensor& node, int threads);

}  // namespace strata::cpu
