// Sets of code points, as sorted ranges: what a character class of a grammar matches.
//
// A code point is a Unicode scalar value: surrogates are in no set, since no UTF-8 text holds one.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace strata::grammar {

inline constexpr uint32_t kCodeMax = 0x10FFFF;
inline constexpr uint32_t kSurrogateFirst = 0xD800;
inline constexpr uint32_t kSurrogateLast = 0xDFFF;

// Inclusive on both ends.
struct CodeRange {
  uint32_t first = 0;
  uint32_t last = 0;
  bool operator==(const CodeRange&) const = default;
};

class CodeSet {
 public:
  CodeSet() = default;
  CodeSet(std::initializer_list<CodeRange> ranges);
  // In any order, also overlapping.
  explicit CodeSet(std::vector<CodeRange> ranges);
  static const CodeSet& all();
  static CodeSet of(uint32_t code) { return CodeSet({{code, code}}); }

  CodeSet complement() const;

  bool contains(uint32_t code) const;
  bool empty() const { return ranges_.empty(); }
  // Disjoint, not adjacent, ascending.
  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool operator==(const CodeSet&) const = default;

 private:
  void normalise();
  std::vector<CodeRange> ranges_;
};

// ECMA-262's \d, \w, \s and '.' (all but line ends).
const CodeSet& digit_codes();
const CodeSet& word_codes();
const CodeSet& space_codes();
const CodeSet& line_codes();

// The code points of a Unicode general category, one or two letters such as "L" or "Lu"; nullptr
// for another name. All categories are looked up once in a process, and kept.
const CodeSet* category_codes(std::string_view name);

}  // namespace strata::grammar
