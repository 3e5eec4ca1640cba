// Hyper-parameters: what each architecture makes of its keys, and a clear refusal of bad ones.
//
// Method: the smallest whole model with one key changed; error texts are compared where a person
// would read them: key, found and wanted.
#include "runtime/model/hparams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<Hparams> read(const test::GgufWriter& writer) {
  const test::TempDir folder;
  const auto file = GgufFile::open(folder.write("m.gguf", writer.build()));
  if (!file.ok()) return file.status();
  return read_hparams(**file);
}

template <typename Change>
std::string error_of(Change change) {
  test::GgufWriter writer = test::make_base_model();
  change(writer);
  const auto hparams = read(writer);
  return hparams.ok() ? "no error" : hparams.status().to_string();
}

std::string error_of_u32(const char* key, uint32_t value) {
  return error_of([&](test::GgufWriter& w) { w.set_u32(key, value); });
}

std::string error_of_f32(const char* key, float value) {
  return error_of([&](test::GgufWriter& w) { w.set_f32(key, value); });
}

TEST(Hparams, AreReadFromAWholeModel) {
  const auto hparams = read(test::make_base_model());
  ASSERT_TRUE(hparams.ok()) << hparams.status().to_string();
  EXPECT_EQ(hparams->n_layer, 2);
  EXPECT_EQ(hparams->n_embd, 32);
  EXPECT_EQ(hparams->n_vocab, 288);
  EXPECT_EQ(hparams->n_head_kv, 2);
  EXPECT_EQ(hparams->head_dim_k, 8);
  EXPECT_EQ(hparams->k_block_elements(), 16 * 8 * 2);
  EXPECT_FLOAT_EQ(hparams->attention_scale, 1 / std::sqrt(8.0F));
  EXPECT_EQ(hparams->rope.style, RopeStyle::interleaved);
  ASSERT_EQ(hparams->kv_groups.size(), 1U);
  EXPECT_EQ(hparams->kv_groups[0].layers, (std::vector<int32_t>{0, 1}));
}

TEST(Hparams, RefuseAnUnknownArchitectureWithTheKnownOnes) {
  const std::string error =
      error_of([](test::GgufWriter& w) { w.set_string("general.architecture", "mamba"); });
  EXPECT_THAT(error, AllOf(HasSubstr("'mamba'"), HasSubstr("llama, gemma3, qwen3, gpt2")));
}

TEST(Hparams, RefuseBadCounts) {
  for (const uint32_t count : {0U, 513U, 0xffffffffU}) {
    EXPECT_THAT(error_of_u32("llama.block_count", count),
                AllOf(HasSubstr("'llama.block_count' is " + std::to_string(count)),
                      HasSubstr("must be 1 to 512"), HasSubstr("at offset")));
  }
  EXPECT_THAT(error_of([](test::GgufWriter& w) { w.set_string("llama.block_count", "2"); }),
              AllOf(HasSubstr("'llama.block_count' is a string"), HasSubstr("integer")));
  EXPECT_THAT(error_of([](test::GgufWriter& w) { w.erase("llama.block_count"); }),
              HasSubstr("llama.block_count"));
  EXPECT_THAT(error_of_u32("llama.embedding_length", 0), HasSubstr("must be 1 to"));
  EXPECT_THAT(error_of_u32("llama.context_length", 0x80000000U), HasSubstr("must be 1 to"));
  EXPECT_THAT(error_of([](test::GgufWriter& w) { w.erase("llama.feed_forward_length"); }),
              HasSubstr("llama.feed_forward_length"));
}

TEST(Hparams, RefuseHeadsThatDoNotDivide) {
  EXPECT_THAT(error_of_u32("llama.attention.head_count_kv", 3),
              AllOf(HasSubstr("is 3"), HasSubstr("must divide attention.head_count, 4")));
  EXPECT_THAT(error_of_u32("llama.attention.head_count", 6),
              AllOf(HasSubstr("is 6"), HasSubstr("must divide embedding_length, 32")));
  EXPECT_THAT(error_of_u32("llama.attention.head_count", 0), HasSubstr("must be 1 to"));
  EXPECT_THAT(error_of([](test::GgufWriter& w) { w.set_bool("llama.attention.causal", false); }),
              HasSubstr("attention.causal"));
}

TEST(Hparams, TakeOneNumberForEachLayerIfTheyAreEqual) {
  test::GgufWriter writer = test::make_base_model();
  writer.set_ints("llama.attention.head_count_kv", {2, 2});
  ASSERT_TRUE(read(writer).ok());
  writer.set_ints("llama.attention.head_count_kv", {2, 4});
  EXPECT_THAT(read(writer).status().message(), HasSubstr("differs between layers (2 and 4)"));
  writer.set_ints("llama.attention.head_count_kv", {2});
  EXPECT_THAT(read(writer).status().message(), HasSubstr("one for each of 2 layers"));
}

TEST(Hparams, RefuseBadRope) {
  EXPECT_THAT(error_of_u32("llama.rope.dimension_count", 7),
              AllOf(HasSubstr("7 rope dimensions"), HasSubstr("even")));
  EXPECT_THAT(error_of_u32("llama.rope.dimension_count", 10), HasSubstr("must be 2 to 8"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float base : {0.0F, -1.0F, nan, inf}) {
    EXPECT_THAT(error_of_f32("llama.rope.freq_base", base), HasSubstr("finite number above 0"));
  }
  for (const float eps : {0.0F, -1.0F, nan}) {
    EXPECT_THAT(error_of_f32("llama.attention.layer_norm_rms_epsilon", eps),
                AllOf(HasSubstr("layer_norm_rms_epsilon"), HasSubstr("finite number above 0")));
  }
  EXPECT_THAT(
      error_of([](test::GgufWriter& w) { w.set_string("llama.rope.scaling.type", "longrope"); }),
      AllOf(HasSubstr("'longrope'"), HasSubstr("none, linear and yarn")));
  EXPECT_THAT(error_of_f32("llama.rope.scaling.factor", 0), HasSubstr("finite number above 0"));
}

TEST(Hparams, ReadRopeScaling) {
  test::GgufWriter writer = test::make_base_model();
  writer.set_f32("llama.rope.scaling.factor", 4);  // linear without a type
  EXPECT_EQ(read(writer)->rope.freq_scale, 0.25F);
  EXPECT_EQ(read(writer)->rope.ext_factor, 0);
  writer.set_string("llama.rope.scaling.type", "yarn");
  writer.set_u32("llama.rope.scaling.original_context_length", 16);
  EXPECT_EQ(read(writer)->rope.ext_factor, 1);
  EXPECT_EQ(read(writer)->rope.n_ctx_original, 16);
}

TEST(Hparams, RefuseExpertsThatCannotBeChosen) {
  EXPECT_THAT(error_of_u32("llama.expert_count", 4), HasSubstr("llama.expert_used_count"));
  const auto with_used = [](uint32_t used) {
    return error_of([used](test::GgufWriter& w) {
      w.set_u32("llama.expert_count", 4);
      w.set_u32("llama.expert_used_count", used);
    });
  };
  EXPECT_THAT(with_used(5), HasSubstr("must be 1 to 4"));
  EXPECT_THAT(with_used(0), HasSubstr("must be 1 to 4"));
}

TEST(Hparams, GroupGemmaLayersByWindow) {
  const auto file = GgufFile::open(std::string(STRATA_TEST_DATA) + "/models/gemma3.gguf");
  ASSERT_TRUE(file.ok());
  const auto hparams = read_hparams(**file);
  ASSERT_TRUE(hparams.ok()) << hparams.status().to_string();
  ASSERT_EQ(hparams->kv_groups.size(), 2U);
  EXPECT_EQ(hparams->kv_groups[0].window, 24);
  EXPECT_EQ(hparams->kv_groups[0].layers, (std::vector<int32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(hparams->kv_groups[1].window, 0);
  EXPECT_EQ(hparams->layer_groups[5], 1);
  EXPECT_EQ(hparams->rope_of(0).freq_base, 10000);
  EXPECT_EQ(hparams->rope_of(5).freq_base, 1000000);
  EXPECT_EQ(hparams->embedding_scale, 8);
}

}  // namespace
}  // namespace strata
