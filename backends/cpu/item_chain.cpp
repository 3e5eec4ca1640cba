#include "backends/cpu/item_chain.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace strata::cpu {
namespace {

// Items are taken in turns of at least this many operations, a microsecond's, beside which the
// calls of a turn don't show.
constexpr int64_t kTurnWork = 4096;
// Up to here a chain may lose items: handing it to a second thread gains less than a meeting costs.
constexpr int64_t kLittleWork = 2 * kMinPieceWork;

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

}  // namespace

ItemChain::ItemChain(std::unique_ptr<ItemStep> first, int threads)
    : threads_(threads), items_(first->items()), item_work_(first->item_work()) {
  steps_.push_back(std::move(first));
}

ItemChain::Grouping ItemChain::grouping_with(const ItemStep& step) const {
  const int64_t groups = std::gcd(items_, step.items());
  return {groups, items_ / groups * item_work_ + step.items() / groups * step.item_work()};
}

bool ItemChain::keeps_items(const ItemStep& step, const Grouping& joined) const {
  const auto [fewer, more] = std::minmax({items_, step.items()});
  if (joined.items < fewer || (joined.items == 1 && more > 1)) return false;
  const int64_t apart = std::max(piece_count(items_, item_work_, threads_),
                                 piece_count(step.items(), step.item_work(), threads_));
  return piece_count(joined.items, joined.item_work, threads_) >= apart;
}

bool ItemChain::admits(const ItemStep& step) const {
  if (items_ == 0 || step.items() == 0) return false;
  const Grouping joined = grouping_with(step);
  if (joined.items * joined.item_work > kLittleWork && !keeps_items(step, joined)) return false;
  return std::none_of(steps_.begin(), steps_.end(),
                      [&](const auto& earlier) { return disturb(*earlier, step, joined.items); });
}

bool ItemChain::join(std::unique_ptr<ItemStep>& step) {
  if (!admits(*step)) return false;
  const Grouping joined = grouping_with(*step);
  items_ = joined.items;
  item_work_ = joined.item_work;
  steps_.push_back(std::move(step));
  return true;
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
