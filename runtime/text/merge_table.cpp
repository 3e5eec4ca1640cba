#include "runtime/text/merge_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/base/utf8.h"

namespace strata {
namespace {

constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

}  // namespace

Result<MergeTable> MergeTable::load(const Metadata& metadata, const Vocab& vocab) {
  const StringArray merges = TRY(metadata.get_strings(kMergesKey));
  if (merges.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return metadata.error(kMergesKey, fmt::format("has {} merges, too many", merges.size()));
  }
  MergeTable table;
  table.slots_.resize(std::bit_ceil(std::max<size_t>(merges.size() * 2, 16)));
  const size_t mask = table.slots_.size() - 1;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view text = merges[i];
    const auto broken = [&](std::string_view reason) {
      return metadata.error(kMergesKey,
                            fmt::format("merge {} '{}' {}", i, printable(text), reason));
    };
    // From the second byte on: the left part may be a space of its own.
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size()) {
      return broken("is not two texts with a space between them");
    }
    const std::string_view left_text = text.substr(0, space);
    const std::string_view right_text = text.substr(space + 1);
    const int32_t left = vocab.find(left_text);
    const int32_t right = vocab.find(right_text);
    if (left < 0) return broken("has a left part that is no token");
    if (right < 0) return broken("has a right part that is no token");
    const int32_t id = vocab.find(std::string(left_text).append(right_text));
    if (id < 0) return broken("makes a text that is no token");
    size_t place = table.first_place(left, right);
    while (table.slots_[place].left >= 0 &&
           (table.slots_[place].left != left || table.slots_[place].right != right)) {
      place = (place + 1) & mask;
    }
    // Of a pair that is listed twice the first rank counts.
    if (table.slots_[place].left >= 0) continue;
    table.slots_[place] = {left, right, {static_cast<int32_t>(i), id}};
  }
  return table;
}

size_t MergeTable::first_place(int32_t left, int32_t right) const {
  const uint64_t key =
      (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  // Fibonacci hashing: the high bits of the product are well mixed.
  return static_cast<size_t>((key * 0x9E3779B97F4A7C15ULL) >> 32) & (slots_.size() - 1);
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return {};
  const size_t mask = slots_.size() - 1;
  for (size_t place = first_place(left, right); slots_[place].left >= 0;
       place = (place + 1) & mask) {
    if (slots_[place].left == left && slots_[place].right == right) return slots_[place].merge;
  }
  return {};
}

}  // namespace strata
