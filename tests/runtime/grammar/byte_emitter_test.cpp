// Goal: a character is taken in each of its spellings, and in no other bytes. Method: all code
// points of a few sets against an encoder written here.
#include "runtime/grammar/byte_emitter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/grammar/matcher.h"
#include "runtime/grammar/regex.h"
#include "runtime/text/unicode.h"

namespace strata::grammar {
namespace {

std::shared_ptr<const Pda> automaton_of(std::string_view pattern, Spelling spelling) {
  Budget budget;
  const CharDfa dfa = regex_dfa(pattern, false, budget).value();
  auto pda = std::make_shared<Pda>();
  const std::vector<StateId> states = emit(dfa, spelling, 0, *pda);
  for (size_t s = 0; s < states.size(); ++s)
    pda->states[states[s]].accepts = dfa.states[s].label != 0;
  pda->rules.push_back(states[0]);
  EXPECT_TRUE(finish(*pda, {"x"}).ok());
  return pda;
}

std::string utf8(uint32_t code) {
  std::string text;
  append_utf8(code, text);
  return text;
}

std::string escaped(uint32_t code) {
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  return fmt::format("\\u{:04X}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                     0xDC00 + ((code - 0x10000) & 0x3FF));
}

TEST(ByteEmitter, EverySpellingOfEachCharacter) {
  // Ranges that end inside blocks of 64 and of 1024, on both sides of each length.
  const std::string_view pattern =
      "[\\u0041-\\u00a5\\u07f0-\\u0805\\ud7f0-\\ue00f\\ufff0-\\u{10403}\\u{10FFFE}-\\u{10FFFF}]";
  Budget budget;
  const CharDfa dfa = regex_dfa(pattern, false, budget).value();
  const auto space = std::make_shared<StateSpace>(automaton_of(pattern, Spelling::json));
  const auto takes = [&](const std::string& text) {
    Matcher matcher(space);
    return matcher.accept(text) && matcher.can_end();
  };
  for (uint32_t code = 0; code <= kCodeMax; code += code < 0x11000 ? 1 : 0x3FF) {
    if (code >= kSurrogateFirst && code <= kSurrogateLast) {
      EXPECT_FALSE(takes(fmt::format("\\u{:04x}", code)));
      continue;
    }
    const bool inside = dfa.match(utf8(code)) != 0;
    const bool bare = code >= 0x20 && code != '"' && code != '\\';
    EXPECT_EQ(takes(utf8(code)), inside && bare) << code;
    EXPECT_EQ(takes(escaped(code)), inside) << code;
  }
}

TEST(ByteEmitter, ShortSpellingEscapesOnlyWhatItMust) {
  Matcher all(automaton_of("[\\s\\S]*", Spelling::json_short));
  EXPECT_TRUE(all.accept("a\\n\\\"\\\\\\u0001é"));
  EXPECT_FALSE(all.accept("\\/"));
  EXPECT_FALSE(all.accept("\\u0061"));
  EXPECT_FALSE(all.accept("\\u000a"));
  EXPECT_FALSE(all.accept("\n"));
}

TEST(ByteEmitter, PlainTextIsUtf8Only) {
  Matcher all(automaton_of("[\\s\\S]*", Spelling::plain));
  EXPECT_TRUE(all.accept("a\n\"\\é🙂\xF4\x8F\xBF\xBF"));
  for (const char* bad :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xFF"}) {
    EXPECT_FALSE(all.accept(bad));
  }
}

}  // namespace
}  // namespace strata::grammar
