#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "runtime/text/bpe_tokenizer.h"
#include "runtime/text/spm_tokenizer.h"
#include "runtime/text/wordpiece_tokenizer.h"

namespace strata {

Tokenizer::Tokenizer(Vocab vocab) : vocab_(std::move(vocab)), splitter_(vocab_) {}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const std::vector<TextFragment> fragments =
      splitter_.split(text, options.parse_special, options.untrusted, options.barred);
  const SpecialIds& special = vocab_.special();
  std::vector<int32_t> ids;
  const bool has_bos = !fragments.empty() && fragments[0].token == special.bos;
  if (options.add_special && vocab_.add_bos() && !(options.single_bos && has_bos)) {
    ids.push_back(special.bos);
  }
  bool after_special = true;
  for (const TextFragment& fragment : fragments) {
    if (fragment.token >= 0) {
      ids.push_back(fragment.token);
    } else {
      encode_plain(text.substr(fragment.begin, fragment.end - fragment.begin), after_special, ids);
    }
    after_special = fragment.token >= 0;
  }
  if (!options.add_special) return ids;
  if (vocab_.kind() == VocabKind::wordpiece) {
    if (special.sep >= 0) ids.push_back(special.sep);
  } else if (vocab_.add_eos()) {
    ids.push_back(special.eos);
  }
  return ids;
}

bool Tokenizer::begins_plain_text(int32_t previous) const {
  return !vocab_.contains(previous) || vocab_.is_control(previous) ||
         vocab_.is_user_defined(previous);
}

std::string Tokenizer::piece(int32_t id, int32_t previous, DecodeOptions options) const {
  if (!vocab_.contains(id)) return {};
  if (vocab_.is_control(id)) {
    const bool is_shown = options.special || std::find(options.shown.begin(), options.shown.end(),
                                                       id) != options.shown.end();
    return is_shown ? std::string(vocab_.text(id)) : std::string();
  }
  if (vocab_.is_user_defined(id)) return std::string(vocab_.text(id));
  std::string bytes = plain_piece(id);
  const std::string_view added = prefix();
  if (!added.empty() && begins_plain_text(previous) && bytes.starts_with(added)) {
    bytes.erase(0, added.size());
  }
  return bytes;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodeOptions options) const {
  std::string text;
  int32_t previous = -1;
  for (const int32_t id : ids) {
    text += piece(id, previous, options);
    previous = id;
  }
  return text;
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const Metadata& metadata) {
  Vocab vocab = TRY(Vocab::load(metadata));
  switch (vocab.kind()) {
    case VocabKind::spm:
      return std::unique_ptr<Tokenizer>(std::make_unique<SpmTokenizer>(std::move(vocab)));
    case VocabKind::wordpiece:
      return std::unique_ptr<Tokenizer>(std::make_unique<WordpieceTokenizer>(std::move(vocab)));
    case VocabKind::bpe:
      break;
  }
  std::unique_ptr<BpeTokenizer> bpe = TRY(BpeTokenizer::create(std::move(vocab), metadata));
  return std::unique_ptr<Tokenizer>(std::move(bpe));
}

}  // namespace strata
