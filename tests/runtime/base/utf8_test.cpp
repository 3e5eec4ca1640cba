// Goal: only well-formed UTF-8 counts as text, and nothing unprintable reaches a terminal.
#include "runtime/base/utf8.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Utf8, AcceptsWellFormedText) {
  for (const char* good : {"", "abc", "h\xC3\xA9", "\xE2\x96\x81", "\xEF\xBF\xBF",
                           "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  EXPECT_TRUE(is_utf8(std::string_view("a\0b", 3)));
}

TEST(Utf8, RefusesBrokenText) {
  for (const char* bad :
       {"\x80", "\xFF\xFE", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "a\xC3", "\xE2\x96",
        "\xF0\x9F\x98", "\xC3(", "\xE2(\x81"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(Utf8, ShowsControlAndBrokenBytesAsEscapes) {
  EXPECT_EQ(printable("h\xC3\xA9"), "h\xC3\xA9");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable("\x1b[2J\x7F"), "\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\xFF\xC3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xC2\x9B"
                      "1m"),
            "\\xc2\\x9b1m");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
}

TEST(Utf8, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 4), "abcd...");
  EXPECT_EQ(printable("abc\xC3\xA9", 4), "abc...");
  EXPECT_EQ(printable("abcd", 4), "abcd");
}

TEST(Utf8, FindsControlCharacters) {
  EXPECT_TRUE(has_control_character("a\x1b"));
  EXPECT_TRUE(has_control_character(std::string_view("\0", 1)));
  EXPECT_FALSE(has_control_character("blk.0.attn_q.weight \xC3\xA9"));
}

}  // namespace
}  // namespace strata
