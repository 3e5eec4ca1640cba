#include "runtime/grammar/char_class.h"

#include <algorithm>
#include <array>

namespace strata::grammar {
namespace {

// ASCII takes classes 0 to 42.
constexpr std::array<uint8_t, 128> kAsciiNumbers = [] {
  std::array<uint8_t, 128> classes{};
  uint8_t sign = 11;
  for (uint8_t c = 0; c < 128; ++c) {
    const auto within = [c](char first, char last) { return c >= first && c <= last; };
    uint8_t number = 9;  // a control character
    if (within('a', 'f')) {
      number = 0;
    } else if (within('g', 'z')) {
      number = 1;
    } else if (within('A', 'F')) {
      number = 2;
    } else if (within('G', 'Z')) {
      number = 3;
    } else if (within('0', '9')) {
      number = 4;
    } else if (c == ' ') {
      number = 5;
    } else if (c == '\t') {
      number = 6;
    } else if (c == '\n') {
      number = 7;
    } else if (c == '\r') {
      number = 8;
    } else if (c == 0x7F) {
      number = 10;
    } else if (c > ' ') {
      number = sign++;
    }
    classes[c] = number;
  }
  return classes;
}();
static_assert(uint64_t{1} << kAsciiNumbers['~'] == (kAsciiClasses + 1) / 2);

struct ClassedRange {
  CodeRange codes;
  uint32_t number;
};

constexpr uint32_t kTwoBytes = 43;
constexpr uint32_t kThreeBytes = 44;
constexpr uint32_t kFourBytes = 45;
constexpr uint32_t kLineEnds = 46;  // U+2028 and U+2029, which '.' of ECMA-262 leaves out
constexpr uint32_t kLatin = 47;
constexpr uint32_t kCyrillic = 48;
constexpr uint32_t kKana = 49;
constexpr uint32_t kIdeographs = 50;
constexpr uint32_t kHangul = 51;

// All code points beyond ASCII. The scripts hold letters only (\p{L}).
constexpr ClassedRange kWide[] = {
    {{0x80, 0xBF}, kTwoBytes},       {{0xC0, 0xD6}, kLatin},
    {{0xD7, 0xD7}, kTwoBytes},       {{0xD8, 0xF6}, kLatin},
    {{0xF7, 0xF7}, kTwoBytes},       {{0xF8, 0x24F}, kLatin},
    {{0x250, 0x3FF}, kTwoBytes},     {{0x400, 0x481}, kCyrillic},
    {{0x482, 0x48F}, kTwoBytes},     {{0x490, 0x52F}, kCyrillic},
    {{0x530, 0x7FF}, kTwoBytes},     {{0x800, 0x2027}, kThreeBytes},
    {{0x2028, 0x2029}, kLineEnds},   {{0x202A, 0x3040}, kThreeBytes},
    {{0x3041, 0x3096}, kKana},       {{0x3097, 0x30A0}, kThreeBytes},
    {{0x30A1, 0x30FA}, kKana},       {{0x30FB, 0x4DFF}, kThreeBytes},
    {{0x4E00, 0x9FEF}, kIdeographs}, {{0x9FF0, 0xABFF}, kThreeBytes},
    {{0xAC00, 0xD7A3}, kHangul},     {{0xD7A4, 0xD7FF}, kThreeBytes},
    {{0xE000, 0xFFFF}, kThreeBytes}, {{0x10000, kCodeMax}, kFourBytes},
};

uint8_t continuation(uint32_t code, uint32_t level) {
  return static_cast<uint8_t>(0x80 | ((code >> (6 * level)) & 0x3F));
}

// Requires: first and last have `levels` continuation bytes.
void add_sequences(uint32_t first, uint32_t last, uint32_t levels, uint32_t mark,
                   std::vector<ByteSequence>& sequences) {
  // Cut where a lower digit is not free: what is left has free digits below the first that differs.
  for (uint32_t level = 1; level <= levels; ++level) {
    const uint32_t block = (1U << (6 * level)) - 1;
    if ((first & ~block) == (last & ~block)) continue;
    if ((first & block) != 0) {
      add_sequences(first, first | block, levels, mark, sequences);
      add_sequences((first | block) + 1, last, levels, mark, sequences);
      return;
    }
    if ((last & block) != block) {
      add_sequences(first, (last & ~block) - 1, levels, mark, sequences);
      add_sequences(last & ~block, last, levels, mark, sequences);
      return;
    }
  }
  ByteSequence& sequence = sequences.emplace_back();
  sequence.count = levels + 1;
  sequence.bytes[0] = {static_cast<uint8_t>(mark | (first >> (6 * levels))),
                       static_cast<uint8_t>(mark | (last >> (6 * levels)))};
  for (uint32_t level = levels; level > 0; --level) {
    sequence.bytes[levels - level + 1] = {continuation(first, level - 1),
                                          continuation(last, level - 1)};
  }
}

}  // namespace

ClassSet class_of(uint32_t code) {
  if (code < 128) return uint64_t{1} << kAsciiNumbers[code];
  const auto* const range =
      std::lower_bound(std::begin(kWide), std::end(kWide), code,
                       [](const ClassedRange& r, uint32_t value) { return r.codes.last < value; });
  const bool known = range != std::end(kWide) && range->codes.first <= code;
  return known ? uint64_t{1} << range->number : kBrokenClass;
}

std::vector<ByteSequence> byte_sequences(CodeRange range) {
  std::vector<ByteSequence> sequences;
  constexpr CodeRange kLengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kCodeMax}};
  constexpr uint32_t kMarks[] = {0, 0xC0, 0xE0, 0xF0};
  for (uint32_t levels = 0; levels < 4; ++levels) {
    const uint32_t first = std::max(range.first, kLengths[levels].first);
    const uint32_t last = std::min(range.last, kLengths[levels].last);
    if (first <= last) add_sequences(first, last, levels, kMarks[levels], sequences);
  }
  return sequences;
}

std::span<const WideClass> wide_classes() {
  static const std::vector<WideClass> classes = [] {
    std::vector<WideClass> result;
    for (const ClassedRange& range : kWide) {
      const ClassSet set = uint64_t{1} << range.number;
      auto known = std::find_if(result.begin(), result.end(),
                                [set](const WideClass& wide) { return wide.set == set; });
      if (known == result.end()) known = result.insert(result.end(), {set, {}});
      const std::vector<ByteSequence> sequences = byte_sequences(range.codes);
      known->sequences.insert(known->sequences.end(), sequences.begin(), sequences.end());
    }
    return result;
  }();
  return classes;
}

}  // namespace strata::grammar
