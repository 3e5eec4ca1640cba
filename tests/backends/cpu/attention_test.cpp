// Writing to the block cache and attention over it.
//
// A scene holds several sequences whose blocks lie in any order in one cache that starts out full
// of NaN, and feeds their tokens in batches of any shape. The output of a token must have the same
// bits whatever the batch, the number of threads, the block ids and the vector path, and lie near a
// plain soft-max in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>

#include "runtime/base/digest.h"
#include "tests/backends/cpu/backend_support.h"

namespace strata::cpu {
namespace {

struct SceneShape {
  int64_t head_dim = 64;
  int64_t head_dim_v = 64;
  int64_t n_head = 6;
  int64_t n_head_kv = 2;
  DType kv = DType::f32;
  int32_t window = 0;
  float soft_cap = 0;
  bool sinks = false;
  std::vector<int32_t> lengths = {40};
  // 0: queries and keys with a deviation of 1; else each element is of size 50 to 200 times this.
  float large = 0;
};

struct Token {
  int32_t seq = 0;
  int32_t position = 0;
  auto operator<=>(const Token&) const = default;
};

using Outputs = std::map<Token, std::vector<float>>;

class Scene {
 public:
  explicit Scene(const SceneShape& shape, uint64_t block_seed = 1) : shape_(shape), memory_(5) {
    for (const int32_t length : shape.lengths) longest_ = std::max(longest_, length);
    const int64_t max_blocks = (longest_ + 15) / 16;
    const int64_t n_seqs = static_cast<int64_t>(shape.lengths.size());
    const int64_t n_blocks = max_blocks * n_seqs + 3;
    k_cache_ = memory_.leaf(shape.kv, {16 * shape.head_dim * shape.n_head_kv, n_blocks, 1, 1});
    v_cache_ = memory_.leaf(shape.kv, {16 * shape.head_dim_v * shape.n_head_kv, n_blocks, 1, 1});
    std::memset(k_cache_->data, 0xff, k_cache_->size_bytes());
    std::memset(v_cache_->data, 0xff, v_cache_->size_bytes());
    sinks_ = memory_.leaf(DType::f32, {shape.n_head, 1, 1, 1});
    k_ = memory_.leaf(DType::f32, {shape.head_dim, shape.n_head_kv, longest_ * n_seqs, 1});
    v_ = memory_.leaf(DType::f32, {shape.head_dim_v, shape.n_head_kv, longest_ * n_seqs, 1});
    q_ = memory_.leaf(DType::f32, {shape.head_dim, shape.n_head, longest_ * n_seqs, 1});
    if (shape.large > 0) {
      enlarge(q_, shape.large);
      enlarge(k_, shape.large);
    }

    std::vector<int32_t> ids(static_cast<size_t>(n_blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::mt19937_64 random(block_seed);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(static_cast<size_t>(max_blocks * n_seqs));
    block_table_ = memory_.ints(ids);
    block_table_->ne = {max_blocks, n_seqs, 1, 1};
    block_table_->nb = dense_strides(DType::i32, block_table_->ne).value();
  }

  const SceneShape& shape() const { return shape_; }
  int32_t* blocks() { return reinterpret_cast<int32_t*>(block_table_->data); }
  int64_t max_blocks() const { return block_table_->ne[0]; }

  // One graph over the tokens: writes them, then attends. seq -1 is a token that does not count.
  Status feed(Backend& backend, const std::vector<Token>& tokens, Outputs& outputs) {
    TestGraph test;
    std::vector<int32_t> cells;
    std::vector<int32_t> seqs;
    std::vector<int32_t> positions;
    for (const Token& token : tokens) {
      const bool counts = token.seq >= 0;
      seqs.push_back(token.seq);
      positions.push_back(token.position);
      cells.push_back(counts ? blocks()[token.seq * max_blocks() + token.position / 16] * 16 +
                                   token.position % 16
                             : -1);
    }
    Tensor* written = ops::kv_write(test.graph(), rows(test, k_, tokens), rows(test, v_, tokens),
                                    k_cache_, v_cache_, test.ints(cells));
    AttentionParams params;
    params.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    params.soft_cap = shape_.soft_cap;
    params.window = shape_.window;
    params.n_head_kv = static_cast<int32_t>(shape_.n_head_kv);
    params.head_dim_v = static_cast<int32_t>(shape_.head_dim_v);
    ops::AttentionSources sources;
    sources.q = rows(test, q_, tokens);
    sources.k_cache = written;
    sources.v_cache = v_cache_;
    sources.block_table = block_table_;
    sources.seq = test.ints(seqs);
    sources.positions = test.ints(positions);
    sources.sinks = shape_.sinks ? sinks_ : nullptr;
    Tensor* y = ops::attention(test.graph(), sources, params);
    test.place_nodes();
    for (const Tensor* node : test.graph().nodes()) {
      EXPECT_TRUE(backend.device().supports(*node)) << describe(*node);
    }
    TRY(test.run(backend));
    const size_t floats = static_cast<size_t>(y->ne[0] * y->ne[1]);
    for (size_t t = 0; t < tokens.size(); ++t) {
      const float* from = TestGraph::floats(y) + t * floats;
      outputs[tokens[t]] = std::vector<float>(from, from + floats);
    }
    return ok_status();
  }

  // Soft-max in double over the unrounded keys and values.
  std::vector<double> exact(const Token& token) const {
    std::vector<double> result;
    for (int64_t head = 0; head < shape_.n_head; ++head) {
      const int64_t head_kv = head / (shape_.n_head / shape_.n_head_kv);
      const int32_t from = shape_.window > 0 ? std::max(0, token.position + 1 - shape_.window) : 0;
      std::vector<double> scores;
      for (int32_t p = from; p <= token.position; ++p) {
        double score = 0;
        for (int64_t i = 0; i < shape_.head_dim; ++i) {
          score += double{at(q_, token.seq, token.position, head)[i]} *
                   double{at(k_, token.seq, p, head_kv)[i]};
        }
        score /= std::sqrt(static_cast<double>(shape_.head_dim));
        if (shape_.soft_cap > 0) score = shape_.soft_cap * std::tanh(score / shape_.soft_cap);
        scores.push_back(score);
      }
      // Less the largest, since large scores' exponentials are beyond a double.
      const double sink = shape_.sinks ? double{TestGraph::floats(sinks_)[head]} : scores.front();
      const double most = std::max(sink, *std::max_element(scores.begin(), scores.end()));
      double sum = shape_.sinks ? std::exp(sink - most) : 0;
      for (double& score : scores) score = std::exp(score - most);
      for (const double weight : scores) sum += weight;
      for (int64_t i = 0; i < shape_.head_dim_v; ++i) {
        double value = 0;
        for (size_t p = 0; p < scores.size(); ++p) {
          value += scores[p] / sum *
                   double{at(v_, token.seq, from + static_cast<int32_t>(p), head_kv)[i]};
        }
        result.push_back(value);
      }
    }
    return result;
  }

 private:
  // Sizes that a half holds exactly, so that rounding the cache changes nothing.
  static void enlarge(Tensor* tensor, float factor) {
    float* values = TestGraph::floats(tensor);
    const int64_t count = tensor->ne[0] * tensor->ne[1] * tensor->ne[2];
    for (int64_t i = 0; i < count; ++i) {
      const float size = 50 + 150 * std::min(1.0F, std::abs(values[i]) / 2);
      values[i] = std::copysign(std::round(size * 8) / 8 * factor, values[i]);
    }
  }
  const float* at(const Tensor* all, int32_t seq, int32_t position, int64_t head) const {
    return TestGraph::floats(all) + ((seq * longest_ + position) * all->ne[1] + head) * all->ne[0];
  }
  Tensor* rows(TestGraph& test, const Tensor* all, const std::vector<Token>& tokens) const {
    Tensor* some =
        test.leaf(DType::f32, {all->ne[0], all->ne[1], static_cast<int64_t>(tokens.size()), 1});
    const size_t floats = static_cast<size_t>(all->ne[0] * all->ne[1]);
    for (size_t t = 0; t < tokens.size(); ++t) {
      std::memcpy(TestGraph::floats(some) + t * floats,
                  at(all, std::max(tokens[t].seq, 0), tokens[t].position, 0),
                  floats * sizeof(float));
    }
    return some;
  }

  SceneShape shape_;
  TestGraph memory_;
  int32_t longest_ = 0;
  Tensor* k_cache_ = nullptr;
  Tensor* v_cache_ = nullptr;
  Tensor* sinks_ = nullptr;
  Tensor* k_ = nullptr;
  Tensor* v_ = nullptr;
  Tensor* q_ = nullptr;
  Tensor* block_table_ = nullptr;
};

std::vector<Token> all_tokens(const SceneShape& shape) {
  std::vector<Token> tokens;
  for (int32_t seq = 0; seq < static_cast<int32_t>(shape.lengths.size()); ++seq) {
    for (int32_t p = 0; p < shape.lengths[static_cast<size_t>(seq)]; ++p)
      tokens.push_back({seq, p});
  }
  return tokens;
}

// Feeds all tokens in batches of `batch`, in order, or with the sequences interleaved.
Outputs feed_all(Scene& scene, Backend& backend, size_t batch, bool interleave = false) {
  std::vector<Token> tokens = all_tokens(scene.shape());
  if (interleave) {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const Token& a, const Token& b) { return a.position < b.position; });
  }
  Outputs outputs;
  for (size_t begin = 0; begin < tokens.size(); begin += batch) {
    const size_t end = std::min(tokens.size(), begin + batch);
    const Status status = scene.feed(backend,
                                     {tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                      tokens.begin() + static_cast<std::ptrdiff_t>(end)},
                                     outputs);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  return outputs;
}

void expect_equal_bits(const Outputs& expected, const Outputs& got, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size());
  for (const auto& [token, values] : expected) {
    const std::vector<float>& others = got.at(token);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], others[i])
          << what << ": sequence " << token.seq << " position " << token.position << " at " << i;
    }
  }
}

void expect_near_exact(const Scene& scene, const Outputs& outputs, double tolerance) {
  for (const auto& [token, values] : outputs) {
    const std::vector<double> exact = scene.exact(token);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], exact[i], tolerance)
          << "sequence " << token.seq << " position " << token.position << " at " << i;
    }
  }
}

// Largest difference that rounding the cache may make; values have a deviation of 1.
double tolerance_of(DType kv) {
  switch (kv) {
    case DType::f16:
      return 4e-3;
    case DType::q8_0:
      return 5e-2;
    case DType::q4_0:
      return 0.9;
    default:
      return 3e-6;
  }
}

struct ShapeCase {
  const char* name;
  SceneShape shape;
};

class AttentionShape : public ::testing::TestWithParam<ShapeCase> {};

std::vector<ShapeCase> shape_cases() {
  std::vector<ShapeCase> cases = {
      {"gqa", {}},
      {"mha_48", {.head_dim = 48, .head_dim_v = 48, .n_head = 3, .n_head_kv = 3}},
      {"mqa_80", {.head_dim = 80, .head_dim_v = 80, .n_head = 8, .n_head_kv = 1}},
      {"odd_36", {.head_dim = 36, .head_dim_v = 20, .n_head = 2, .n_head_kv = 1}},
      {"tiny_8", {.head_dim = 8, .head_dim_v = 8, .n_head = 4, .n_head_kv = 2}},
      {"wide_256", {.head_dim = 256, .head_dim_v = 256, .n_head = 4, .n_head_kv = 1}},
      {"mla_576", {.head_dim = 576, .head_dim_v = 512, .n_head = 2, .n_head_kv = 1}},
      {"window", {.window = 21, .lengths = {150}}},
      {"window_1", {.window = 1}},
      {"cap_sinks", {.soft_cap = 5.0f, .sinks = true}},
      {"sequences", {.lengths = {33, 5, 50, 1}}},
      {"many_heads",
       {.head_dim = 32, .head_dim_v = 32, .n_head = 71, .n_head_kv = 1, .lengths = {20}}},
      {"long", {.head_dim = 32, .head_dim_v = 32, .n_head = 2, .n_head_kv = 1, .lengths = {590}}},
      {"long_window",
       {.head_dim = 32,
        .head_dim_v = 32,
        .n_head = 2,
        .n_head_kv = 1,
        .window = 530,
        .sinks = true,
        .lengths = {1050}}},
  };
  for (const DType kv : {DType::f16, DType::q8_0, DType::q4_0}) {
    constexpr const char* kNames[][3] = {{"f16", "f16_48", "f16_112"},
                                         {"q8_0", "q8_0_48", "q8_0_112"},
                                         {"q4_0", "q4_0_48", "q4_0_112"}};
    const auto& names = kNames[kv == DType::f16 ? 0 : kv == DType::q8_0 ? 1 : 2];
    cases.push_back({names[0], {.kv = kv, .lengths = {70}}});
    cases.push_back(
        {names[1], {.head_dim = 48, .head_dim_v = 80, .n_head = 4, .n_head_kv = 2, .kv = kv}});
    cases.push_back(
        {names[2], {.head_dim = 112, .head_dim_v = 36, .n_head = 4, .n_head_kv = 2, .kv = kv}});
  }
  // Few rows read these from the cache itself, and fetch what follows: tiles, tasks, segments.
  for (const DType kv : {DType::f16, DType::q8_0, DType::q4_0}) {
    constexpr const char* kNames[][4] = {
        {"f16_sequences", "f16_window", "f16_long", "f16_wide_1024"},
        {"q8_0_sequences", "q8_0_window", "q8_0_long", "q8_0_wide_1024"},
        {"q4_0_sequences", "q4_0_window", "q4_0_long", "q4_0_wide_1024"}};
    const auto& names = kNames[kv == DType::f16 ? 0 : kv == DType::q8_0 ? 1 : 2];
    cases.push_back({names[0], {.kv = kv, .lengths = {33, 5, 150, 1}}});
    cases.push_back({names[1], {.kv = kv, .window = 21, .lengths = {150}}});
    cases.push_back({names[2],
                     {.head_dim = 32,
                      .head_dim_v = 32,
                      .n_head = 2,
                      .n_head_kv = 1,
                      .kv = kv,
                      .lengths = {590}}});
    cases.push_back(
        {names[3], {.head_dim = 64, .head_dim_v = 1024, .n_head = 2, .n_head_kv = 1, .kv = kv}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionShape, ::testing::ValuesIn(shape_cases()),
                         [](const ::testing::TestParamInfo<ShapeCase>& tested) {
                           return std::string(tested.param.name);
                         });

TEST_P(AttentionShape, IsNearExactAndTheSameHoweverItIsRun) {
  const SceneShape& shape = GetParam().shape;
  const bool is_long = shape.lengths[0] > 200;
  CpuUnderTest scalar = make_cpu({}, 1);
  Scene scene(shape);
  const Outputs expected = feed_all(scene, *scalar.backend, is_long ? 64 : 7);
  expect_near_exact(scene, expected, tolerance_of(shape.kv));
  uint64_t block_seed = 2;
  for (const Isa isa : available_isas()) {
    if (isa.vnni) continue;
    for (const int threads : {1, 3}) {
      CpuUnderTest cpu = make_cpu(isa, threads);
      const std::string what = isa_name(isa) + ", threads " + std::to_string(threads);
      for (const size_t batch :
           is_long ? std::vector<size_t>{4, 512} : std::vector<size_t>{1, 40}) {
        if (is_long && isa.level == IsaLevel::scalar) continue;
        Scene other(shape, ++block_seed);
        expect_equal_bits(expected, feed_all(other, *cpu.backend, batch, threads == 3),
                          what + ", batch " + std::to_string(batch));
      }
    }
  }
}

TEST_P(AttentionShape, GivesTheBitsOfOtherMachines) {
  CpuUnderTest cpu = make_cpu(detect_isa(), 1);
  Scene scene(GetParam().shape);
  Sha256 sha;
  for (const auto& [token, values] : feed_all(scene, *cpu.backend, 64)) {
    sha.update(std::as_bytes(std::span(values)));
  }
  EXPECT_EQ(sha.finish(), golden_digests("cpu/attention_digests.txt")[GetParam().name])
      << GetParam().name;
}

// Queries and keys of size 50 to 200: scores of up to 320,000 leave half precision far behind (its
// largest number is 65,504), and F32 still tells neighbours apart. A score is one chain of
// head_dim roundings, each of 2^-24 of a sum of about 125,000; that bounds the difference by
// e^(2 * 0.1) - 1 times the largest value.
TEST(Attention, LargeQueriesAndKeysKeepTheirPrecision) {
  for (const int64_t head_dim : {64, 128}) {
    for (const DType kv : {DType::f32, DType::f16}) {
      const SceneShape shape{
          .head_dim = head_dim, .head_dim_v = 64, .kv = kv, .lengths = {70}, .large = 1};
      Scene scene(shape);
      CpuUnderTest cpu = make_cpu(detect_isa(), 2);
      const Outputs outputs = feed_all(scene, *cpu.backend, 9);
      for (const auto& [token, values] : outputs) {
        for (const float value : values) ASSERT_TRUE(std::isfinite(value));
      }
      expect_near_exact(scene, outputs, 0.22 * 4);
    }
    // A tenth of the size each: scores to 3,200, where F32 is exact to 10^-3.
    const SceneShape shape{.head_dim = head_dim, .head_dim_v = 64, .lengths = {70}, .large = 0.125};
    Scene scene(shape);
    CpuUnderTest cpu = make_cpu(detect_isa(), 2);
    expect_near_exact(scene, feed_all(scene, *cpu.backend, 64), 4e-3);
  }
}

// Offsets beyond 2^32 bytes: the blocks in use are the last ones of a cache of more than 4 GiB, of
// which only these pages are ever touched.
TEST(Attention, ReachesBlocksBehindFourGigabytes) {
  constexpr int64_t kHeadDim = 64;
  constexpr int64_t kBlocks = (int64_t{5} << 30) / (16 * kHeadDim * 4);
  Tensor caches[2];
  std::unique_ptr<Buffer> buffers[2];
  for (int i = 0; i < 2; ++i) {
    caches[i].ne = {16 * kHeadDim, kBlocks, 1, 1};
    caches[i].nb = dense_strides(DType::f32, caches[i].ne).value();
    auto buffer = host_buffer_type().allocate(caches[i].size_bytes());
    if (!buffer.ok()) GTEST_SKIP() << buffer.status().to_string();
    buffers[i] = std::move(buffer).value();
    place(caches[i], *buffers[i], 0);
  }
  TestGraph test;
  Tensor* k = test.leaf(DType::f32, {kHeadDim, 1, 20, 1});
  Tensor* v = test.leaf(DType::f32, {kHeadDim, 1, 20, 1});
  std::vector<int32_t> cells;
  std::vector<int32_t> positions;
  const int32_t blocks[2] = {static_cast<int32_t>(kBlocks) - 1, static_cast<int32_t>(kBlocks) - 7};
  for (int32_t p = 0; p < 20; ++p) {
    positions.push_back(p);
    cells.push_back(blocks[p / 16] * 16 + p % 16);
  }
  ops::AttentionSources sources;
  sources.q = test.leaf(DType::f32, {kHeadDim, 1, 20, 1}, 0.0f);
  sources.k_cache = ops::kv_write(test.graph(), k, v, &caches[0], &caches[1], test.ints(cells));
  sources.v_cache = &caches[1];
  sources.block_table = test.ints({blocks[0], blocks[1]});
  sources.seq = test.ints(std::vector<int32_t>(20, 0));
  sources.positions = test.ints(positions);
  AttentionParams params;
  params.head_dim_v = kHeadDim;
  const Tensor* y = ops::attention(test.graph(), sources, params);
  test.place_nodes();
  const Status status = test.run(*make_cpu(detect_isa(), 1).backend);
  ASSERT_TRUE(status.ok()) << status.to_string();
  // Queries of zeros: every position weighs the same.
  double mean = 0;
  for (int p = 0; p < 20; ++p) mean += TestGraph::floats(v)[p * kHeadDim + 5] / 20.0;
  EXPECT_NEAR(TestGraph::floats(y)[19 * kHeadDim + 5], mean, 1e-5);
}

TEST(Attention, EveryPromptLengthEqualsTokenByToken) {
  SceneShape shape{.head_dim = 32, .head_dim_v = 32, .n_head = 4, .n_head_kv = 2};
  CpuUnderTest cpu = make_cpu(detect_isa(), 2);
  Scene one_by_one(shape);
  const Outputs expected = feed_all(one_by_one, *cpu.backend, 1);
  for (size_t n = 1; n <= 40; ++n) {
    Scene scene(shape, n);
    expect_equal_bits(expected, feed_all(scene, *cpu.backend, n), "chunks of " + std::to_string(n));
  }
}

TEST(Attention, SkippedTokensGiveZerosAndWriteNothing) {
  CpuUnderTest cpu = make_cpu(detect_isa(), 2);
  SceneShape shape;
  Scene plain(shape);
  const Outputs expected = feed_all(plain, *cpu.backend, 40);
  Scene scene(shape);
  std::vector<Token> tokens = all_tokens(shape);
  tokens.insert(tokens.begin() + 11, Token{-1, 3});
  tokens.push_back(Token{-1, 0});
  Outputs outputs;
  ASSERT_TRUE(scene.feed(*cpu.backend, tokens, outputs).ok());
  for (const Token& skipped : {Token{-1, 3}, Token{-1, 0}}) {
    for (const float value : outputs.at(skipped)) EXPECT_EQ(value, 0.0f);
    outputs.erase(skipped);
  }
  expect_equal_bits(expected, outputs, "with skipped tokens");
}

TEST(Attention, BlocksBeforeTheWindowAreNotNeeded) {
  CpuUnderTest cpu = make_cpu(detect_isa(), 2);
  SceneShape shape{.window = 20, .lengths = {100}};
  Scene scene(shape);
  const Outputs expected = feed_all(scene, *cpu.backend, 100);
  Outputs outputs;
  // Position 99 sees 80 to 99: blocks 5 and 6.
  for (int i = 0; i < 5; ++i) scene.blocks()[i] = -1;
  ASSERT_TRUE(scene.feed(*cpu.backend, {{0, 99}}, outputs).ok());
  EXPECT_EQ(expected.at({0, 99}), outputs.at({0, 99}));
  scene.blocks()[5] = -1;
  const Status status = scene.feed(*cpu.backend, {{0, 99}}, outputs);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ(status.message(),
            "attention: block 5 of sequence row 0 is -1, the cache has 10 blocks");
}

// What lies between the windows of two tokens of one batch is read by neither.
TEST(Attention, TokensFarApartReadTheirOwnWindowsOnly) {
  CpuUnderTest cpu = make_cpu(detect_isa(), 2);
  for (const DType kv : {DType::f32, DType::f16, DType::q8_0}) {
    const SceneShape shape{.kv = kv, .window = 20, .lengths = {100}};
    Scene scene(shape);
    const Outputs expected = feed_all(scene, *cpu.backend, 100);
    Outputs outputs;
    // Position 40 sees 21 to 40, blocks 1 and 2; position 99 sees 80 to 99, blocks 5 and 6.
    for (const int i : {0, 3, 4}) scene.blocks()[i] = -1;
    const Status status = scene.feed(*cpu.backend, {{0, 40}, {0, 99}}, outputs);
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const Token& token : {Token{0, 40}, Token{0, 99}}) {
      EXPECT_EQ(expected.at(token), outputs.at(token)) << dtype_name(kv) << token.position;
    }
  }
}

TEST(Attention, RefusesCacheTypesThatItCannotRead) {
  CpuUnderTest cpu = make_cpu({}, 1);
  TestGraph test;
  Tensor* k = test.leaf(DType::f32, {24, 2, 1, 1});
  Tensor* cache = test.leaf(DType::q8_0, {16 * 24 * 2, 2, 1, 1});
  const Tensor* node = ops::kv_write(test.graph(), k, k, cache, cache, test.ints({0}));
  EXPECT_FALSE(cpu.device->supports(*node));
}

}  // namespace
}  // namespace strata::cpu
