// Goal: a mapping of a range shows the file's bytes, and goes on when the file is cut off under it.
#include "runtime/base/guarded_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace strata {
namespace {

constexpr size_t kPage = 4096;

class GuardedMappingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(install_mapping_guard().ok());
    std::ofstream out(path_, std::ios::binary);
    for (size_t i = 0; i < 64 * kPage; ++i) out.put(static_cast<char>(i / kPage + 1));
    out.close();
    fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd_, 0);
  }
  void TearDown() override {
    close(fd_);
    std::filesystem::remove(path_);
  }
  std::unique_ptr<GuardedMapping> map(uint64_t offset, uint64_t size) {
    auto mapping = GuardedMapping::map(fd_, offset, size, path_);
    EXPECT_TRUE(mapping.ok()) << mapping.status().to_string();
    return std::move(mapping).value();
  }
  static int sum(const GuardedMapping& mapping) {
    int sum = 0;
    for (const std::byte value : mapping.bytes()) sum += static_cast<int>(value);
    return sum;
  }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("strata-guarded-" + std::to_string(getpid())))
          .string();
  int fd_ = -1;
};

TEST_F(GuardedMappingTest, ShowsTheRangeAndTakesWholePages) {
  const auto mapping = map(10 * kPage + 100, kPage);
  ASSERT_EQ(mapping->bytes().size(), kPage);
  EXPECT_EQ(mapping->bytes().front(), std::byte{11});
  EXPECT_EQ(mapping->bytes().back(), std::byte{12});
  EXPECT_EQ(mapping->mapped_bytes(), 2 * kPage);
  EXPECT_FALSE(mapping->has_faulted());
}

TEST_F(GuardedMappingTest, ReadsZerosWhereTheFileWasCutOff) {
  const auto cut = map(4 * kPage, 20 * kPage);
  const auto before = map(0, kPage);
  std::filesystem::resize_file(path_, 6 * kPage);
  EXPECT_EQ(sum(*cut), static_cast<int>(kPage) * (5 + 6));
  EXPECT_TRUE(cut->has_faulted());
  EXPECT_EQ(sum(*before), static_cast<int>(kPage));
  EXPECT_FALSE(before->has_faulted());
}

TEST_F(GuardedMappingTest, SeveralThreadsMayFindOutAtOnce) {
  const auto mapping = map(0, 64 * kPage);
  std::filesystem::resize_file(path_, 0);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_EQ(sum(*mapping), 0); });
  threads.clear();
  EXPECT_TRUE(mapping->has_faulted());
}

TEST_F(GuardedMappingTest, APlaceInTheTableIsUsedAgain) {
  for (size_t i = 0; i < 2 * kGuardedMappingsMax; ++i) map(0, 1);
  std::vector<std::unique_ptr<GuardedMapping>> all;
  for (size_t i = 0; i < kGuardedMappingsMax; ++i) all.push_back(map(0, 1));
  EXPECT_EQ(GuardedMapping::map(fd_, 0, 1, path_).status().code(), StatusCode::resource_exhausted);
  std::filesystem::resize_file(path_, 0);
  EXPECT_EQ(sum(*all.back()), 0);
  EXPECT_TRUE(all.back()->has_faulted());
  EXPECT_FALSE(all.front()->has_faulted());
}

TEST_F(GuardedMappingTest, AFaultElsewhereEndsTheProcessAsEver) {
  EXPECT_EXIT(
      {
        void* foreign = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, fd_, 0);
        std::filesystem::resize_file(path_, 0);
        _exit(*static_cast<volatile char*>(foreign));
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace strata
