#include "backends/cpu/rope_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/base/portable_math.h"

namespace strata::cpu {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Floats of one token's part of the table (RopeArgs::table).
int64_t token_floats(const RopeParams& params) {
  return params.style == RopeStyle::interleaved ? 2 * int64_t{params.n_rot} : params.n_rot;
}

// Index of the pair whose wave makes `rotations` turns over the original context.
// Source: YaRN (arXiv 2309.00071), section 3.2.
double yarn_pair(const RopeParams& params, double rotations) {
  const double turns = params.n_ctx_original / (rotations * 2 * kPi);
  return params.n_rot * portable_log(turns) / (2 * portable_log(params.freq_base));
}

// What a pair's angle per position is made of: base frequencies for extrapolation, and how much of
// that is mixed into the interpolated angle.
struct PairFrequency {
  double frequency = 0;
  double extrapolated = 0;  // share in [0, 1]
};

std::vector<PairFrequency> pair_frequencies(const RopeParams& params) {
  const int pairs = params.n_rot / 2;
  std::vector<PairFrequency> result(static_cast<size_t>(pairs));
  double low = 0;
  double high = 0;
  if (params.ext_factor != 0) {
    low = std::max(0.0, std::floor(yarn_pair(params, params.beta_fast)));
    high = std::min(params.n_rot - 1.0, std::ceil(yarn_pair(params, params.beta_slow)));
  }
  for (int i = 0; i < pairs; ++i) {
    PairFrequency& pair = result[static_cast<size_t>(i)];
    pair.frequency = portable_pow(params.freq_base, -2.0 * i / params.n_rot);
    if (params.ext_factor != 0) {
      const double along = (i - low) / std::max(0.001, high - low);
      pair.extrapolated = (1 - std::clamp(along, 0.0, 1.0)) * params.ext_factor;
    }
  }
  return result;
}

Access table_access(Access::Kind kind, const RopeParams& params, uint64_t offset) {
  return workspace_access(kind, offset,
                          static_cast<uint64_t>(token_floats(params)) * sizeof(float));
}

class RopeTableStep final : public ItemStep {
 public:
  RopeTableStep(const RopeTableKey& key, uint64_t offset)
      : ItemStep(key.positions->ne[0], int64_t{key.params.n_rot} * 64),
        params_(key.params),
        offset_(offset),
        positions_(reinterpret_cast<const int32_t*>(key.positions->data)),
        freq_factors_(key.freq_factors == nullptr
                          ? nullptr
                          : reinterpret_cast<const float*>(key.freq_factors->data)),
        frequencies_(pair_frequencies(params_)),
        magnitude_(params_.attn_factor) {
    // YaRN's softening of attention, section 3.4.
    if (params_.ext_factor != 0) magnitude_ *= 1 + 0.1 * portable_log(1.0 / params_.freq_scale);
    reads_all(*key.positions);
    if (key.freq_factors != nullptr) reads_all(*key.freq_factors);
    touches(table_access(Access::Kind::write, params_, offset));
  }

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    float* table = reinterpret_cast<float*>(context.workspace + offset_);
    for (int64_t token = begin; token < end; ++token) {
      fill(positions_[token], table + token * token_floats(params_));
    }
  }

 private:
  void fill(int32_t position, float* table) const {
    const int64_t pairs = params_.n_rot / 2;
    for (int64_t i = 0; i < pairs; ++i) {
      const PairFrequency& pair = frequencies_[static_cast<size_t>(i)];
      double angle = position * pair.frequency;
      if (freq_factors_ != nullptr) angle /= static_cast<double>(freq_factors_[i]);
      const double interpolated = angle * params_.freq_scale;
      angle = interpolated * (1 - pair.extrapolated) + angle * pair.extrapolated;
      const SinCos turn = portable_sincos(angle);
      const float cosine = static_cast<float>(turn.cos * magnitude_);
      const float sine = static_cast<float>(turn.sin * magnitude_);
      if (params_.style == RopeStyle::interleaved) {
        table[2 * i] = table[2 * i + 1] = cosine;
        table[params_.n_rot + 2 * i] = -sine;
        table[params_.n_rot + 2 * i + 1] = sine;
      } else {
        table[i] = cosine;
        table[pairs + i] = sine;
      }
    }
  }

  RopeParams params_;
  uint64_t offset_;
  const int32_t* positions_;
  const float* freq_factors_;
  std::vector<PairFrequency> frequencies_;
  double magnitude_;
};

class RopeStep final : public ItemStep {
 public:
  RopeStep(const Tensor& node, uint64_t table_offset)
      : ItemStep(node.ne[2], node.ne[0] * node.ne[1] * 2),
        params_(std::get<RopeParams>(node.params)),
        table_offset_(table_offset),
        head_dim_(node.ne[0]),
        heads_(node.ne[1]),
        x_(read_rows(*node.sources[0], node.ne)),
        y_(written_rows(node, node.ne)) {
    touches(table_access(Access::Kind::read, params_, table_offset));
  }

  void run_items(const RunContext& context, int64_t begin, int64_t end) const override {
    const float* table = reinterpret_cast<const float*>(context.workspace + table_offset_);
    const auto kernel = params_.style == RopeStyle::interleaved ? context.kernels.rope_interleaved
                                                                : context.kernels.rope_halves;
    for (int64_t token = begin; token < end; ++token) {
      RopeArgs args;
      args.head_dim = static_cast<int32_t>(head_dim_);
      args.n_rot = params_.n_rot;
      args.table = table + token * token_floats(params_);
      for (int64_t row = token * heads_; row < (token + 1) * heads_; ++row) {
        args.x = x_.floats(row);
        args.y = y_.floats(row);
        kernel(args);
      }
    }
  }

 private:
  RopeParams params_;
  uint64_t table_offset_;
  int64_t head_dim_;
  int64_t heads_;
  RowAddress x_;
  RowAddress y_;
};

}  // namespace

bool RopeTableKey::operator==(const RopeTableKey& other) const {
  const auto numbers = [](const RopeParams& p) {
    return std::array<float, 8>{p.freq_base,
                                p.freq_scale,
                                p.ext_factor,
                                p.attn_factor,
                                p.beta_fast,
                                p.beta_slow,
                                static_cast<float>(p.n_rot),
                                static_cast<float>(p.n_ctx_original)};
  };
  return positions == other.positions && freq_factors == other.freq_factors &&
         params.style == other.params.style && numbers(params) == numbers(other.params);
}

bool supports_rope(const Tensor& node) {
  return has_float_rows(node) && has_float_rows(*node.sources[0]) && node.ne[3] == 1;
}

RopeTableKey rope_table_key(const Tensor& node) {
  RopeTableKey key;
  key.positions = node.sources[1];
  key.freq_factors = node.sources.size() > 2 ? node.sources[2] : nullptr;
  key.params = std::get<RopeParams>(node.params);
  return key;
}

uint64_t rope_table_bytes(const RopeTableKey& key) {
  return static_cast<uint64_t>(token_floats(key.params) * key.positions->ne[0]) * sizeof(float);
}

std::unique_ptr<ItemStep> make_rope_table_step(const RopeTableKey& key, uint64_t offset) {
  return std::make_unique<RopeTableStep>(key, offset);
}

std::unique_ptr<ItemStep> make_rope_step(const Tensor& node, uint64_t table_offset) {
  return std::make_unique<RopeStep>(node, table_offset);
}

}  // namespace strata::cpu
