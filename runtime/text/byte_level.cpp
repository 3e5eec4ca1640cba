#include "runtime/text/byte_level.h"

#include <array>

#include "runtime/text/unicode.h"

namespace strata {
namespace {

// The characters end below U+0100 + 68.
constexpr size_t kCharacters = 0x144;

struct Tables {
  std::array<std::string, 256> spelling;
  std::array<int16_t, kCharacters> byte;  // by code point, -1 for none
};

Tables make_tables() {
  Tables tables;
  tables.byte.fill(-1);
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const char32_t character = printable ? byte : next++;
    append_utf8(character, tables.spelling[byte]);
    tables.byte[character] = static_cast<int16_t>(byte);
  }
  return tables;
}

const Tables& tables() {
  static const Tables made = make_tables();
  return made;
}

}  // namespace

std::string_view byte_level_character(uint8_t byte) { return tables().spelling[byte]; }

std::string byte_level_spell(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (const char byte : bytes) spelling += tables().spelling[static_cast<unsigned char>(byte)];
  return spelling;
}

std::string byte_level_read(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (size_t offset = 0; offset < spelling.size();) {
    const DecodedCharacter character = decode_utf8(spelling, offset);
    const bool spells = character.valid && character.code_point < kCharacters &&
                        tables().byte[character.code_point] >= 0;
    if (spells) {
      bytes += static_cast<char>(tables().byte[character.code_point]);
    } else {
      bytes.append(spelling, offset, character.length);
    }
    offset += character.length;
  }
  return bytes;
}

}  // namespace strata
