// Text of unknown origin: is it UTF-8, and how to show it without trusting it.
//
// Names in files and from peers reach terminals and logs; a control character or a broken sequence
// in one must not. Normalisation and character classes are the tokenizer's business, not this
// file's.
//
// Threads: free functions, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata {

// True for well-formed UTF-8 (RFC 3629: no overlong forms, surrogates or values over U+10FFFF).
bool is_utf8(std::string_view text);

// True if a byte below 0x20 or 0x7F is in it.
bool has_control_character(std::string_view text);

// The text for a message or a terminal: control characters and bytes that are no UTF-8 as \n, \t,
// \r or \x1b, at most about `bytes_max` bytes of the original, then "...". Never splits a
// character.
std::string printable(std::string_view text, size_t bytes_max = 120);

}  // namespace strata
