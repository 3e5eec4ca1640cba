#include "runtime/grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/base/ascii.h"
#include "runtime/base/utf8.h"
#include "runtime/text/unicode.h"

namespace strata::grammar {
namespace {

constexpr size_t kGroupsMax = 1000;
constexpr uint32_t kRepeatMax = 100000;
constexpr size_t kRulesMax = 20000;
constexpr ExprId kNoExpr = 0xFFFFFFFF;

bool is_name_letter(char c) {
  return is_ascii_letter(c) || is_ascii_digit(c) || c == '-' || c == '_';
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, ExprPool& pool) : text_(text), pool_(pool), groups_(pool) {}

  Result<GbnfRules> parse() {
    (void)rule_number("root");
    skip_space();
    while (at_ < text_.size()) TRY(parse_rule());
    for (size_t rule = 0; rule < rules_.names.size(); ++rule) {
      if (rules_.bodies[rule] != kNoExpr) continue;
      if (rule == 0) {
        return invalid_argument("grammar: there is no rule 'root', which is where a text begins");
      }
      at_ = first_uses_[rule];
      return fail(fmt::format("there is no rule '{}'", printable(rules_.names[rule])));
    }
    return std::move(rules_);
  }

 private:
  Status fail(std::string_view what) const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t line_begin = before.rfind('\n') + 1;  // 0 in the first line
    return invalid_argument(
        fmt::format("grammar, line {} column {}: {}", line, before.size() - line_begin + 1, what));
  }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool skip(std::string_view text) {
    if (text_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (is_json_space(c)) {
        ++at_;
      } else {
        return;
      }
    }
  }
  std::string take_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_letter(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  uint32_t rule_number(const std::string& name) {
    const auto [entry, is_new] =
        numbers_.try_emplace(name, static_cast<uint32_t>(rules_.names.size()));
    if (is_new) {
      rules_.names.push_back(name);
      rules_.bodies.push_back(kNoExpr);
      first_uses_.push_back(at_);
    }
    return entry->second;
  }

  // Whether a rule begins here, without moving.
  bool at_rule() {
    const size_t begin = at_;
    const bool has_name = !take_name().empty();
    while (peek() == ' ' || peek() == '\t') ++at_;
    const bool result = has_name && text_.substr(at_).starts_with("::=");
    at_ = begin;
    return result;
  }

  Status parse_rule() {
    const size_t begin = at_;
    const std::string name = take_name();
    if (name.empty()) return fail("a rule's name is expected");
    skip_space();
    if (!skip("::=")) return fail(fmt::format("'::=' is expected after '{}'", printable(name)));
    const uint32_t rule = rule_number(name);
    if (rules_.names.size() > kRulesMax) {
      return fail(fmt::format("more than {} rules", kRulesMax));
    }
    if (rules_.bodies[rule] != kNoExpr) {
      at_ = begin;
      return fail(fmt::format("rule '{}' is given a second time", printable(name)));
    }
    groups_.open();
    skip_space();
    while (at_ < text_.size() && !at_rule()) {
      TRY(parse_item());
      skip_space();
    }
    if (groups_.depth() > 1) return fail("a '(' without its ')'");
    rules_.bodies[rule] = groups_.close();
    return ok_status();
  }

  Status parse_item() {
    const char c = peek();
    if (c == '|') {
      ++at_;
      groups_.next_alternative();
      return ok_status();
    }
    if (c == '(') {
      ++at_;
      if (groups_.depth() > kGroupsMax) {
        return fail(fmt::format("more than {} groups inside each other", kGroupsMax));
      }
      groups_.open();
      return ok_status();
    }
    if (c == ')') {
      if (groups_.depth() == 1) return fail("a ')' without its '('");
      ++at_;
      return repeated(groups_.close());
    }
    if (c == '"') return repeated(TRY(parse_literal()));
    if (c == '[') return repeated(pool_.chars(TRY(parse_class())));
    if (c == '.') {
      ++at_;
      return repeated(pool_.chars(CodeSet::all()));
    }
    if (c == '<' || (c == '!' && peek(1) == '<')) {
      return fail("references to tokens are not supported");
    }
    if (is_name_letter(c)) return repeated(pool_.call(rule_number(take_name())));
    return fail(fmt::format("'{}' is not expected here", printable(text_.substr(at_, 1))));
  }

  Status repeated(ExprId expr) {
    while (true) {
      skip_blanks();
      if (skip("*")) {
        expr = pool_.repeat(expr, 0, kUnbounded);
      } else if (skip("+")) {
        expr = pool_.repeat(expr, 1, kUnbounded);
      } else if (skip("?")) {
        expr = pool_.repeat(expr, 0, 1);
      } else if (peek() == '{') {
        expr = TRY(parse_counts(expr));
      } else {
        break;
      }
    }
    groups_.push(expr);
    return ok_status();
  }

  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }

  Result<uint32_t> parse_number() {
    if (!is_ascii_digit(peek())) return fail("a number is expected");
    uint32_t number = 0;
    while (is_ascii_digit(peek())) {
      number = std::min(number * 10 + static_cast<uint32_t>(peek() - '0'), kRepeatMax + 1);
      ++at_;
    }
    if (number > kRepeatMax) return fail(fmt::format("a repetition of more than {}", kRepeatMax));
    return number;
  }

  Result<ExprId> parse_counts(ExprId expr) {
    ++at_;
    skip_blanks();
    uint32_t min = 0;
    if (peek() != ',') min = TRY(parse_number());
    uint32_t max = min;
    skip_blanks();
    if (skip(",")) {
      skip_blanks();
      max = kUnbounded;
      if (peek() != '}') max = TRY(parse_number());
      skip_blanks();
    }
    if (!skip("}")) return fail("'}' is expected after a repetition's counts");
    if (min > max) return fail(fmt::format("a repetition of {} to {} times", min, max));
    return pool_.repeat(expr, min, max);
  }

  Result<ExprId> parse_literal() {
    ++at_;
    std::vector<ExprId> letters;
    while (peek() != '"') {
      if (at_ >= text_.size() || peek() == '\n') return fail("a literal without its closing '\"'");
      letters.push_back(pool_.chars(CodeSet::of(TRY(parse_letter()))));
    }
    ++at_;
    return pool_.sequence(std::move(letters));
  }

  Result<CodeSet> parse_class() {
    ++at_;
    const bool negated = skip("^");
    std::vector<CodeRange> ranges;
    while (peek() != ']') {
      if (at_ >= text_.size()) return fail("a class '[' without its ']'");
      const uint32_t first = TRY(parse_letter());
      uint32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        if (at_ >= text_.size()) return fail("a class '[' without its ']'");
        last = TRY(parse_letter());
      }
      if (first > last) return fail("a range in a class that goes backwards");
      ranges.push_back({first, last});
    }
    ++at_;
    const CodeSet set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  // One character of a literal or a class. Requires: at_ < text_.size().
  Result<uint32_t> parse_letter() {
    if (peek() != '\\') {
      const DecodedCharacter next = decode_utf8(text_, at_);
      if (!next.valid) return fail("not UTF-8");
      at_ += next.length;
      return static_cast<uint32_t>(next.code_point);
    }
    ++at_;
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n':
        return uint32_t{'\n'};
      case 'r':
        return uint32_t{'\r'};
      case 't':
        return uint32_t{'\t'};
      case 'x':
        return parse_code(2);
      case 'u':
        return parse_code(4);
      case 'U':
        return parse_code(8);
      case '"':
      case '\'':
      case '\\':
      case '/':
      case '[':
      case ']':
      case '^':
      case '-':
        return static_cast<uint32_t>(c);
      default:
        break;
    }
    --at_;
    return fail(fmt::format("the escape '\\{}' is not known", printable(text_.substr(at_, 1))));
  }

  Result<uint32_t> parse_code(size_t digits) {
    const std::optional<uint32_t> code =
        parse_hex(text_.substr(std::min(at_, text_.size())), digits);
    if (!code) return fail(fmt::format("an escape of {} hexadecimal digits is expected", digits));
    at_ += digits;
    if (!is_scalar_value(*code)) return fail(fmt::format("U+{:04X} is no character", *code));
    return *code;
  }

  const std::string_view text_;
  ExprPool& pool_;
  size_t at_ = 0;
  GbnfRules rules_;
  std::map<std::string, uint32_t> numbers_;
  std::vector<size_t> first_uses_;  // offsets, for messages
  ExprGroups groups_;
};

}  // namespace

Result<GbnfRules> parse_gbnf(std::string_view text, ExprPool& pool) {
  return GbnfParser(text, pool).parse();
}

}  // namespace strata::grammar
