#include "runtime/model/layer_range.h"

#include <fmt/format.h>

namespace strata {

std::string layer_range_text(const LayerRange& range) {
  std::string text;
  if (range.count() == 1) text = fmt::format("layer {}", range.begin);
  if (range.count() > 1) text = fmt::format("layers {}-{}", range.begin, range.end - 1);
  if (range.has_embedding) text += text.empty() ? "embedding" : " + embedding";
  if (range.has_head) text += text.empty() ? "head" : " + head";
  return text.empty() ? "nothing" : text;
}

}  // namespace strata
