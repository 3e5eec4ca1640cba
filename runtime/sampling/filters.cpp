#include "runtime/sampling/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/portable_math.h"

namespace strata {
namespace {

constexpr double kBanned = -std::numeric_limits<double>::infinity();
// The documented meaning of "ban" in the public APIs.
constexpr float kBanBias = -100.0F;

bool better(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

bool lower_id(const Candidate& a, const Candidate& b) { return a.id < b.id; }

}  // namespace

void apply_logit_bias(std::span<double> scores, std::span<const std::pair<int32_t, float>> bias) {
  for (const auto& [id, value] : bias) {
    double& score = scores[static_cast<size_t>(id)];
    score = value <= kBanBias ? kBanned : score + static_cast<double>(value);
  }
}

Status apply_penalties(std::span<double> scores, std::span<const int32_t> history,
                       const SamplingParams& params, std::vector<int32_t>& counts) {
  if (!looks_back(params) || params.penalty_last_n == 0) return ok_status();
  if (params.penalty_last_n > 0) {
    history = history.last(std::min(history.size(), static_cast<size_t>(params.penalty_last_n)));
  }
  for (const int32_t id : history) {
    if (id >= 0 && static_cast<size_t>(id) < scores.size()) continue;
    return invalid_argument(
        fmt::format("token id {} of the sequence is outside 0 to {}", id, scores.size() - 1));
  }
  counts.resize(std::max(counts.size(), scores.size()));
  for (const int32_t id : history) ++counts[static_cast<size_t>(id)];
  const double repeat = static_cast<double>(params.repetition_penalty);
  for (const int32_t id : history) {
    // 0 once the id has had its turn.
    const int32_t count = std::exchange(counts[static_cast<size_t>(id)], 0);
    double& score = scores[static_cast<size_t>(id)];
    if (count == 0 || score == kBanned) continue;
    score = score > 0.0 ? score / repeat : score * repeat;
    score -= static_cast<double>(params.presence_penalty) +
             static_cast<double>(count) * static_cast<double>(params.frequency_penalty);
  }
  return ok_status();
}

Result<int32_t> best_id(std::span<const double> scores) {
  double best = kBanned;
  int32_t id = -1;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > best) {
      best = scores[i];
      id = static_cast<int32_t>(i);
    }
  }
  if (id < 0) {
    return failed_precondition("no token is left to choose: logit_bias bans every one",
                               "ban fewer tokens");
  }
  return id;
}

void list_best(std::span<const double> scores, int32_t k, std::vector<Candidate>& candidates) {
  candidates.clear();
  // A heap whose first element is the worst: one pass, and few of the ids ever enter it.
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] == kBanned) continue;
    const Candidate candidate{static_cast<int32_t>(i), scores[i], 0.0};
    if (candidates.size() < static_cast<size_t>(k)) {
      candidates.push_back(candidate);
    } else if (better(candidate, candidates.front())) {
      std::pop_heap(candidates.begin(), candidates.end(), better);
      candidates.back() = candidate;
    } else {
      continue;
    }
    std::push_heap(candidates.begin(), candidates.end(), better);
  }
  std::sort(candidates.begin(), candidates.end(), lower_id);
}

void set_weights(std::vector<Candidate>& candidates, double temperature) {
  double best = kBanned;
  for (const Candidate& candidate : candidates) best = std::max(best, candidate.score);
  for (Candidate& candidate : candidates) {
    candidate.weight = portable_exp((candidate.score - best) / temperature);
  }
}

double compute_weights(std::span<const double> scores, double temperature,
                       std::vector<double>& weights) {
  const double best = *std::max_element(scores.begin(), scores.end());
  weights.resize(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) weights[i] = (scores[i] - best) / temperature;
  portable_exp_of_nonpositive(weights);
  double sum = 0.0;
  for (const double weight : weights) sum += weight;
  return sum;
}

void list_heavy(std::span<const double> scores, std::span<const double> weights, double least,
                std::vector<Candidate>& candidates) {
  candidates.clear();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] < least || weights[i] == 0.0) continue;
    candidates.push_back({static_cast<int32_t>(i), scores[i], weights[i]});
  }
}

double sum_of_weights(std::span<const Candidate> candidates) {
  double sum = 0.0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

void keep_top_p(std::vector<Candidate>& candidates, double wanted) {
  // Few tokens hold most of the mass: sort a growing prefix instead of the vocabulary.
  size_t sorted = 0;
  size_t kept = 0;
  double sum = 0.0;
  for (size_t next = 64; kept < candidates.size(); next = next * 8) {
    const size_t end = std::min(next, candidates.size());
    const auto from = candidates.begin() + static_cast<ptrdiff_t>(sorted);
    const auto to = candidates.begin() + static_cast<ptrdiff_t>(end);
    std::partial_sort(from, to, candidates.end(), better);
    sorted = end;
    while (kept < sorted && (kept == 0 || sum < wanted)) sum += candidates[kept++].weight;
    if (kept < sorted || sum >= wanted) break;
  }
  candidates.resize(kept);
  std::sort(candidates.begin(), candidates.end(), lower_id);
}

void keep_min_p(std::vector<Candidate>& candidates, double ratio) {
  std::erase_if(candidates, [ratio](const Candidate& c) { return c.weight < ratio; });
}

int32_t draw(std::span<const Candidate> candidates, double u) {
  const double target = u * sum_of_weights(candidates);
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.weight;
    if (sum > target) return candidate.id;
  }
  // u < 1, so the sum passes the target unless rounding ate the last step.
  return candidates.back().id;
}

}  // namespace strata
