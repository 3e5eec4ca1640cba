#include "runtime/text/vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/text/pretokenizer.h"

namespace strata {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kAddBosKey = "tokenizer.ggml.add_bos_token";
constexpr std::string_view kAddEosKey = "tokenizer.ggml.add_eos_token";

// Tokens that end an answer in some family, whatever the file says of them; the last ones pad or
// separate files for models that fill in code.
constexpr std::array kEndNames = std::to_array<std::string_view>({
    "<|im_end|>",
    "<end_of_turn>",
    "<|eot_id|>",
    "<|endoftext|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<|eom_id|>",
    "</s>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
});
// Tokens that are control tokens although some files give them another type.
constexpr std::array kControlNames = std::to_array<std::string_view>({
    "<|fim_prefix|>",  "<fim-prefix>",    "<fim_prefix>",    "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
    "<|fim_suffix|>",  "<fim-suffix>",    "<fim_suffix>",    "<｜fim▁hole｜>",  "<SUF>", "▁<SUF>",
    "<|fim_middle|>",  "<fim-middle>",    "<fim_middle>",    "<｜fim▁end｜>",   "<MID>", "▁<MID>",
    "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>",
});
// Of these the first found is the end of a turn, if the file names none.
constexpr std::array kTurnEndNames = std::to_array<std::string_view>({
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
});

bool contains_text(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Result<VocabKind> read_kind(const Metadata& metadata) {
  const std::string model = TRY(metadata.get<std::string>(kModelKey));
  if (model == "llama") return VocabKind::spm;
  if (model == "gpt2") return VocabKind::bpe;
  if (model == "bert") return VocabKind::wordpiece;
  return unimplemented(
      metadata
          .error(kModelKey,
                 fmt::format("is '{}', a tokenizer that Strata does not have", printable(model)))
          .message(),
      "use a model with a 'llama', 'gpt2' or 'bert' tokenizer");
}

// The id that `key` names, -1 without the key.
Result<int32_t> read_id(const Metadata& metadata, std::string_view key, int32_t vocab_size) {
  if (!metadata.contains(key)) return -1;
  const Result<int64_t> id = metadata.get<int64_t>(key);
  if (!id.ok()) return id.status();
  if (id.value() < 0 || id.value() >= vocab_size) {
    return metadata.error(
        key, fmt::format("is {}, token id out of range 0 to {}", id.value(), vocab_size - 1));
  }
  return static_cast<int32_t>(id.value());
}

}  // namespace

Result<Vocab> Vocab::load(const Metadata& metadata) {
  Vocab vocab;
  vocab.kind_ = TRY(read_kind(metadata));
  if (vocab.kind_ == VocabKind::bpe) {
    const std::string_view key = "tokenizer.ggml.pre";
    if (!metadata.contains(key)) {
      log::warn("{}: no key '{}', so texts are split by the pre-tokenizer 'default'",
                metadata.source(), key);
    }
    vocab.pre_ = TRY(metadata.get_or<std::string>(key, "default"));
  }
  TRY(vocab.load_tokens(metadata));
  TRY(vocab.build_index(metadata));
  TRY(vocab.load_special_ids(metadata));
  TRY(vocab.load_flags(metadata));
  vocab.set_strips(metadata);
  vocab.collect_end_of_generation();
  return vocab;
}

Status Vocab::load_tokens(const Metadata& metadata) {
  const StringArray tokens = TRY(metadata.get_strings(kTokensKey));
  const size_t count = tokens.size();
  if (count == 0) return metadata.error(kTokensKey, "is empty: a vocabulary needs a token");
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return metadata.error(kTokensKey, fmt::format("has {} tokens, at most 2147483647", count));
  }
  text_ends_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    texts_.append(tokens[i]);
    text_ends_.push_back(texts_.size());
  }
  const auto check_length = [&](std::string_view key, size_t length) {
    if (length == count) return ok_status();
    return metadata.error(
        key, fmt::format("has {} elements, must have {} as '{}'", length, count, kTokensKey));
  };
  if (metadata.contains(kScoresKey)) {
    scores_ = TRY(metadata.get_numbers<float>(kScoresKey));
    TRY(check_length(kScoresKey, scores_.size()));
    for (size_t i = 0; i < count; ++i) {
      if (scores_[i] != scores_[i]) {
        return metadata.error(kScoresKey, fmt::format("has no number for token {}", i));
      }
    }
  }
  types_.assign(count, TokenType::normal);
  strips_.assign(count, 0);
  if (metadata.contains(kTypesKey)) {
    const std::vector<int32_t> types = TRY(metadata.get_numbers<int32_t>(kTypesKey));
    TRY(check_length(kTypesKey, types.size()));
    for (size_t i = 0; i < count; ++i) {
      if (types[i] < 0 || types[i] > static_cast<int32_t>(TokenType::byte)) {
        return metadata.error(kTypesKey,
                              fmt::format("has type {} for token {}, must be 0 to 6", types[i], i));
      }
      types_[i] = static_cast<TokenType>(types[i]);
    }
  }
  return ok_status();
}

Status Vocab::build_index(const Metadata& metadata) {
  // At most half full, so that runs of probes stay short.
  index_.assign(std::bit_ceil(types_.size() * 2), -1);
  const size_t mask = index_.size() - 1;
  size_t duplicates = 0;
  int32_t first_duplicate = -1;
  for (int32_t id = 0; id < size(); ++id) {
    size_t place = std::hash<std::string_view>()(text(id)) & mask;
    while (index_[place] >= 0 && text(index_[place]) != text(id)) place = (place + 1) & mask;
    if (index_[place] >= 0 && duplicates++ == 0) first_duplicate = id;
    index_[place] = id;
  }
  if (duplicates > 0) {
    log::warn("{}: {} of {} tokens have the text of an earlier one, the first is token {} '{}'",
              metadata.source(), duplicates, size(), first_duplicate,
              printable(text(first_duplicate)));
  }
  return ok_status();
}

Status Vocab::load_special_ids(const Metadata& metadata) {
  const auto read = [&](std::string_view name, int32_t fallback) -> Result<int32_t> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    const int32_t id = TRY(read_id(metadata, key, size()));
    return id >= 0 ? id : fallback;
  };
  const bool spm = kind_ == VocabKind::spm;
  const bool wordpiece = kind_ == VocabKind::wordpiece;
  // BERT's classification token stands where others have the beginning of a sequence.
  const int32_t cls = TRY(read("cls", wordpiece ? find("[CLS]") : -1));
  special_.bos = TRY(read("bos", spm ? find("<s>") : -1));
  if (wordpiece && cls >= 0) special_.bos = cls;
  special_.eos = TRY(read("eos", spm ? find("</s>") : -1));
  special_.eot = TRY(read("eot", -1));
  special_.eom = TRY(read("eom", find("<|eom_id|>")));
  special_.unk = TRY(read("unknown", wordpiece ? find("[UNK]") : spm ? find("<unk>") : -1));
  // The format's own spelling first.
  special_.sep = TRY(read("separator", wordpiece ? find("[SEP]") : -1));
  special_.sep = TRY(read("seperator", special_.sep));
  special_.pad = TRY(read("padding", -1));
  special_.mask = TRY(read("mask", -1));
  for (const std::string_view name : kTurnEndNames) {
    if (special_.eot < 0) special_.eot = find(name);
  }
  return ok_status();
}

Status Vocab::load_flags(const Metadata& metadata) {
  const PretokenizerSpec* spec = kind_ == VocabKind::bpe ? find_pretokenizer_spec(pre_) : nullptr;
  const bool default_bos = kind_ != VocabKind::bpe || (spec != nullptr && spec->adds_bos);
  add_bos_ = TRY(metadata.get_or<bool>(kAddBosKey, default_bos && special_.bos >= 0));
  if (add_bos_ && special_.bos < 0) {
    return metadata.error(kAddBosKey, "is true, but there is no tokenizer.ggml.bos_token_id");
  }
  add_eos_ = TRY(metadata.get_or<bool>(kAddEosKey, false));
  if (add_eos_ && special_.eos < 0) {
    return metadata.error(kAddEosKey, "is true, but there is no tokenizer.ggml.eos_token_id");
  }
  const bool spm = kind_ == VocabKind::spm;
  const bool space_prefix = TRY(metadata.get_or<bool>("tokenizer.ggml.add_space_prefix", spm));
  add_space_prefix_ = spm && space_prefix;
  return ok_status();
}

// Converted files do not carry these attributes: the reference sets them by the model's name.
void Vocab::set_strips(const Metadata& metadata) {
  std::string name = metadata.get_or<std::string>("general.name", "").value_or("");
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  const std::string arch = metadata.get_or<std::string>("general.architecture", "").value_or("");
  if (contains_text(pre_, "jina-v2-") || arch == "nomic-bert-moe" || arch == "jina-bert-v3") {
    const int32_t mask = find("<mask>");
    if (mask >= 0) strips_[static_cast<size_t>(mask)] |= kLeft;
    return;
  }
  if (!contains_text(name, "phi-3") && !contains_text(name, "phi3")) return;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view token = text(id);
    const bool exempt = token == "<unk>" || token == "<s>" || token == "<|endoftext|>";
    if ((is_control(id) || is_user_defined(id)) && !exempt) {
      strips_[static_cast<size_t>(id)] |= kRight;
    }
  }
}

void Vocab::collect_end_of_generation() {
  std::vector<int32_t>& ids = end_of_generation_;
  ids = {special_.eos, special_.eot, special_.eom};
  for (const std::string_view name : kEndNames) {
    const int32_t id = find(name);
    if (id < 0) continue;
    ids.push_back(id);
    // Some files give such a token an ordinary type; it must not appear in a user's text.
    types_[static_cast<size_t>(id)] = TokenType::control;
  }
  for (const std::string_view name : kControlNames) {
    const int32_t id = find(name);
    if (id >= 0) types_[static_cast<size_t>(id)] = TokenType::control;
  }
  // In OpenAI's harmony format "<|end|>" ends a message, and the answer may go on with another.
  if (find("<|return|>") >= 0 && find("<|call|>") >= 0) std::erase(ids, find("<|end|>"));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::erase_if(ids, [](int32_t id) { return id < 0; });
}

std::string_view Vocab::text(int32_t id) const {
  STRATA_CHECK(contains(id), "token id outside the vocabulary");
  const size_t i = static_cast<size_t>(id);
  const uint64_t begin = i == 0 ? 0 : text_ends_[i - 1];
  return std::string_view(texts_).substr(begin, text_ends_[i] - begin);
}

float Vocab::score(int32_t id) const {
  return scores_.empty() ? 0.0F : scores_[static_cast<size_t>(id)];
}

int32_t Vocab::find(std::string_view wanted) const {
  const size_t mask = index_.size() - 1;
  size_t place = std::hash<std::string_view>()(wanted) & mask;
  while (index_[place] >= 0 && text(index_[place]) != wanted) place = (place + 1) & mask;
  return index_[place];
}

bool Vocab::is_end_of_generation(int32_t id) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

Status Vocab::check_ids(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!contains(ids[i])) {
      return invalid_argument(
          fmt::format("token id {} at index {} is outside 0 to {}", ids[i], i, size() - 1));
    }
  }
  return ok_status();
}

}  // namespace strata
