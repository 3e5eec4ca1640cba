// The steps of the sampling chain, each a function over scores or candidates.
//
// Scores are logits as double, one per vocabulary id; -infinity marks a banned token. A candidate
// list is in ascending id order before and after every filter, so that sums over it do not depend
// on how a filter found its members. "Better" is always the higher score, then the lower id.
//
// Threads: any. No filter empties a list that was not empty.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/sampling/sampling_params.h"

namespace strata {

struct Candidate {
  int32_t id;
  double score;
  // e^((score - best score) / temperature): the probability but for the common factor.
  double weight;
};

void apply_logit_bias(std::span<double> scores, std::span<const std::pair<int32_t, float>> bias);

// `counts` is the caller's for its memory: grown to one number for each score, 0 before and after.
// Errors: INVALID_ARGUMENT for an id of the history outside the scores.
Status apply_penalties(std::span<double> scores, std::span<const int32_t> history,
                       const SamplingParams& params, std::vector<int32_t>& counts);

// The best id. Errors: FAILED_PRECONDITION if all are banned.
Result<int32_t> best_id(std::span<const double> scores);

// The k best ids that are not banned, weights unset. Requires: k >= 1.
void list_best(std::span<const double> scores, int32_t k, std::vector<Candidate>& candidates);

// The weights of listed candidates. Requires: candidates not empty, temperature > 0.
void set_weights(std::vector<Candidate>& candidates, double temperature);

// The weights of all ids, 0 for banned ones, and their sum. Requires: as above.
double compute_weights(std::span<const double> scores, double temperature,
                       std::vector<double>& weights);

// All ids with a weight of at least `least` and above 0.
void list_heavy(std::span<const double> scores, std::span<const double> weights, double least,
                std::vector<Candidate>& candidates);

double sum_of_weights(std::span<const Candidate> candidates);

// Keeps the fewest best ones whose weights sum to at least `wanted`; all if they do not reach it.
void keep_top_p(std::vector<Candidate>& candidates, double wanted);

// Keeps those whose weight is at least `ratio` of the largest, which is 1.
void keep_min_p(std::vector<Candidate>& candidates, double ratio);

// The id in whose part of the summed weights `u` of [0, 1) falls, ids ascending.
int32_t draw(std::span<const Candidate> candidates, double u);

}  // namespace strata
