#include "coordinator/blame.h"

#include <algorithm>

namespace strata::coordinator {
namespace {

constexpr Duration kFirstPause = std::chrono::seconds(10);
constexpr Duration kLongestPause = std::chrono::minutes(5);
constexpr uint32_t kPointsPerDoubling = 8;
constexpr uint32_t kDoublingsMax = 5;  // 10 s << 5 is over the longest pause
constexpr uint32_t kPointsMax = Blame::kLeftOut + kPointsPerDoubling * kDoublingsMax;
constexpr int kImprovementFactor = 5;

}  // namespace

void Blame::charge(const std::string& node, uint32_t points, const std::string& why,
                   TimePoint now) {
  Record& record = records_[node];
  record.points = std::min(record.points + points, kPointsMax);
  record.why = why;
  record.at = now;
  if (records_.size() <= kNodesMax) return;
  const auto oldest =
      std::min_element(records_.begin(), records_.end(),
                       [](const auto& a, const auto& b) { return a.second.at < b.second.at; });
  records_.erase(oldest);
}

void Blame::fade(const std::string& node) {
  const auto found = records_.find(node);
  if (found == records_.end()) return;
  if (found->second.points <= kLeftOut) {
    records_.erase(found);
  } else {
    found->second.points -= kLeftOut;
  }
}

const Blame::Record* Blame::find(const std::string& node) const {
  const auto found = records_.find(node);
  return found == records_.end() ? nullptr : &found->second;
}

Duration Blame::pause(const Record& record) {
  if (record.points < kLeftOut) return Duration::zero();
  const uint32_t doublings = (record.points - kLeftOut) / kPointsPerDoubling;
  return std::min<Duration>(kFirstPause * (1U << std::min(doublings, kDoublingsMax)),
                            kLongestPause);
}

uint32_t Blame::points(const std::string& node) const {
  const Record* record = find(node);
  return record == nullptr ? 0 : record->points;
}

std::optional<TimePoint> Blame::left_out_until(const std::string& node, TimePoint now) const {
  const Record* record = find(node);
  if (record == nullptr || now >= record->at + pause(*record)) return std::nullopt;
  return record->at + pause(*record);
}

std::optional<TimePoint> Blame::not_for_improvement_until(const std::string& node,
                                                          TimePoint now) const {
  const Record* record = find(node);
  if (record == nullptr) return std::nullopt;
  const TimePoint until = record->at + pause(*record) * kImprovementFactor;
  return now >= until ? std::nullopt : std::optional(until);
}

std::string Blame::why(const std::string& node) const {
  const Record* record = find(node);
  return record == nullptr ? std::string() : record->why;
}

}  // namespace strata::coordinator
