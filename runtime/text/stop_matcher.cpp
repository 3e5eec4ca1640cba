#include "runtime/text/stop_matcher.h"

#include <fmt/format.h>

#include <utility>

namespace strata {

Result<StopMatcher> StopMatcher::create(std::span<const std::string> stops) {
  StopMatcher matcher;
  size_t bytes = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) return invalid_argument(fmt::format("stop string {} is empty", i));
    bytes += stops[i].size();
    if (bytes > kBytesMax) {
      return invalid_argument(
          fmt::format("the stop strings have more than {} bytes together", kBytesMax));
    }
    int32_t node = 0;
    for (const char byte : stops[i]) {
      int32_t next = matcher.child(node, byte);
      if (next < 0) {
        next = static_cast<int32_t>(matcher.nodes_.size());
        const int32_t depth = matcher.nodes_[node].depth + 1;
        matcher.nodes_.emplace_back().depth = depth;
        matcher.nodes_[node].next.emplace_back(byte, next);
      }
      node = next;
    }
    Node& end = matcher.nodes_[node];
    if (end.stop < 0) {
      end.stop = static_cast<int32_t>(i);
      end.stop_bytes = end.depth;
    }
  }
  matcher.link_failures();
  return matcher;
}

int32_t StopMatcher::child(int32_t node, char byte) const {
  for (const auto& [label, next] : nodes_[node].next) {
    if (label == byte) return next;
  }
  return -1;
}

int32_t StopMatcher::advance(int32_t node, char byte) const {
  while (true) {
    const int32_t next = child(node, byte);
    if (next >= 0) return next;
    if (node == 0) return 0;
    node = nodes_[node].failure;
  }
}

// Breadth first, so that the failures of shorter prefixes are there already.
void StopMatcher::link_failures() {
  std::vector<int32_t> queue{0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t node = queue[i];
    for (const auto& [byte, next] : nodes_[node].next) {
      queue.push_back(next);
      Node& target = nodes_[next];
      target.failure = node == 0 ? 0 : advance(nodes_[node].failure, byte);
      const Node& suffix = nodes_[target.failure];
      if (target.stop < 0) {
        target.stop = suffix.stop;
        target.stop_bytes = suffix.stop_bytes;
      }
    }
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  for (const char byte : text) {
    held_ += byte;
    state_ = advance(state_, byte);
    const Node& node = nodes_[state_];
    if (node.stop < 0) continue;
    stop_index_ = node.stop;
    held_.resize(held_.size() - static_cast<size_t>(node.stop_bytes));
    return std::exchange(held_, {});
  }
  const size_t hold = static_cast<size_t>(nodes_[state_].depth);
  std::string certain = held_.substr(0, held_.size() - hold);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopMatcher::flush() {
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace strata
