// Goal: a mask is exactly the tokens that the matcher takes. Method: random walks through grammars
// with vocabularies of random pieces, every token tried at every step; what the walks write is
// judged by the automaton for checking.
#include "runtime/grammar/mask_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "runtime/grammar/constraint.h"
#include "tests/runtime/grammar/grammar_support.h"

namespace strata::grammar {
namespace {

// All single bytes, the texts and pieces of them, and some that fit nowhere.
std::shared_ptr<const Vocabulary> vocabulary_of(const std::vector<std::string>& texts,
                                                std::mt19937& random) {
  std::set<std::string> pieces = {"\":",  "\",\"", "\"}",  "}}",    "]}",   "\"]", ", ",
                                  "\": ", "{\"",   "[[",   "\n  ",  "    ", "é",   "🙂",
                                  "true", "null",  "\\\"", "\\u00", "00",   "-1"};
  for (const std::string& text : texts) {
    if (!text.empty()) pieces.insert(text);
    for (int i = 0; i < 20 && !text.empty(); ++i) {
      pieces.insert(text.substr(random() % text.size(), 1 + random() % 12));
    }
  }
  std::vector<std::string> all = {"", "<unused>", "", "\xFF\xFE", "\xF0\x9F"};
  for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
  all.insert(all.end(), pieces.begin(), pieces.end());
  all.push_back("\"");  // two tokens of one text
  return std::make_shared<Vocabulary>(std::move(all));
}

void expect_exact(const TokenMask& mask, const Matcher& matcher, const Vocabulary& vocabulary,
                  const std::string& context) {
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    Matcher copy = matcher;
    const bool fits = !vocabulary.text(id).empty() && copy.accept(vocabulary.text(id));
    // Of a name that came twice a mask knows nothing.
    const bool twice = !fits && copy.failure().message().find("already has") != std::string::npos;
    if (twice) continue;
    ASSERT_EQ(mask.allows(id), fits) << context << " token '" << vocabulary.text(id) << "'";
  }
}

// The text, or nothing if it did not end in time.
std::optional<std::string> walk(MaskCache& masks, std::mt19937& random, int steps,
                                const std::string& context) {
  Matcher matcher(masks.space());
  std::string text;
  const Vocabulary& vocabulary = *masks.vocabulary();
  for (int step = 0; step < steps; ++step) {
    const TokenMask& mask = masks.mask(matcher.situation());
    expect_exact(mask, matcher, vocabulary, context + "\nafter '" + text + "'");
    if (testing::Test::HasFatalFailure()) return std::nullopt;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (mask.allows(id)) allowed.push_back(id);
    }
    if (matcher.can_end() && (allowed.empty() || random() % 3 == 0)) return text;
    if (allowed.empty()) {
      ADD_FAILURE() << "a dead end after '" << text << "'\n" << context;
      return std::nullopt;
    }
    // Long pieces lead further.
    int32_t id = allowed[random() % allowed.size()];
    for (int i = 0; i < 3; ++i) {
      const int32_t other = allowed[random() % allowed.size()];
      if (vocabulary.text(other).size() > vocabulary.text(id).size()) id = other;
    }
    if (!matcher.accept(vocabulary.text(id))) continue;  // a name twice
    text += vocabulary.text(id);
  }
  return std::nullopt;
}

TEST(MaskCache, IsExactOnRandomSchemas) {
  std::ifstream file(STRATA_GRAMMAR_VECTORS "/schema_vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  std::mt19937 random(7);
  size_t ended = 0;
  for (size_t i = 0; i < vectors.size(); i += 5) {
    const std::string schema = vectors[i]["schema"].dump();
    std::vector<std::string> texts = vectors[i]["accepted"].get<std::vector<std::string>>();
    const auto vocabulary = vocabulary_of(texts, random);
    MaskCache masks(std::make_shared<StateSpace>(test::schema(schema, Strictness::generation)),
                    vocabulary);
    const auto checking = test::schema(schema);
    for (int round = 0; round < 2; ++round) {
      const auto text = walk(masks, random, 30, schema);
      if (HasFatalFailure()) return;
      if (!text) continue;
      ++ended;
      EXPECT_TRUE(test::accepts(checking, *text)) << *text << "\n" << schema;
    }
  }
  EXPECT_GT(ended, 40U);
}

TEST(MaskCache, IsExactOnRecursiveGrammars) {
  std::mt19937 random(11);
  for (const char* text :
       {"root ::= expr\nexpr ::= term (ws [-+*/] ws term)*\n"
        "term ::= num | \"(\" ws expr ws \")\"\nnum ::= \"-\"? [0-9]+\nws ::= [ \\t]*",
        "root ::= \"a\" root \"b\" | \"a\" root \"bb\" | \"\"",
        "root ::= \"{\" root? \"}\" | \"[\" root* \"]\""}) {
    const auto vocabulary = vocabulary_of({"((1+2)*-3)", "aaabbbb", "{[{}]}[[]]"}, random);
    MaskCache masks(std::make_shared<StateSpace>(test::gbnf(text)), vocabulary);
    for (int round = 0; round < 8; ++round) {
      (void)walk(masks, random, 25, text);
      if (HasFatalFailure()) return;
    }
  }
}

// Counters far from their limits share masks; near them, each count has its own.
TEST(MaskCache, IsExactAtTheLimitsOfCounters) {
  std::mt19937 random(3);
  const auto vocabulary = vocabulary_of({"aaaaaaaaaaaaaaaa", "\"\",\"\",\"\"", "1,1,1,1"}, random);
  for (const char* schema : {R"({"type":"string","minLength":25,"maxLength":60})",
                             R"({"type":"array","items":{"const":1},"minItems":20,"maxItems":45})",
                             R"({"type":"string","minLength":40})"}) {
    MaskCache masks(std::make_shared<StateSpace>(test::schema(schema, Strictness::generation)),
                    vocabulary);
    Matcher matcher(masks.space());
    const bool is_text = std::string_view(schema).find("string") != std::string_view::npos;
    std::string text = is_text ? "\"" : "[1";
    ASSERT_TRUE(matcher.accept(text));
    for (int count = 1; count < 70; ++count) {
      expect_exact(masks.mask(matcher.situation()), matcher, *vocabulary, schema + text);
      if (HasFatalFailure()) return;
      const std::string next = is_text ? "a" : ",1";
      if (!matcher.accept(next)) break;
      text += next;
    }
  }
}

// Whole and cut characters of every length and class, in pieces of up to eight.
std::vector<std::string> texts_of_all_classes(std::mt19937& random) {
  const std::vector<std::string> letters = {
      "a",  "e", "z", "Q", "7",  " ",  "-",  ".",      "/", "_",      "<",    "\"",   "\\",
      "\n", "é", "ж", "م", "あ", "今", "한", "\u0301", "—", "\u2028", "🙂", "\x7F", "\x01"};
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) {
    std::string text;
    const size_t few = 1 + random() % letters.size();  // some pieces of a few letters only
    for (size_t count = 1 + random() % 8; count > 0; --count) text += letters[random() % few];
    // Cut within a character now and then.
    if (random() % 4 == 0) text.resize(std::max<size_t>(text.size() - 1, 1));
    if (random() % 8 == 0) text.erase(0, 1);
    texts.push_back(std::move(text));
  }
  return texts;
}

// Where runs of characters are free, tokens are taken by their classes and lengths.
TEST(MaskCache, IsExactWhereRunsAreFree) {
  std::mt19937 random(17);
  std::vector<std::shared_ptr<const Pda>> grammars;
  for (const char* schema :
       {R"({"type":"string","maxLength":5})", R"({"type":"string","minLength":3,"maxLength":9})",
        R"({"type":"string","minLength":7})", R"({"pattern":"^.{1,6}$","type":"string"})",
        R"({"pattern":"^[a-z0-9_-]{2,9}$","type":"string"})",
        R"({"pattern":"^\\p{L}+(?: \\p{L}+){0,3}$","type":"string"})",
        R"({"pattern":"^.*[aeiou].{3}$","type":"string"})",
        R"({"pattern":"^[^<]*<[^>]{1,4}>$","type":"string"})",
        R"({"type":"array","items":{"type":"string","maxLength":3},"maxItems":3})",
        R"({"type":"object","additionalProperties":{"type":"string"},"maxProperties":2})",
        R"({"type":"object","properties":{"az":{"type":"string"},"a ":{"const":1}},
            "required":["az"],"maxProperties":2})",
        R"({"type":"object","patternProperties":{"^a[a-z]{0,4}$":{"type":"integer"}},
            "additionalProperties":false})"}) {
    grammars.push_back(test::schema(schema, Strictness::generation));
    grammars.push_back(test::schema(schema, Strictness::checking));
  }
  for (const char* text :
       {"root ::= word (\" \" word)* \".\"\nword ::= [a-zA-Z]{1,6}", "root ::= [^<]* \"<\" .{3}",
        "root ::= item*\nitem ::= word | word \" \" word\nword ::= [a-z] word | [a-z]",
        "root ::= line+\nline ::= \"- \"? [^\\n]+ \"\\n\"", "root ::= ([a-z]{2} | [0-9a-f]{3})*",
        "root ::= short long\nshort ::= [a-z]{0,4}\nlong ::= [a-z ]{3,7}",
        "root ::= (a | b | c){12} \".\"\na ::= [a-z]+\nb ::= [a-z] [a-z0-9]*\nc ::= [a-z ]+",
        "root ::= [\\u0080-\\U0010FFFF]{0,3} [a-z]*", "root ::= .{0,4}"}) {
    grammars.push_back(test::gbnf(text));
  }
  for (size_t i = 0; i < grammars.size(); ++i) {
    for (int round = 0; round < 2; ++round) {
      const auto vocabulary = vocabulary_of(texts_of_all_classes(random), random);
      MaskCache masks(std::make_shared<StateSpace>(grammars[i]), vocabulary);
      for (int repeat = 0; repeat < 3; ++repeat) {
        (void)walk(masks, random, 20, fmt::format("grammar {} round {}", i, round));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// What lies at the end of the longest token is not known to go on.
TEST(MaskCache, IsExactWhereRunsAreLongerThanAllTokens) {
  std::mt19937 random(23);
  for (const size_t longest : {1, 2, 20}) {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    for (size_t size = 2; size <= longest; ++size) texts.emplace_back(size, 'a');
    const auto vocabulary = std::make_shared<Vocabulary>(texts);
    for (const char* text : {"root ::= \"aaaa_b\" [a-z]{3} \"a\"", "root ::= [a]{30}",
                             "root ::= [a-z]{25} [0-9]{25} [a]*"}) {
      for (int round = 0; round < 10; ++round) {
        MaskCache masks(std::make_shared<StateSpace>(test::gbnf(text)), vocabulary);
        (void)walk(masks, random, 60, fmt::format("{} longest {}", text, longest));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Each rule asks for an 'a' at its place: after every token another set of them is left. That is
// refused with a word instead of worked on for long.
TEST(MaskCache, GivesUpOnWhatTakesTooMuchWork) {
  std::string rules = "root ::= r3";
  for (int i = 4; i < 900; ++i) rules += fmt::format(" | r{}", i);
  for (int i = 3; i < 900; ++i) {
    rules += fmt::format("\nr{} ::= [an]{{{}}} \"a\" [an]* \"!\"", i, i % 15);
  }
  std::vector<std::string> texts = {"a", "n", "!"};
  constexpr uint32_t kLetters = 15;
  for (uint32_t bits = 0; bits < 1U << kLetters; ++bits) {
    std::string text;
    for (uint32_t i = 0; i < kLetters; ++i) text += ((bits >> i) & 1) != 0 ? 'a' : 'n';
    texts.push_back(std::move(text));
  }
  GrammarCache cache(std::make_shared<Vocabulary>(std::move(texts)));
  Constraint answer = cache.start({.kind = GrammarSpec::Kind::gbnf, .text = rules}).value();
  const std::clock_t begin = std::clock();
  EXPECT_EQ(answer.mask({}).count(), 0U);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5);
  EXPECT_EQ(answer.failure().code(), StatusCode::resource_exhausted);
  EXPECT_NE(answer.failure().message().find("too much work"), std::string::npos);
}

GrammarSpec spec_of(GrammarSpec::Kind kind, std::string text) {
  return {.kind = kind, .text = std::move(text)};
}

// A name is never begun, nor asked for by a comma, that could only be one that came before.
TEST(Constraint, NamesThatCameBeforeLeadNowhere) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 128; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"\", \"", ", \"", "\":", "x1", "\"x", "\"a\"", "true", "{\""}) {
    texts.emplace_back(text);
  }
  GrammarCache cache(std::make_shared<Vocabulary>(texts));
  int ended = 0;
  for (const char* schema :
       {R"({"type":"object","patternProperties":{"^x[0-3]$":{"type":"boolean"}},
            "additionalProperties":false,"minProperties":2})",
        R"({"type":"object","propertyNames":{"enum":["a","b"]},
            "additionalProperties":{"type":"boolean"},"minProperties":2})",
        R"({"type":"object","propertyNames":{"enum":["a","b","ab"]},
            "additionalProperties":{"type":"null"}})",
        R"({"properties":{"a":{"const":1}},"propertyNames":{"pattern":"^[ab]$"},"type":"object",
            "additionalProperties":{"const":2}})"}) {
    const auto checking = test::schema(schema);
    for (uint32_t seed = 0; seed < 40; ++seed) {
      std::mt19937 random(seed);
      Constraint answer = cache.start(spec_of(GrammarSpec::Kind::json_schema, schema)).value();
      std::string text;
      for (int step = 0; step < 300; ++step) {
        TokenMask mask = answer.mask({});
        bool accepted = false;
        while (!accepted && mask.count() > 0) {
          std::vector<int32_t> allowed;
          for (int32_t id = 0; id < mask.size(); ++id) {
            if (mask.allows(id)) allowed.push_back(id);
          }
          const int32_t id = allowed[random() % allowed.size()];
          accepted = answer.accept(id);
          if (accepted) text += texts[static_cast<size_t>(id)];
          mask.forbid(id);
        }
        if (!accepted) {
          EXPECT_TRUE(answer.can_end()) << "a dead end after " << text << "\n" << schema;
          break;
        }
      }
      if (!answer.can_end()) continue;  // white space without end
      ++ended;
      EXPECT_TRUE(test::accepts(checking, text)) << text << "\n" << schema;
    }
  }
  EXPECT_GT(ended, 40);
}

TEST(Constraint, EndsExactlyWhereTheGrammarDoes) {
  const auto vocabulary =
      std::make_shared<Vocabulary>(std::vector<std::string>{"", "yes", "no", "y", "es", "x", ""});
  GrammarCache cache(vocabulary);
  const std::vector<int32_t> ends = {0};
  Constraint answer =
      cache.start(spec_of(GrammarSpec::Kind::gbnf, "root ::= \"yes\" | \"no\"")).value();
  EXPECT_FALSE(answer.mask(ends).allows(0));
  EXPECT_TRUE(answer.mask(ends).allows(3));
  EXPECT_FALSE(answer.mask(ends).allows(5));
  EXPECT_FALSE(answer.mask(ends).allows(6)) << "a token without a text";
  EXPECT_FALSE(answer.accept(5));
  EXPECT_FALSE(answer.accept(6));
  EXPECT_FALSE(answer.accept(99));
  ASSERT_TRUE(answer.accept(3));
  EXPECT_EQ(answer.forced_tokens(ends, 10), std::vector<int32_t>({4}));
  ASSERT_TRUE(answer.accept(4));
  EXPECT_EQ(answer.mask(ends).count(), 1U);
  EXPECT_TRUE(answer.mask(ends).allows(0));
  EXPECT_EQ(answer.mask({}).count(), 0U) << "nothing may follow, and nothing may end it";
}

TEST(Constraint, IsRebuiltFromItsTokens) {
  std::mt19937 random(5);
  const std::string document = R"({"name":"abc","n":[1,2,3]})";
  const auto vocabulary = vocabulary_of({document}, random);
  const GrammarSpec spec =
      spec_of(GrammarSpec::Kind::json_schema, R"({"type":"object","additionalProperties":true})");
  GrammarCache cache(vocabulary);
  GrammarCache other(vocabulary);
  Constraint answer = cache.start(spec).value();
  std::vector<int32_t> tokens;
  for (const char c : document) {
    for (int32_t id = 0; id < vocabulary->size(); ++id) {
      if (vocabulary->text(id) == std::string(1, c)) {
        ASSERT_TRUE(answer.accept(id));
        tokens.push_back(id);
        break;
      }
    }
    Constraint again = other.start(spec).value();
    ASSERT_TRUE(again.replay(tokens).ok());
    const std::span<const uint64_t> left = answer.mask({}).words();
    const std::span<const uint64_t> right = again.mask({}).words();
    EXPECT_TRUE(std::equal(left.begin(), left.end(), right.begin(), right.end()));
  }
  EXPECT_TRUE(answer.can_end());
  tokens.push_back(0);
  EXPECT_FALSE(other.start(spec)->replay(tokens).ok());
}

TEST(Constraint, ASpaceThatIsTakenOffIsNotOffered) {
  const auto vocabulary = std::make_shared<Vocabulary>(std::vector<std::string>{" a", "a", " "});
  GrammarCache cache(vocabulary);
  GrammarSpec spec = spec_of(GrammarSpec::Kind::regex, "( ?a)+");
  EXPECT_TRUE(cache.start(spec)->mask({}).allows(0));
  spec.drops_first_space = true;
  Constraint answer = cache.start(spec).value();
  EXPECT_FALSE(answer.mask({}).allows(0));
  EXPECT_FALSE(answer.mask({}).allows(2));
  ASSERT_TRUE(answer.accept(1));
  EXPECT_TRUE(answer.mask({}).allows(0));
}

TEST(Constraint, BadGrammarsAreErrorsAndTheCacheGoesOn) {
  GrammarCache cache(std::make_shared<Vocabulary>(std::vector<std::string>{"a"}), 2);
  EXPECT_FALSE(cache.start(spec_of(GrammarSpec::Kind::gbnf, "rout::=")).ok());
  EXPECT_FALSE(cache.start(spec_of(GrammarSpec::Kind::none, "")).ok());
  for (const char* text : {"a", "aa", "aaa", "a"}) {
    EXPECT_TRUE(cache.start(spec_of(GrammarSpec::Kind::regex, text)).ok());
  }
}

}  // namespace
}  // namespace strata::grammar
