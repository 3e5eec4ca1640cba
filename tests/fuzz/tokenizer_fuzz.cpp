// Feeds any bytes to the tokenizers: as a text for two small vocabularies, and as a model file
// whose tokenizer then reads a fixed text. The first byte chooses.
//
// Beyond "no crash": ids lie in the vocabulary, texts come back, a stream gives the same text as
// decode(), and plain text makes no control token.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/stream_decoder.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/unicode.h"
#include "tests/support/vocabularies.h"

namespace {

using namespace strata;

constexpr std::string_view kSample =
    "The <s>quick</s>\n\n brown\t<|im_start|> 123 é漢🙂 \xFF\xE2\x82";

void check_stream(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) streamed += decoder.push(id);
  streamed += decoder.flush();
  STRATA_CHECK(streamed == replace_invalid_utf8(tokenizer.decode(ids)), "stream and decode differ");
}

void use_text(const Tokenizer& tokenizer, std::string_view text, bool round_trip) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  STRATA_CHECK(tokenizer.vocab().check_ids(ids).ok(), "an id outside the vocabulary");
  check_stream(tokenizer, ids);
  const std::vector<int32_t> all =
      tokenizer.encode(text, {.parse_special = true, .add_special = true});
  STRATA_CHECK(tokenizer.vocab().check_ids(all).ok(), "an id outside the vocabulary");
  if (!round_trip) return;
  for (const int32_t id : ids) {
    STRATA_CHECK(!tokenizer.vocab().is_control(id), "plain text made a control token");
  }
  const bool bytes_kept = tokenizer.vocab().kind() == VocabKind::spm;
  // SentencePiece writes a space as U+2581, so it cannot keep that character.
  if (bytes_kept && text.find("\xE2\x96\x81") != std::string_view::npos) return;
  STRATA_CHECK(
      tokenizer.decode(ids) == (bytes_kept ? std::string(text) : replace_invalid_utf8(text)),
      "a text did not come back");
}

void use_file(std::span<const uint8_t> bytes) {
  const auto model = GgufFile::from_header(std::as_bytes(bytes), "fuzz");
  if (!model.ok()) return;
  const Metadata& metadata = model.value()->metadata();
  const auto tokenizer = make_tokenizer(metadata);
  if (!tokenizer.ok()) {
    STRATA_CHECK(!tokenizer.status().message().empty(), "an error without a message");
    return;
  }
  use_text(*tokenizer.value(), kSample, false);
  const auto chat = ChatTemplate::of_model(metadata, tokenizer.value()->vocab());
  if (!chat.ok()) return;
  const auto text = chat.value()->render({.messages = messages_json({{"user", "a <s>b</s>"}})});
  if (text.ok()) (void)chat.value()->encode(*tokenizer.value(), text.value());
}

// Made once: the target is called many times.
const Tokenizer& small_tokenizer(bool spm) {
  static const auto spm_tokenizer =
      make_tokenizer(test::metadata_of(test::spm_vocabulary())).value();
  static const auto bpe_tokenizer =
      make_tokenizer(test::metadata_of(test::bpe_vocabulary("llama-bpe"))).value();
  return spm ? *spm_tokenizer : *bpe_tokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Duplicate tokens are only warned of, and mutations make many.
  static const bool quiet = log::configure("", "error").ok();
  if (size == 0 || !quiet) return 0;
  const std::span<const uint8_t> rest(data + 1, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
  switch (data[0] % 4) {
    case 0:
      use_text(small_tokenizer(true), text, true);
      break;
    case 1:
      use_text(small_tokenizer(false), text, true);
      break;
    default:
      use_file(rest);
  }
  return 0;
}
