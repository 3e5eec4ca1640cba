// GPT-2's spelling of bytes as printable characters, in which byte-level vocabularies are written.
//
// Printable Latin-1 bytes stand for themselves; the other 68 are U+0100 upwards, so a space is "Ġ".
// Source: https://github.com/openai/gpt-2/blob/master/src/encoder.py (bytes_to_unicode).
// Threads: free functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

// The character that spells a byte, as UTF-8.
std::string_view byte_level_character(uint8_t byte);

// Bytes to their spelling.
std::string byte_level_spell(std::string_view bytes);

// A spelling back to bytes. Characters that spell no byte are kept as they are.
std::string byte_level_read(std::string_view spelling);

}  // namespace strata
