// Goal: every character is in one class, and a class's byte sequences spell exactly its characters.
#include "runtime/grammar/char_class.h"

#include <gtest/gtest.h>

#include <map>

#include "runtime/text/unicode.h"

namespace strata::grammar {
namespace {

// What the sequences spell, sequence by sequence.
std::vector<std::string> spelled(const ByteSequence& sequence) {
  std::vector<std::string> texts = {""};
  for (uint32_t i = 0; i < sequence.count; ++i) {
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      for (uint32_t byte = sequence.bytes[i].first; byte <= sequence.bytes[i].last; ++byte) {
        longer.push_back(text + static_cast<char>(byte));
      }
    }
    texts = std::move(longer);
  }
  return texts;
}

TEST(CharClass, SequencesSpellExactlyTheCharactersOfTheirClass) {
  std::map<ClassSet, size_t> expected;
  for (uint32_t code = 0x80; code <= kCodeMax; ++code) {
    if (code >= kSurrogateFirst && code <= kSurrogateLast) continue;
    const ClassSet set = class_of(code);
    ASSERT_EQ(set & (set - 1), 0U) << code;
    ASSERT_EQ(set & ~kWideClasses, 0U) << code;
    ++expected[set];
  }
  ASSERT_EQ(wide_classes().size(), expected.size());
  for (const WideClass& wide : wide_classes()) {
    size_t count = 0;
    for (const ByteSequence& sequence : wide.sequences) {
      for (const std::string& text : spelled(sequence)) {
        const DecodedCharacter character = decode_utf8(text, 0);
        ASSERT_TRUE(character.valid);
        ASSERT_EQ(character.length, text.size());
        ASSERT_EQ(class_of(character.code_point), wide.set) << uint32_t{character.code_point};
        ++count;
      }
    }
    EXPECT_EQ(count, expected[wide.set]);
  }
}

TEST(CharClass, TellsTheSignsOfAsciiApart) {
  EXPECT_EQ(class_of('a'), class_of('f'));
  EXPECT_NE(class_of('f'), class_of('g'));
  EXPECT_EQ(class_of(1), class_of(2));
  std::map<ClassSet, int> signs;
  for (const char sign : std::string_view("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \n\t\r\x7F")) {
    EXPECT_EQ(++signs[class_of(static_cast<uint32_t>(sign))], 1) << sign;
    EXPECT_NE(class_of(static_cast<uint32_t>(sign)) & kAsciiClasses, 0U);
  }
  EXPECT_EQ(class_of(kSurrogateFirst), kBrokenClass);
}

}  // namespace
}  // namespace strata::grammar
