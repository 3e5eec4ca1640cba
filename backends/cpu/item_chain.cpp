#include "backends/cpu/item_chain.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace strata::cpu {
namespace {

// Items are taken in turns of at least this many operations, so that calls don't show.
constexpr int64_t kTurnWork = 4096;

// What `groups` groups of a step's items touch, in whose terms two steps are compared.
struct GroupedAccess {
  const Access& access;
  uint64_t group_bytes;
  uint64_t group_stride;
  uint64_t end;

  GroupedAccess(const Access& a, int64_t items, int64_t groups)
      : access(a), group_bytes(a.item_bytes), group_stride(0), end(a.begin + a.item_bytes) {
    if (!a.is_even || items == 0) return;
    const uint64_t items_per_group = static_cast<uint64_t>(items / groups);
    group_bytes = a.item_stride * (items_per_group - 1) + a.item_bytes;
    group_stride = a.item_stride * items_per_group;
    end = a.begin + group_stride * static_cast<uint64_t>(groups - 1) + group_bytes;
  }
};

bool is_write(const Access& access) { return access.kind == Access::Kind::write; }
bool is_ahead(const Access& access) { return access.kind == Access::Kind::read_ahead; }

// Whether two steps that go through `groups` groups side by side could notice it here.
bool disturb(const GroupedAccess& a, const GroupedAccess& b, int64_t groups) {
  if (!is_write(a.access) && !is_write(b.access)) return false;
  if (a.access.in_workspace != b.access.in_workspace) return false;
  if (a.end <= b.access.begin || b.end <= a.access.begin) return false;
  if (is_ahead(a.access) || is_ahead(b.access)) return true;
  if (groups == 1) return false;  // one after the other, as ever
  if (!a.access.is_even || !b.access.is_even || a.group_stride != b.group_stride) return true;
  // Both in step: fine if a group's bytes of both end before the next group's begin.
  const uint64_t begin = std::min(a.access.begin, b.access.begin);
  const uint64_t end = std::max(a.access.begin + a.group_bytes, b.access.begin + b.group_bytes);
  return end - begin > a.group_stride;
}

bool disturb(const ItemStep& a, const ItemStep& b, int64_t groups) {
  for (const Access& of_a : a.accesses()) {
    for (const Access& of_b : b.accesses()) {
      if (disturb(GroupedAccess(of_a, a.items(), groups), GroupedAccess(of_b, b.items(), groups),
                  groups)) {
        return true;
      }
    }
  }
  return false;
}

int64_t pieces_alone(const ItemStep& step, int threads) {
  return piece_count(step.items(), step.item_work(), threads);
}

}  // namespace

ItemChain::ItemChain(std::unique_ptr<ItemStep> first, int threads)
    : threads_(threads),
      items_(first->items()),
      item_work_(first->item_work()),
      most_pieces_alone_(pieces_alone(*first, threads)) {
  steps_.push_back(std::move(first));
}

ItemChain::Grouping ItemChain::grouping_with(const ItemStep& step) const {
  const int64_t groups = std::gcd(items_, step.items());
  return {groups, items_ / groups * item_work_ + step.items() / groups * step.item_work()};
}

bool ItemChain::admits(const ItemStep& step) const {
  if (items_ == 0 || step.items() == 0) return false;
  const auto [groups, work] = grouping_with(step);
  const int64_t pieces_wanted = std::max(most_pieces_alone_, pieces_alone(step, threads_));
  if (piece_count(groups, work, threads_) < pieces_wanted && groups * work > 2 * kMinPieceWork) {
    return false;
  }
  return std::none_of(steps_.begin(), steps_.end(), [&, groups = groups](const auto& earlier) {
    return disturb(*earlier, step, groups);
  });
}

void ItemChain::append(std::unique_ptr<ItemStep> step) {
  const auto [groups, work] = grouping_with(*step);
  items_ = groups;
  item_work_ = work;
  most_pieces_alone_ = std::max(most_pieces_alone_, pieces_alone(*step, threads_));
  steps_.push_back(std::move(step));
}

Status ItemChain::run(const RunContext& context) {
  for (const std::unique_ptr<ItemStep>& step : steps_) TRY(step->check());
  const int64_t pieces = piece_count(items_, item_work_, threads_);
  const int64_t turn = steps_.size() == 1
                           ? items_
                           : std::max<int64_t>(1, kTurnWork / std::max<int64_t>(1, item_work_));
  context.pool.run(pieces, [&](int64_t piece, int) {
    const int64_t end = items_ * (piece + 1) / pieces;
    for (int64_t begin = items_ * piece / pieces; begin < end; begin += turn) {
      const int64_t turn_end = std::min(begin + turn, end);
      for (const std::unique_ptr<ItemStep>& step : steps_) {
        const int64_t per_group = step->items() / items_;
        step->run_items(context, begin * per_group, turn_end * per_group);
      }
    }
  });
  return ok_status();
}

}  // namespace strata::cpu
