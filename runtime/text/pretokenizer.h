// Splits a text into words before byte-level merges, by the regular expressions of a family.
//
// A pre-tokenizer is a sequence of patterns. Each is applied to the fragments of the one before:
// every match becomes a fragment, and so does what lies between two matches. Look-ahead sees its
// fragment only. Patterns run in PCRE2 with JIT, UTF and Unicode properties.
//
// Not here: normalisation (none of the supported families has one) and bytes that are no UTF-8,
// which callers replace first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace strata {

struct PretokenizerSpec {
  std::vector<std::string_view> names;     // values of tokenizer.ggml.pre
  std::vector<std::string_view> patterns;  // in the order of use
  bool ignores_merges = false;  // a word that is a token becomes it, whatever the merges say
  bool adds_bos = false;        // unless the file says otherwise
};

// All families (pretokenizer_data.cpp).
std::span<const PretokenizerSpec> pretokenizer_specs();
// Null for an unknown name.
const PretokenizerSpec* find_pretokenizer_spec(std::string_view name);

// Threads: immutable after create(); any thread.
class Pretokenizer {
 public:
  // Errors: UNIMPLEMENTED for a name that is in no family, with those that are.
  static Result<Pretokenizer> create(std::string_view name);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  const PretokenizerSpec& spec() const { return *spec_; }

  // Where each word of `text` ends, in bytes, ascending; the last is text.size(). Empty for an
  // empty text. Requires: well-formed UTF-8.
  std::vector<size_t> split(std::string_view text) const;

 private:
  struct Pattern;

  explicit Pretokenizer(const PretokenizerSpec* spec);

  const PretokenizerSpec* spec_;
  std::vector<std::unique_ptr<Pattern>> patterns_;
};

}  // namespace strata
