// Goal: only well-formed UTF-8 decodes, and repaired text keeps what was well-formed.
#include "runtime/text/unicode.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/base/utf8.h"
#include "runtime/text/byte_level.h"

namespace strata {
namespace {

TEST(Unicode, EveryCodePointComesBack) {
  for (char32_t code_point = 0; code_point < 0x110000; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    std::string text;
    append_utf8(code_point, text);
    const DecodedCharacter character = decode_utf8(text, 0);
    ASSERT_TRUE(character.valid);
    ASSERT_EQ(character.code_point, code_point);
    ASSERT_EQ(character.length, text.size());
    ASSERT_EQ(announced_utf8_length(text[0]), text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_TRUE(may_become_utf8(std::string_view(text).substr(0, cut)));
    }
    ASSERT_FALSE(may_become_utf8(text));
  }
}

TEST(Unicode, IllFormedBytesAreNotCharacters) {
  for (const std::string text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xC3", "\xE2\x82",
        "\xF0\x9F\x98", "\xC3(", "\xFF"}) {
    EXPECT_FALSE(decode_utf8(text, 0).valid);
    EXPECT_EQ(decode_utf8(text, 0).length, 1U);
  }
  for (const std::string text : {"\x80", "\xC0", "\xE0\x80", "\xED\xA0", "\xF4\x90", "\xC3(", ""}) {
    EXPECT_FALSE(may_become_utf8(text));
  }
}

TEST(Unicode, RepairedTextIsUtf8) {
  EXPECT_EQ(replace_invalid_utf8("a\xFF\xE2\x82z\u20AC"), "a\uFFFD\uFFFD\uFFFDz\u20AC");
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::string repaired = replace_invalid_utf8(bytes);
    ASSERT_TRUE(is_utf8(repaired));
    ASSERT_EQ(repaired == bytes, is_utf8(bytes));
  }
}

TEST(Unicode, PropertiesAreThoseOfTheStandard) {
  EXPECT_EQ(base_of(U'é'), U'e');
  EXPECT_EQ(base_of(U'x'), U'x');
  EXPECT_EQ(lower_of(U'É'), U'é');
  EXPECT_TRUE(is_unicode_space(0x3000) && is_unicode_space(0x85) && is_unicode_space('\t'));
  EXPECT_FALSE(is_unicode_space(0x200B) || is_unicode_space(0x180E) || is_unicode_space('x'));
  EXPECT_TRUE(is_unicode_punctuation('!') && is_unicode_punctuation(0x3002));
  EXPECT_TRUE(is_unicode_symbol('$') && !is_unicode_symbol('a'));
  EXPECT_TRUE(is_unicode_control(0x7F) && is_unicode_control(0x200D) && !is_unicode_control(' '));
  EXPECT_TRUE(is_unicode_mark(0x301) && is_unicode_mark(0x93F) && !is_unicode_mark('a'));
  EXPECT_TRUE(is_cjk_ideograph(0x6F22) && !is_cjk_ideograph(0x3042));
}

TEST(ByteLevel, EveryByteHasItsCharacter) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(byte_level_read(byte_level_spell(bytes)), bytes);
  EXPECT_EQ(byte_level_spell(" \n\xC3\xA9"), "ĠĊÃ©");
  EXPECT_EQ(byte_level_read("\xFF漢"), "\xFF漢") << "what spells no byte stays";
}

}  // namespace
}  // namespace strata
