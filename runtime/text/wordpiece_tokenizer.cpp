#include "runtime/text/wordpiece_tokenizer.h"

#include "runtime/text/unicode.h"

namespace strata {
namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581

// Splits at white space, and around every punctuation mark and ideograph.
std::vector<std::string> normalised_words(std::string_view text) {
  std::vector<std::string> words(1);
  const auto end_word = [&words] {
    if (!words.back().empty()) words.emplace_back();
  };
  for (size_t offset = 0; offset < text.size();) {
    const DecodedCharacter character = decode_utf8(text, offset);
    offset += character.length;
    const char32_t base = base_of(character.code_point);
    if (is_unicode_space(base)) {
      end_word();
      continue;
    }
    if (base == 0 || base == kReplacementCharacter) continue;
    if (is_unicode_control(base) || is_unicode_mark(base)) continue;
    const bool alone = is_unicode_punctuation(base) || is_cjk_ideograph(base) ||
                       (base < 0x7F && is_unicode_symbol(base));
    if (alone) end_word();
    append_utf8(lower_of(base), words.back());
    if (alone) end_word();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

}  // namespace

WordpieceTokenizer::WordpieceTokenizer(Vocab moved) : Tokenizer(std::move(moved)) {
  for (int32_t id = 0; id < vocab().size(); ++id) {
    if (vocab().is_text(id)) trie_.add(vocab().text(id), id);
  }
}

void WordpieceTokenizer::encode_word(const std::string& word, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  const std::string_view text = word;
  for (size_t begin = 0; begin < text.size();) {
    size_t longest = 0;
    int32_t best = -1;
    trie_.for_each_prefix(text.substr(begin), [&](size_t length, int32_t id) {
      longest = length;
      best = id;
    });
    if (best < 0) {
      ids.resize(before);
      break;
    }
    ids.push_back(best);
    begin += longest;
  }
  if (ids.size() == before && vocab().special().unk >= 0) ids.push_back(vocab().special().unk);
}

void WordpieceTokenizer::encode_plain(std::string_view text, bool /*after_special*/,
                                      std::vector<int32_t>& ids) const {
  for (const std::string& word : normalised_words(text)) {
    encode_word(std::string(kWordMark).append(word), ids);
  }
}

std::string WordpieceTokenizer::plain_piece(int32_t id) const {
  const std::string_view text = vocab().text(id);
  if (!text.starts_with(kWordMark)) return std::string(text);
  return " " + std::string(text.substr(kWordMark.size()));
}

}  // namespace strata
