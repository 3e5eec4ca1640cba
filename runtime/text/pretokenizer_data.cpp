// The families of pre-tokenizers. Patterns are those of each model's own tokenizer.json as far as
// the reference implementation keeps them, written so that PCRE2 matches without recursion.
// \s and \S stand for Unicode's White_Space (pretokenizer.cpp expands them).
#include "runtime/text/pretokenizer.h"

// Apostrophe endings of English in either case, without case folding: that would also fold U+017F.
#define STRATA_CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
// Letters but for ASCII's small ones, and but for ASCII's capitals.
#define STRATA_NOT_SMALL R"([^\P{L}a-z])"
#define STRATA_NOT_CAPITAL R"([^\P{L}A-Z])"

namespace strata {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

constexpr std::string_view kLlama3 = STRATA_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kQwen2 = STRATA_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kQwen35 =
    STRATA_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
                        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kSeedCoder = STRATA_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?)" STRATA_NOT_SMALL "*" STRATA_NOT_CAPITAL
    "+"
    R"(|[^\r\n\p{L}\p{N}]?)" STRATA_NOT_SMALL "+" STRATA_NOT_CAPITAL
    "*"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?)" STRATA_NOT_SMALL "*" STRATA_NOT_CAPITAL "+" STRATA_CONTRACTIONS
    "?"
    R"(|[^\r\n\p{L}\p{N}]?)" STRATA_NOT_SMALL "+" STRATA_NOT_CAPITAL "*" STRATA_CONTRACTIONS
    "?"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The cased letters that DeepSeek's first models list one by one.
constexpr std::string_view kDeepseekCased =
    R"(\s?[A-Za-z\x{b5}À-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿ\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}Σ-ϵ)"
    R"(Ϸ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d})"
    R"(\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc})"
    R"(\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec})"
    R"(\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}ℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛ)"
    R"(Ꜣ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb})"
    R"(\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";

constexpr std::string_view kDeepseekCjk = R"([一-龥ࠀ-一가-퟿]+)";

}  // namespace

std::span<const PretokenizerSpec> pretokenizer_specs() {
  static const std::vector<PretokenizerSpec> specs = {
      {.names = {"default"},
       .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
                 "lfm2"},
       .patterns = {kLlama3},
       .ignores_merges = true,
       .adds_bos = true},
      {.names = {"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, .patterns = {kLlama3}},
      {.names = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "jina-es",
                 "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum",
                 "modern-bert", "roberta-bpe", "exaone4"},
       .patterns = {kGpt2}},
      {.names = {"starcoder", "smollm", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       .patterns = {R"(\p{N})", kGpt2}},
      {.names = {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "hunyuan"},
       .patterns = {kQwen2}},
      {.names = {"qwen35"}, .patterns = {kQwen35}},
      {.names = {"deepseek-coder"},
       .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk, R"(\p{N})"}},
      {.names = {"deepseek-llm"},
       .patterns = {R"([\r\n])", kDeepseekCased, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
                    kDeepseekCjk, R"(\p{N}+)"}},
      {.names = {"deepseek-v3", "hunyuan-dense"},
       .patterns = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3}},
      {.names = {"falcon"}, .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {.names = {"bloom", "poro-chat", "gpt3-finnish"},
       .patterns = {R"( ?[^(\s|.,!?…。，、।۔،)]+)"}},
      {.names = {"viking"}, .patterns = {R"( ?[^(\s|.,!?…。，、।۔،)]+)", R"(\p{N})"}},
      {.names = {"tekken"}, .patterns = {kTekken}, .ignores_merges = true, .adds_bos = true},
      {.names = {"gpt-4o", "llama4", "kanana2"}, .patterns = {kGpt4o}},
      {.names = {"seed-coder"}, .patterns = {kSeedCoder}},
  };
  return specs;
}

}  // namespace strata
