// The part of a model that a stage holds.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

// Layers [begin, end) of the model, and whether the token embedding and the output head belong to
// the same stage. The range may be empty: a stage can hold the head alone.
struct LayerRange {
  int32_t begin = 0;
  int32_t end = 0;
  bool has_embedding = false;
  bool has_head = false;

  int32_t count() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};

// "layers 0-9 + embedding", "layers 10-29 + head", "head".
std::string layer_range_text(const LayerRange& range);

}  // namespace strata
