#include "runtime/grammar/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/base/ascii.h"
#include "runtime/base/utf8.h"
#include "runtime/text/unicode.h"

namespace strata::grammar {
namespace {

constexpr size_t kGroupsMax = 1000;  // open at once
constexpr uint32_t kRepeatMax = 100000;

class RegexParser {
 public:
  RegexParser(std::u32string text, ExprPool& pool, Budget& budget)
      : text_(std::move(text)), pool_(pool), budget_(budget), groups_(pool) {}

  Result<ExprId> parse() {
    groups_.open();
    while (at_ < text_.size()) TRY(parse_item());
    if (groups_.depth() > 1) return fail("a group '(' without its ')'");
    return groups_.close();
  }

 private:
  Status fail(std::string_view what) const {
    return invalid_argument(fmt::format("regular expression, character {}: {}", at_ + 1, what));
  }
  bool more() const { return at_ < text_.size(); }
  char32_t peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : U'\0';
  }
  bool skip(std::u32string_view text) {
    if (std::u32string_view(text_).substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  Status parse_item() {
    switch (peek()) {
      case U'|':
        ++at_;
        groups_.next_alternative();
        return ok_status();
      case U'(':
        return open_group();
      case U')': {
        if (groups_.depth() == 1) return fail("a ')' without its '('");
        ++at_;
        return repeated(groups_.close());
      }
      case U'^':
        ++at_;
        return assertion(Expr::Kind::text_begin);
      case U'$':
        ++at_;
        return assertion(Expr::Kind::text_end);
      case U'*':
      case U'+':
      case U'?':
        return fail("a repetition of nothing");
      default:
        return parse_atom();
    }
  }

  Status assertion(Expr::Kind kind) {
    if (more() && (peek() == U'*' || peek() == U'+' || peek() == U'?')) {
      return fail("a repetition of '^' or '$'");
    }
    groups_.push(pool_.assertion(kind));
    return ok_status();
  }

  Status open_group() {
    for (const auto& [start, name] : {std::pair{U"(?=", "look-ahead (?="},
                                      {U"(?!", "look-ahead (?!"},
                                      {U"(?<=", "look-behind (?<="},
                                      {U"(?<!", "look-behind (?<!"},
                                      {U"(?>", "an atomic group (?>"}}) {
      if (std::u32string_view(text_).substr(at_).starts_with(start)) {
        return fail(fmt::format("{} is not supported", name));
      }
    }
    if (skip(U"(?:")) {
      // Groups do not capture here; both kinds are the same.
    } else if (skip(U"(?<") || skip(U"(?P<")) {
      while (more() && peek() != U'>') ++at_;
      if (!skip(U">")) return fail("a group's name without its '>'");
    } else if (skip(U"(?")) {
      return fail("flags such as (?i) are not supported");
    } else {
      ++at_;
    }
    if (groups_.depth() > kGroupsMax) {
      return fail(fmt::format("more than {} groups inside each other", kGroupsMax));
    }
    groups_.open();
    return ok_status();
  }

  Status parse_atom() {
    if (peek() == U'[') return repeated(pool_.chars(TRY(parse_class())));
    if (peek() == U'.') {
      ++at_;
      return repeated(pool_.chars(line_codes()));
    }
    if (peek() == U'\\') {
      if (skip(U"\\A")) return assertion(Expr::Kind::text_begin);
      if (skip(U"\\z") || skip(U"\\Z")) return assertion(Expr::Kind::text_end);
      return repeated(pool_.chars(TRY(parse_escape(false))));
    }
    return repeated(pool_.chars(CodeSet::of(text_[at_++])));
  }

  // The expression, repeated as what follows it says.
  Status repeated(ExprId expr) {
    uint32_t min = 1;
    uint32_t max = 1;
    if (skip(U"*")) {
      min = 0;
      max = kUnbounded;
    } else if (skip(U"+")) {
      max = kUnbounded;
    } else if (skip(U"?")) {
      min = 0;
    } else if (!TRY(parse_counts(min, max))) {
      groups_.push(expr);
      return ok_status();
    }
    if (peek() == U'+') return fail("possessive repetition is not supported");
    skip(U"?");  // lazy: finds the same texts
    if (peek() == U'*' || peek() == U'+' || peek() == U'?') {
      return fail("a repetition of a repetition: write parentheses");
    }
    groups_.push(pool_.repeat(expr, min, max));
    return ok_status();
  }

  // {n}, {n,} or {n,m}; any other '{' is a letter, as in ECMA-262's web form and in Python.
  Result<bool> parse_counts(uint32_t& min, uint32_t& max) {
    const size_t begin = at_;
    if (!skip(U"{")) return false;
    const std::optional<uint32_t> low = parse_number();
    std::optional<uint32_t> high = low;
    bool open_end = false;
    if (low && skip(U",")) {
      high = parse_number();
      open_end = !high;
    }
    if (!low || !skip(U"}")) {
      at_ = begin;
      return false;
    }
    min = *low;
    max = open_end ? kUnbounded : *high;
    if (min > kRepeatMax || (!open_end && max > kRepeatMax)) {
      return fail(fmt::format("a repetition of more than {} times", kRepeatMax));
    }
    if (min > max) return fail(fmt::format("a repetition of {} to {} times", min, max));
    return true;
  }

  // Numbers beyond kRepeatMax come out as one above it.
  std::optional<uint32_t> parse_number() {
    if (!is_ascii_digit(peek())) return std::nullopt;
    uint32_t number = 0;
    while (is_ascii_digit(peek())) {
      number = std::min(number * 10 + static_cast<uint32_t>(peek() - U'0'), kRepeatMax + 1);
      ++at_;
    }
    return number;
  }

  Result<CodeSet> parse_class() {
    ++at_;
    const bool negated = skip(U"^");
    std::vector<CodeRange> ranges;
    if (peek() == U']') return fail("an empty class: write \\] for the bracket itself");
    while (peek() != U']') {
      if (!more()) return fail("a class '[' without its ']'");
      if (peek() == U'[' && (peek(1) == U':' || peek(1) == U'.' || peek(1) == U'=')) {
        return fail("POSIX classes such as [:alpha:] are not supported");
      }
      const CodeSet first = TRY(parse_class_member());
      const bool is_range = peek() == U'-' && at_ + 1 < text_.size() && peek(1) != U']';
      if (!is_range) {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
        continue;
      }
      ++at_;
      const CodeSet last = TRY(parse_class_member());
      const auto single = [](const CodeSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last;
      };
      if (!single(first) || !single(last) || first.ranges()[0].first > last.ranges()[0].first) {
        return fail("a range in a class that does not go from a letter to a later one");
      }
      ranges.push_back({first.ranges()[0].first, last.ranges()[0].first});
    }
    ++at_;
    const CodeSet set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  Result<CodeSet> parse_class_member() {
    if (!more()) return fail("a class '[' without its ']'");
    if (peek() == U'\\') return parse_escape(true);
    return CodeSet::of(text_[at_++]);
  }

  Result<CodeSet> parse_escape(bool in_class) {
    ++at_;
    if (!more()) return fail("a '\\' at the end");
    const char32_t letter = text_[at_++];
    switch (letter) {
      case U'd':
        return digit_codes();
      case U'D':
        return digit_codes().complement();
      case U'w':
        return word_codes();
      case U'W':
        return word_codes().complement();
      case U's':
        return space_codes();
      case U'S':
        return space_codes().complement();
      case U'n':
        return CodeSet::of('\n');
      case U'r':
        return CodeSet::of('\r');
      case U't':
        return CodeSet::of('\t');
      case U'f':
        return CodeSet::of('\f');
      case U'v':
        return CodeSet::of('\v');
      case U'p':
        return parse_property(false);
      case U'P':
        return parse_property(true);
      case U'x':
        return CodeSet::of(TRY(parse_code(2)));
      case U'u':
        return CodeSet::of(TRY(parse_code(4)));
      case U'b':
        if (in_class) return CodeSet::of('\b');
        return fail("\\b is not supported");
      case U'0':
        if (!is_ascii_digit(peek())) return CodeSet::of(0);
        return fail("octal escapes are not supported");
      default:
        break;
    }
    if (letter >= U'1' && letter <= U'9') return fail("back-references are not supported");
    const bool is_word = letter < 128 && word_codes().contains(letter) && letter != U'_';
    if (is_word) {
      return fail(fmt::format("the escape \\{} is not supported", static_cast<char>(letter)));
    }
    return CodeSet::of(letter);
  }

  Result<CodeSet> parse_property(bool negated) {
    std::string name;
    if (skip(U"{")) {
      while (more() && peek() != U'}') append_utf8(text_[at_++], name);
      if (!skip(U"}")) return fail("\\p{ without its '}'");
    } else if (more()) {
      append_utf8(text_[at_++], name);
    }
    for (const std::string_view prefix : {"gc=", "General_Category="}) {
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    }
    if (name == "Letter") name = "L";
    const CodeSet* const set = category_codes(name);
    if (set == nullptr) {
      return fail(fmt::format(
          "\\p{{{}}} is no general category of Unicode: one or two letters, such as \\p{{Lu}}",
          printable(name)));
    }
    TRY(budget_.spend(set->ranges().size()));
    return negated ? set->complement() : *set;
  }

  // \xHH, \uHHHH (or two of them, a surrogate pair) and \u{H...}.
  Result<uint32_t> parse_code(size_t digits) {
    if (skip(U"{")) {
      size_t count = 0;
      while (count < 6 && hex_digit(peek(count))) ++count;
      if (count == 0) return fail(kFewDigits);
      const uint32_t code = TRY(take_hex(count));
      if (!skip(U"}")) return fail("an escape without its '}'");
      return checked(code);
    }
    const uint32_t code = TRY(take_hex(digits));
    if (!is_high_surrogate(code) || !skip(U"\\u")) return checked(code);
    const uint32_t low = TRY(take_hex(4));
    if (!is_low_surrogate(low)) return fail("half of a surrogate pair");
    return static_cast<uint32_t>(join_surrogates(code, low));
  }

  Result<uint32_t> take_hex(size_t digits) {
    const std::optional<uint32_t> code =
        parse_hex(std::u32string_view(text_).substr(std::min(at_, text_.size())), digits);
    if (!code) return fail(kFewDigits);
    at_ += digits;
    return *code;
  }

  Result<uint32_t> checked(uint32_t code) const {
    if (is_scalar_value(code)) return code;
    return fail(fmt::format("U+{:04X} is no character", code));
  }

  static constexpr std::string_view kFewDigits = "an escape with too few hexadecimal digits";

  const std::u32string text_;
  ExprPool& pool_;
  Budget& budget_;
  size_t at_ = 0;
  ExprGroups groups_;
};

}  // namespace

Result<ExprId> parse_regex(std::string_view pattern, ExprPool& pool, Budget& budget) {
  if (!is_utf8(pattern)) return invalid_argument("regular expression: not UTF-8");
  std::u32string text;
  for (size_t offset = 0; offset < pattern.size();) {
    const DecodedCharacter next = decode_utf8(pattern, offset);
    text.push_back(next.code_point);
    offset += next.length;
  }
  TRY(budget.spend(text.size()));
  return RegexParser(std::move(text), pool, budget).parse();
}

Result<CharDfa> regex_dfa(std::string_view pattern, bool search, Budget& budget) {
  ExprPool pool;
  const ExprId root = TRY(parse_regex(pattern, pool, budget));
  return compile(pool, root, search, budget).with_context("regular expression");
}

}  // namespace strata::grammar
