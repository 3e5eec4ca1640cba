#include "runtime/text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

namespace strata {
namespace {

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct JitStackFree {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

// Unicode's White_Space. PCRE2's own \s has U+180E besides, which left that property in
// Unicode 6.3.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f})"
    R"(\x{3000})";

// The pattern with \s and \S spelled out. \S inside a class does not occur in the table.
std::string expand_spaces(std::string_view pattern) {
  std::string expanded;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const bool escape = c == '\\' && i + 1 < pattern.size();
    if (escape && pattern[i + 1] == 's') {
      expanded += in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
    } else if (escape && pattern[i + 1] == 'S' && !in_class) {
      expanded += fmt::format("[^{}]", kSpaces);
    } else if (escape) {
      expanded += pattern.substr(i, 2);
    } else {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      expanded += c;
      continue;
    }
    ++i;
  }
  return expanded;
}

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// What one split() needs while it runs, so that a Pretokenizer serves many threads.
struct MatchState {
  std::unique_ptr<pcre2_match_data, MatchDataFree> data;
  std::unique_ptr<pcre2_match_context, MatchContextFree> context;
  std::unique_ptr<pcre2_jit_stack, JitStackFree> stack;
};

// JIT code runs on 32 KiB of machine stack; a pattern that wants more on some text gets this much
// (reserved, not touched). None of the table's patterns does: their repeats are of single classes.
constexpr size_t kJitStackMax = size_t{64} << 20;

int match_once(const pcre2_code* code, std::string_view text, size_t offset, MatchState& state) {
  const auto run = [&] {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), offset,
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, state.data.get(), state.context.get());
  };
  int result = run();
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && !state.stack) {
    state.stack.reset(pcre2_jit_stack_create(size_t{64} << 10, kJitStackMax, nullptr));
    pcre2_jit_stack_assign(state.context.get(), nullptr, state.stack.get());
    result = run();
  }
  return result;
}

// Appends the ends of the fragments that `code` makes of text[begin, end).
void split_fragment(const pcre2_code* code, std::string_view text, size_t begin, size_t end,
                    MatchState& state, std::vector<size_t>& ends) {
  const std::string_view fragment = text.substr(begin, end - begin);
  size_t done = 0;
  while (done < fragment.size()) {
    const int result = match_once(code, fragment, done, state);
    if (result < 0) {
      if (result != PCRE2_ERROR_NOMATCH) {
        log::warn("a pre-tokenizer pattern stopped on a text of {} bytes: {}", fragment.size(),
                  pcre2_message(result));
      }
      break;
    }
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(state.data.get());
    if (match[0] > done) ends.push_back(begin + match[0]);
    ends.push_back(begin + match[1]);
    done = match[1];
  }
  if (done < fragment.size()) ends.push_back(end);
}

}  // namespace

struct Pretokenizer::Pattern {
  std::unique_ptr<pcre2_code, CodeFree> code;
};

Pretokenizer::Pretokenizer(const PretokenizerSpec* spec) : spec_(spec) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

const PretokenizerSpec* find_pretokenizer_spec(std::string_view name) {
  for (const PretokenizerSpec& spec : pretokenizer_specs()) {
    if (std::find(spec.names.begin(), spec.names.end(), name) != spec.names.end()) return &spec;
  }
  return nullptr;
}

Result<Pretokenizer> Pretokenizer::create(std::string_view name) {
  const PretokenizerSpec* spec = find_pretokenizer_spec(name);
  if (spec == nullptr) {
    std::vector<std::string_view> known;
    for (const PretokenizerSpec& each : pretokenizer_specs()) {
      known.insert(known.end(), each.names.begin(), each.names.end());
    }
    std::sort(known.begin(), known.end());
    return unimplemented(fmt::format("pre-tokenizer '{}' is unknown", printable(name)),
                         fmt::format("known are {}", fmt::join(known, ", ")));
  }
  Pretokenizer pretokenizer(spec);
  for (const std::string_view pattern : spec->patterns) {
    const std::string expanded = expand_spaces(pattern);
    int error = 0;
    PCRE2_SIZE where = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(),
                                     PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr);
    if (code == nullptr) {
      return internal_error(fmt::format("pattern {} of pre-tokenizer '{}' at {}: {}", pattern, name,
                                        where, pcre2_message(error)));
    }
    auto compiled = std::make_unique<Pattern>();
    compiled->code.reset(code);
    // Without JIT (a system that forbids writable code) the interpreter does the same, slower.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pretokenizer.patterns_.push_back(std::move(compiled));
  }
  return pretokenizer;
}

std::vector<size_t> Pretokenizer::split(std::string_view text) const {
  std::vector<size_t> ends;
  if (text.empty()) return ends;
  MatchState state;
  state.data.reset(pcre2_match_data_create(1, nullptr));
  state.context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(state.context.get(), UINT32_MAX);
  ends.push_back(text.size());
  std::vector<size_t> next;
  for (const std::unique_ptr<Pattern>& pattern : patterns_) {
    next.clear();
    size_t begin = 0;
    for (const size_t end : ends) {
      split_fragment(pattern->code.get(), text, begin, end, state, next);
      begin = end;
    }
    ends.swap(next);
  }
  return ends;
}

}  // namespace strata
