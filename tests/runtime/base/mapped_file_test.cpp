// Goal: a file is mapped whole, its ranges can be given back and read again, and a change under the
// mapping is told apart from no change.
#include "runtime/base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

namespace strata {
namespace {

using ::testing::HasSubstr;

// A file of `size` bytes, byte i being i modulo 251; removed at the end of the test.
class MappedFileTest : public ::testing::Test {
 protected:
  void write(size_t size) {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    for (size_t i = 0; i < size; ++i) out.put(static_cast<char>(i % 251));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("strata-mapped-" + std::to_string(getpid())))
          .string();
};

TEST_F(MappedFileTest, MapsAndReadsTheSameBytes) {
  write(3 * 4096 + 17);
  const auto file = MappedFile::open(path_).value();
  ASSERT_EQ(file->size(), 3 * 4096 + 17u);
  EXPECT_EQ(file->bytes()[4097], static_cast<std::byte>(4097 % 251));
  std::vector<std::byte> out(1000);
  ASSERT_TRUE(file->read(5000, out).ok());
  EXPECT_EQ(out[999], static_cast<std::byte>(5999 % 251));
  file->unmap();
  EXPECT_EQ(file->bytes()[4097], static_cast<std::byte>(4097 % 251));
}

TEST_F(MappedFileTest, RefusesARangeOutsideTheFile) {
  write(100);
  const auto file = MappedFile::open(path_).value();
  std::vector<std::byte> out(50);
  EXPECT_TRUE(file->read(50, out).ok());
  EXPECT_EQ(file->read(51, out).code(), StatusCode::out_of_range);
  EXPECT_EQ(file->read(~uint64_t{0}, out).code(), StatusCode::out_of_range);
  EXPECT_EQ(file->map(50, 51).status().code(), StatusCode::out_of_range);
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  write(0);
  EXPECT_TRUE(MappedFile::open(path_).value()->bytes().empty());
}

TEST_F(MappedFileTest, TellsWhenTheFileChanged) {
  write(10000);
  const auto file = MappedFile::open(path_).value();
  EXPECT_TRUE(file->check_unchanged().ok());
  EXPECT_EQ(file->identity(), MappedFile::open(path_).value()->identity());
  std::filesystem::resize_file(path_, 10);
  EXPECT_EQ(file->check_unchanged().code(), StatusCode::failed_precondition);
  std::vector<std::byte> out(100);
  EXPECT_THAT(file->read(500, out).message(), HasSubstr("model changed on disk"));
  EXPECT_NE(file->identity(), MappedFile::open(path_).value()->identity());
}

TEST_F(MappedFileTest, SaysWhyItCannotOpen) {
  EXPECT_EQ(MappedFile::open(path_ + ".none").status().code(), StatusCode::not_found);
  EXPECT_EQ(MappedFile::open("/").status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(MappedFile::open("/dev/null").status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace strata
