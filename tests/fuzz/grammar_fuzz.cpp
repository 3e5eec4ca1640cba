// Feeds any bytes to the front ends and what they compile to: as a JSON schema, a GBNF grammar or
// a regular expression (the first byte chooses), and the rest after a 0 byte as a document.
//
// Beyond "no crash": errors have a message, a match does not depend on how the text is cut, masks
// agree with the matcher, and what generation takes checking takes too.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/grammar/constraint.h"
#include "runtime/grammar/grammar.h"

namespace {

using namespace strata;
using namespace strata::grammar;

const std::shared_ptr<const Vocabulary>& vocabulary() {
  static const std::shared_ptr<const Vocabulary> all = [] {
    std::vector<std::string> texts = {"",   "{\"",   "\":",      "\"}", "null",
                                      "aa", "\",\"", "\xC3\xA9", "00",  "]]"};
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    return std::make_shared<const Vocabulary>(std::move(texts));
  }();
  return all;
}

void check_masks(const GrammarSpec& spec, std::string_view document) {
  GrammarCache cache(vocabulary());
  Result<Constraint> constraint = cache.start(spec);
  if (!constraint.ok()) return;
  for (size_t i = 0; i < std::min<size_t>(document.size(), 20); ++i) {
    const TokenMask mask = constraint->mask({});
    const auto id = static_cast<int32_t>(10 + static_cast<unsigned char>(document[i]));
    const bool allowed = mask.allows(id);
    const bool taken = constraint->accept(id);
    STRATA_CHECK(allowed || !taken, "a token that the mask forbids fits");
    if (!taken) return;
  }
}

void use(GrammarSpec::Kind kind, std::string_view text, std::string_view document) {
  const GrammarSpec spec{.kind = kind, .text = std::string(text)};
  const std::clock_t begin = std::clock();
  const auto checking = compile_grammar(spec, Strictness::checking);
  if (!checking.ok()) {
    STRATA_CHECK(!checking.status().message().empty(), "an error without a message");
    return;
  }
  Matcher whole(*checking);
  const size_t taken = whole.accept_some(document);
  Matcher bytewise(*checking);
  size_t one_by_one = 0;
  while (one_by_one < document.size() && bytewise.accept(document.substr(one_by_one, 1)))
    ++one_by_one;
  STRATA_CHECK(taken == one_by_one, "a match depends on how the text is cut");
  STRATA_CHECK(!whole.expected().empty(), "no word on what may come");
  // The costly ones once is enough.
  if (static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC > 0.1) return;
  const auto generation = compile_grammar(spec, Strictness::generation);
  if (!generation.ok()) return;
  Matcher strict(*generation);
  if (strict.accept(document) && strict.can_end()) {
    STRATA_CHECK(taken == document.size() && whole.can_end(),
                 "generation takes more than checking");
  }
  check_masks(spec, document);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 1024) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t cut = std::min(all.find('\0'), all.size());
  const std::string_view document = all.substr(std::min(cut + 1, all.size()));
  const auto kind = static_cast<GrammarSpec::Kind>(1 + data[0] % 3);
  use(kind, all.substr(0, cut), document);
  return 0;
}
