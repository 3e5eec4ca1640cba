#include "coordinator/engine/batcher.h"

#include <algorithm>

namespace strata::coordinator {
namespace {

bool served_before(const BatchCandidate* a, const BatchCandidate* b) {
  if (a->last_served != b->last_served) return a->last_served < b->last_served;
  return a->index < b->index;
}

// The candidates that `wanted` accepts, the least recently served first.
template <typename Wanted>
std::vector<const BatchCandidate*> in_turn(std::span<const BatchCandidate> candidates,
                                           Wanted wanted) {
  std::vector<const BatchCandidate*> chosen;
  for (const BatchCandidate& candidate : candidates) {
    if (wanted(candidate)) chosen.push_back(&candidate);
  }
  std::sort(chosen.begin(), chosen.end(), served_before);
  return chosen;
}

uint32_t divide_up_u32(uint64_t value, uint64_t divisor) {
  return static_cast<uint32_t>((value + divisor - 1) / divisor);
}

// Prompt tokens that one step takes in all.
uint32_t prompt_budget(std::span<const BatchCandidate> candidates, const BatchLimits& limits,
                       uint32_t room) {
  if (limits.prefill_chunk != 0 || limits.stage_count < 2) return room;
  uint64_t waiting = 0;
  for (const BatchCandidate& candidate : candidates) waiting += candidate.prompt_left;
  const uint32_t share = divide_up_u32(waiting, limits.stage_count);
  const uint32_t even = divide_up_u32(share, 16) * 16;
  return std::min(room, std::max(even, kShortestSpreadChunk));
}

}  // namespace

std::vector<BatchRow> choose_rows(std::span<const BatchCandidate> candidates,
                                  const BatchLimits& limits) {
  const auto decoding = std::count_if(candidates.begin(), candidates.end(),
                                      [](const BatchCandidate& c) { return c.decoding; });
  const auto due =
      in_turn(candidates, [](const BatchCandidate& c) { return c.decoding && c.decode_ready; });
  const auto prompts =
      in_turn(candidates, [](const BatchCandidate& c) { return c.prompt_left > 0; });

  std::vector<BatchRow> rows;
  const uint32_t kept_for_prompts = prompts.empty() ? 0 : 1;
  const uint32_t spread =
      divide_up_u32(static_cast<uint64_t>(decoding), std::max(limits.stage_count, 1U));
  const uint32_t decode_max = std::min(spread, limits.step_tokens - kept_for_prompts);
  for (const BatchCandidate* candidate : due) {
    if (rows.size() == decode_max) break;
    rows.push_back({.index = candidate->index, .count = 1});
  }

  const uint32_t room = limits.step_tokens - static_cast<uint32_t>(rows.size());
  uint32_t left = prompt_budget(candidates, limits, room);
  const uint32_t chunk_max = limits.prefill_chunk != 0 ? limits.prefill_chunk : left;
  for (const BatchCandidate* candidate : prompts) {
    if (left == 0) break;
    const uint32_t count = std::min({candidate->prompt_left, chunk_max, left});
    rows.push_back({.index = candidate->index, .count = count});
    left -= count;
  }
  return rows;
}

}  // namespace strata::coordinator
