#include "runtime/model/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "runtime/model/arch/architectures.h"

namespace strata {

std::span<const Architecture* const> all_architectures() {
  static const std::array<const Architecture*, 4> all = {
      &llama_architecture(),
      &gemma3_architecture(),
      &qwen3_architecture(),
      &gpt2_architecture(),
  };
  return all;
}

Tensor* Architecture::embed(ModelBuilder& builder, Tensor* tokens) const {
  return blocks::token_embedding(builder, tokens);
}

Tensor* Architecture::head(ModelBuilder& builder, Tensor* x) const {
  return blocks::logits(builder, blocks::rms_norm(builder, x, "output_norm"));
}

Result<const Architecture*> find_architecture(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Architecture* architecture : all_architectures()) {
    if (architecture->name() == name) return architecture;
    known.push_back(architecture->name());
  }
  return unimplemented(fmt::format("architecture '{}' is not one that Strata can run", name),
                       fmt::format("it runs {}", fmt::join(known, ", ")));
}

}  // namespace strata
