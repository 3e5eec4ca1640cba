// All characters divided into a few classes, so that "any of these, in any order" is one word.
//
// A vocabulary knows of each node which classes lie below it, and free_runs.h which classes a state
// takes whatever their order: where the one is within the other, nothing below has to be looked at.
// The division is fixed: letters that patterns tell apart (hexadecimal digits), each sign of ASCII
// for itself, and beyond ASCII the large scripts. It changes how long a mask takes, never the mask.
//
// Threads: free functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/grammar/code_set.h"

namespace strata::grammar {

using ClassSet = uint64_t;  // bit i: class i
// Bytes that are no character (RFC 3629). No state takes these whatever their order.
inline constexpr ClassSet kBrokenClass = uint64_t{1} << 63;

inline constexpr ClassSet kAsciiClasses = (uint64_t{1} << 43) - 1;
// All others.
inline constexpr ClassSet kWideClasses = ~kAsciiClasses;

// The class of a code point, as a set of one.
ClassSet class_of(uint32_t code);

// One way to spell characters beyond ASCII: `count` bytes, each within a range.
struct ByteSequence {
  struct Range {
    uint8_t first = 0;
    uint8_t last = 0;
    bool operator==(const Range&) const = default;
  };
  Range bytes[4];
  uint32_t count = 0;
};

// A class beyond ASCII: the sequences that spell exactly its characters.
struct WideClass {
  ClassSet set = 0;
  std::vector<ByteSequence> sequences;
};
std::span<const WideClass> wide_classes();

// The sequences that spell exactly the code points of the range. Requires: no surrogates in it.
std::vector<ByteSequence> byte_sequences(CodeRange range);

}  // namespace strata::grammar
