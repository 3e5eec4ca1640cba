// A cluster's id and epoch outlive the coordinator, two coordinators never share a folder, and a
// file that is not one of these is said so.
#include "coordinator/state_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace strata::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(StateFolder, KeepsIdAndEpochAndIsLocked) {
  const test::TempDir folder;
  const std::string path = folder.path() + "/a/b";
  std::string id;
  {
    const auto first = StateFolder::open(path);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    id = first.value()->cluster_id();
    EXPECT_EQ(id.size(), 32U);
    EXPECT_EQ(first.value()->epoch(), 0U);
    EXPECT_TRUE(first.value()->save_epoch(41).ok());
    EXPECT_TRUE(first.value()->pipeline().nodes.empty());
    EXPECT_TRUE(first.value()
                    ->save_pipeline({.model_digest = "sha256:7", .workers = 3, .nodes = {"a", "b"}})
                    .ok());
    const auto second = StateFolder::open(path);
    EXPECT_EQ(second.status().code(), StatusCode::already_exists);
    EXPECT_THAT(second.status().message(), HasSubstr(path));
  }
  const auto again = StateFolder::open(path);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again.value()->cluster_id(), id);
  EXPECT_EQ(again.value()->epoch(), 41U);
  EXPECT_EQ(again.value()->pipeline().model_digest, "sha256:7");
  EXPECT_EQ(again.value()->pipeline().workers, 3U);
  EXPECT_EQ(again.value()->pipeline().nodes, (std::vector<std::string>{"a", "b"}));
  const auto other = StateFolder::open(folder.path() + "/c");
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other.value()->cluster_id(), id);
}

TEST(StateFolder, RefusesWhatItHasNotWritten) {
  for (const char* text :
       {"", "{", "[]", R"({"cluster_id": 7, "epoch": 1})", R"({"cluster_id": "x", "epoch": 1})",
        R"({"cluster_id": "0123456789abcdef0123456789abcdef", "epoch": -1})",
        R"({"cluster_id": "0123456789abcdef0123456789abcdef"})"}) {
    const test::TempDir folder;
    folder.write("cluster.json", text);
    const auto opened = StateFolder::open(folder.path());
    EXPECT_EQ(opened.status().code(), StatusCode::data_loss) << text;
    EXPECT_THAT(opened.status().message(), HasSubstr("cluster.json"));
    EXPECT_THAT(opened.status().hint(), HasSubstr("delete it"));
  }
}

// An older version's file, and one that somebody has written to: worth a wait for all, no error.
TEST(StateFolder, DoesWithoutAPipelineThatIsNone) {
  for (const char* pipeline :
       {"", R"(, "pipeline": 7)", R"(, "pipeline": {})",
        R"(, "pipeline": {"model_digest": "x", "workers": -1, "nodes": []})",
        R"(, "pipeline": {"model_digest": "x", "workers": 1, "nodes": [1]})"}) {
    const test::TempDir folder;
    folder.write("cluster.json",
                 R"({"cluster_id": "0123456789abcdef0123456789abcdef", "epoch": 5)" +
                     std::string(pipeline) + "}");
    const auto opened = StateFolder::open(folder.path());
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    EXPECT_EQ(opened.value()->epoch(), 5U);
    EXPECT_TRUE(opened.value()->pipeline().nodes.empty()) << pipeline;
  }
}

TEST(StateFolder, SaysWhyAFolderCannotBeMade) {
  const test::TempDir folder;
  const std::string file = folder.write("file", "x");
  EXPECT_THAT(StateFolder::open(file + "/below").status().message(),
              HasSubstr("cannot make the state folder " + file));
}

}  // namespace
}  // namespace strata::coordinator
