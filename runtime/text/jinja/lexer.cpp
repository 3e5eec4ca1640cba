#include "runtime/text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/string_escapes.h"
#include "runtime/text/jinja/unicode_text.h"

namespace strata::jinja {
namespace {

// "\r\n" and "\r" as "\n", and without the last line break: Jinja's newline_sequence and
// keep_trailing_newline.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) TRY(lex_root());
    add(TokenKind::end, at_, "");
    return std::move(tokens_);
  }

 private:
  // Text up to the next tag, and the tag.
  Status lex_root();
  Status lex_comment(size_t begin);
  // Takes "{% raw %}" if it stands at `begin`; `content` is where the raw text starts.
  bool is_raw_begin(size_t begin, size_t& content) const;
  Status lex_raw(size_t begin, size_t content);
  Status lex_tag(bool is_block);
  Status lex_token();
  Status lex_string();
  bool lex_number();
  Status lex_symbol();

  // Data [begin, end) before a tag whose sign is `sign`, trimmed as the sign and lstrip_blocks ask.
  void add_data(size_t begin, size_t end, char sign, bool may_strip_line);
  void add(TokenKind kind, size_t begin, std::string text) {
    tokens_.push_back({kind, position_of(begin), std::move(text), {}});
  }
  Status error(size_t offset, std::string_view message) {
    return invalid_argument(at_position(position_of(offset), message));
  }
  Position position_of(size_t offset);

  std::string_view rest() const { return source_.substr(at_); }
  char peek(size_t offset) const { return offset < source_.size() ? source_[offset] : '\0'; }
  size_t skip_spaces(size_t offset) const;
  char sign_at(size_t offset) const {
    const char c = peek(offset);
    return c == '-' || c == '+' ? c : '\0';
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;  // what was consumed last ended with a line break
  std::string open_brackets_;  // the closing ones expected
  std::vector<Token> tokens_;
  // The last answer of position_of(), which mostly moves forward.
  size_t known_offset_ = 0;
  Position known_{1, 1};
};

Position Lexer::position_of(size_t offset) {
  if (offset < known_offset_) {
    known_offset_ = 0;
    known_ = {1, 1};
  }
  for (; known_offset_ < offset; ++known_offset_) {
    const char c = source_[known_offset_];
    if (c == '\n') {
      ++known_.line;
      known_.column = 1;
    } else if ((static_cast<uint8_t>(c) & 0xC0) != 0x80) {
      ++known_.column;
    }
  }
  return known_;
}

size_t Lexer::skip_spaces(size_t offset) const {
  while (offset < source_.size()) {
    const Character c = character_at(source_, offset);
    if (!is_space(c.code_point)) break;
    offset += c.length;
  }
  return offset;
}

void Lexer::add_data(size_t begin, size_t end, char sign, bool may_strip_line) {
  if (sign == '-') {
    while (end > begin) {
      const Character c = character_before(source_, end);
      if (!is_space(c.code_point)) break;
      end = c.begin;
    }
  } else if (sign != '+' && may_strip_line) {
    const size_t line_break = source_.substr(begin, end - begin).rfind('\n');
    const bool has_break = line_break != std::string_view::npos;
    const size_t line = has_break ? begin + line_break + 1 : begin;
    if ((has_break || line_starting_) && skip_spaces(line) >= end) end = line;
  }
  if (end > begin) add(TokenKind::data, begin, std::string(source_.substr(begin, end - begin)));
}

Status Lexer::lex_root() {
  const size_t begin = at_;
  size_t tag = begin;
  while (true) {
    tag = source_.find('{', tag);
    if (tag == std::string_view::npos) {
      add_data(begin, source_.size(), '+', false);
      at_ = source_.size();
      return ok_status();
    }
    const char kind = peek(tag + 1);
    if (kind == '{' || kind == '%' || kind == '#') break;
    ++tag;
  }
  const char kind = source_[tag + 1];
  const char sign = sign_at(tag + 2);
  add_data(begin, tag, sign, kind != '{');
  at_ = tag + 2 + (sign != '\0' ? 1 : 0);
  if (kind == '#') return lex_comment(tag);
  size_t content = 0;
  if (kind == '%' && is_raw_begin(tag, content)) return lex_raw(tag, content);
  add(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin, tag, "");
  return lex_tag(kind == '%');
}

Status Lexer::lex_comment(size_t begin) {
  const size_t end = source_.find("#}", at_);
  if (end == std::string_view::npos) return error(begin, "the comment is never closed by '#}'");
  const char sign = end > at_ ? sign_at(end - 1) : '\0';
  at_ = end + 2;
  if (sign == '-') {
    at_ = skip_spaces(at_);
  } else if (sign != '+' && peek(at_) == '\n') {
    ++at_;
  }
  line_starting_ = source_[at_ - 1] == '\n';
  return ok_status();
}

bool Lexer::is_raw_begin(size_t begin, size_t& content) const {
  size_t at = begin + 2;
  if (sign_at(at) != '\0') ++at;
  at = skip_spaces(at);
  if (!source_.substr(at).starts_with("raw")) return false;
  at = skip_spaces(at + 3);
  const std::string_view end = source_.substr(at);
  if (end.starts_with("%}")) {
    content = at + 2;
    return true;
  }
  if (end.starts_with("-%}")) {
    content = skip_spaces(at + 3);
    return true;
  }
  return false;
}

Status Lexer::lex_raw(size_t begin, size_t content) {
  line_starting_ = content > 0 && source_[content - 1] == '\n';
  for (size_t tag = source_.find("{%", content); tag != std::string_view::npos;
       tag = source_.find("{%", tag + 1)) {
    const char sign = sign_at(tag + 2);
    size_t at = skip_spaces(tag + 2 + (sign != '\0' ? 1 : 0));
    if (!source_.substr(at).starts_with("endraw")) continue;
    at = skip_spaces(at + 6);
    const char end_sign = sign_at(at);
    if (end_sign != '\0') ++at;
    if (!source_.substr(at).starts_with("%}")) continue;
    at += 2;
    add_data(content, tag, sign, true);
    if (end_sign == '-') {
      at = skip_spaces(at);
    } else if (end_sign != '+' && peek(at) == '\n') {
      ++at;
    }
    at_ = at;
    line_starting_ = source_[at_ - 1] == '\n';
    return ok_status();
  }
  return error(begin, "the raw block is never closed by '{% endraw %}'");
}

Status Lexer::lex_tag(bool is_block) {
  const std::string_view close = is_block ? "%}" : "}}";
  open_brackets_.clear();
  while (true) {
    at_ = skip_spaces(at_);
    if (at_ >= source_.size()) return ok_status();  // the parser says what is missing
    if (open_brackets_.empty()) {
      char sign = sign_at(at_);
      if (sign == '+' && !is_block) sign = '\0';
      const size_t end = at_ + (sign != '\0' ? 1 : 0);
      if (source_.substr(end).starts_with(close)) {
        add(is_block ? TokenKind::block_end : TokenKind::variable_end, at_, "");
        at_ = end + 2;
        if (sign == '-') {
          at_ = skip_spaces(at_);
        } else if (is_block && sign != '+' && peek(at_) == '\n') {
          ++at_;
        }
        line_starting_ = source_[at_ - 1] == '\n';
        return ok_status();
      }
    }
    TRY(lex_token());
  }
}

Status Lexer::lex_token() {
  const Character first = character_at(source_, at_);
  if (first.code_point >= '0' && first.code_point <= '9' && lex_number()) return ok_status();
  if (first.code_point == '"' || first.code_point == '\'') return lex_string();
  if (!is_word(first.code_point)) return lex_symbol();
  const size_t begin = at_;
  while (at_ < source_.size()) {
    const Character c = character_at(source_, at_);
    if (!is_word(c.code_point)) break;
    at_ += c.length;
  }
  if (is_numeric(first.code_point)) return error(begin, "a name cannot begin with a digit");
  add(TokenKind::name, begin, std::string(source_.substr(begin, at_ - begin)));
  return ok_status();
}

Status Lexer::lex_string() {
  const size_t begin = at_;
  const char quote = source_[at_];
  size_t end = begin + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return error(begin, "the string is never closed");
  Result<std::string> text = unescape(source_.substr(begin + 1, end - begin - 1));
  if (!text.ok()) return error(begin, text.status().message());
  add(TokenKind::string, begin, std::move(text).value());
  at_ = end + 1;
  return ok_status();
}

// Digits with single underscores between them; 0 if there are none.
size_t digits_length(std::string_view text, std::string_view digits) {
  size_t length = 0;
  while (length < text.size()) {
    size_t next = length;
    if (length > 0 && text[next] == '_') ++next;
    if (next >= text.size() || digits.find(text[next]) == std::string_view::npos) break;
    length = next + 1;
  }
  return length;
}

constexpr std::string_view kDecimal = "0123456789";

// The length of a floating point literal at the front of the text, 0 if there is none.
size_t real_length(std::string_view text) {
  const size_t whole = digits_length(text, kDecimal);
  size_t length = whole;
  if (length < text.size() && text[length] == '.') {
    const size_t fraction = digits_length(text.substr(length + 1), kDecimal);
    if (fraction > 0) length += 1 + fraction;
  }
  if (length < text.size() && (text[length] == 'e' || text[length] == 'E')) {
    size_t at = length + 1;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t exponent = digits_length(text.substr(std::min(at, text.size())), kDecimal);
    if (exponent > 0) return at + exponent;
  }
  return length > whole ? length : 0;
}

bool Lexer::lex_number() {
  const std::string_view text = rest();
  const auto take = [this](size_t length, TokenKind kind, Value value) {
    add(kind, at_, std::string(source_.substr(at_, length)));
    tokens_.back().value = std::move(value);
    at_ += length;
    return true;
  };
  const auto without_underscores = [](std::string_view digits) {
    std::string plain(digits);
    std::erase(plain, '_');
    return plain;
  };
  const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
  if (const size_t length = after_dot ? 0 : real_length(text); length > 0) {
    const std::string digits = without_underscores(text.substr(0, length));
    double value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (parsed.ec == std::errc::result_out_of_range) value = std::strtod(digits.c_str(), nullptr);
    return take(length, TokenKind::real, value);
  }
  if (text[0] == '0' && text.size() > 2) {
    constexpr std::string_view kHex = "0123456789abcdefABCDEF";
    const char letter = static_cast<char>(text[1] | 0x20);
    const int64_t base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    const size_t skip = base != 0 && text[2] == '_' ? 3 : 2;
    const size_t length =
        base == 0 ? 0 : digits_length(text.substr(skip), kHex.substr(0, base == 16 ? 22 : base));
    if (length > 0) {
      BigInteger value;
      for (const char c : without_underscores(text.substr(skip, length))) {
        const int64_t digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
        value = value * BigInteger(base) + BigInteger(digit);
        if (value.bits() > BigInteger::kBitsMax) return false;
      }
      return take(skip + length, TokenKind::integer, Value::of(std::move(value)));
    }
  }
  // Zeros only, or a number without a leading zero.
  const size_t length = digits_length(text, text[0] == '0' ? "0" : kDecimal);
  const std::string digits = without_underscores(text.substr(0, length));
  if (digits.size() > 4300) return false;
  return take(length, TokenKind::integer, Value::of(*BigInteger::parse(digits)));
}

Status Lexer::lex_symbol() {
  constexpr std::array<std::string_view, 6> kPairs = {"**", "//", "==", "!=", ">=", "<="};
  constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
  const std::string_view text = rest();
  size_t length = kSingles.find(text[0]) != std::string_view::npos ? 1 : 0;
  for (const std::string_view pair : kPairs) {
    if (text.starts_with(pair)) length = 2;
  }
  if (length == 0) {
    const Character c = character_at(source_, at_);
    return error(at_,
                 fmt::format("unexpected character '{}'", printable(text.substr(0, c.length))));
  }
  if (length == 1) {
    const size_t opening = std::string_view("{([").find(text[0]);
    if (opening != std::string_view::npos) open_brackets_ += "})]"[opening];
    if (std::string_view("})]").find(text[0]) != std::string_view::npos) {
      if (open_brackets_.empty()) return error(at_, fmt::format("unexpected '{}'", text[0]));
      if (open_brackets_.back() != text[0]) {
        return error(at_,
                     fmt::format("unexpected '{}', expected '{}'", text[0], open_brackets_.back()));
      }
      open_brackets_.pop_back();
    }
  }
  add(TokenKind::symbol, at_, std::string(text.substr(0, length)));
  at_ += length;
  return ok_status();
}

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  const std::string text = normalized(source);
  return Lexer(text).run();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::data:
      return "text";
    case TokenKind::string:
      return fmt::format("the string '{}'", printable(token.text, 40));
    default:
      return fmt::format("'{}'", printable(token.text, 40));
  }
}

}  // namespace strata::jinja
