// What an answer must look like, as the client wrote it. Travels with the sampling settings to the
// tail of the pipeline, which compiles it (runtime/grammar) and masks the tokens that do not fit.
//
// Threads: plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {

inline constexpr size_t kGrammarBytesMax = size_t{512} << 10;

struct GrammarSpec {
  enum class Kind : uint8_t {
    none = 0,
    json_schema = 1,
    gbnf = 2,
    regex = 3,
    composed = 4,  // runtime/grammar/composed.h: an answer with tool calls
  };
  Kind kind = Kind::none;
  std::string text;
  // The answer is the beginning of a text, so that a vocabulary which puts a space before texts
  // takes it off the first token again.
  bool drops_first_space = false;

  // Whether both are the same grammar, wherever their answers begin.
  bool is_same_grammar(const GrammarSpec& other) const {
    return kind == other.kind && text == other.text;
  }
  bool operator==(const GrammarSpec&) const = default;
};

// "JSON schema", "grammar", "regular expression", "composed grammar"; "none".
const char* grammar_kind_name(GrammarSpec::Kind kind);

}  // namespace strata
