#include "runtime/text/stream_decoder.h"

#include "runtime/text/unicode.h"

namespace strata {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, int32_t previous, DecodeOptions options)
    : tokenizer_(tokenizer), options_(options), previous_(previous) {}

std::string StreamDecoder::push(int32_t id) {
  held_ += tokenizer_.piece(id, previous_, options_);
  previous_ = id;
  std::string text;
  size_t offset = 0;
  while (offset < held_.size() && !may_become_utf8(std::string_view(held_).substr(offset))) {
    const DecodedCharacter character = decode_utf8(held_, offset);
    append_utf8(character.code_point, text);
    offset += character.length;
  }
  held_.erase(0, offset);
  return text;
}

std::string StreamDecoder::flush() {
  std::string text = replace_invalid_utf8(held_);
  held_.clear();
  return text;
}

}  // namespace strata
