#include "runtime/text/spm_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "runtime/text/unicode.h"

namespace strata {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// A piece of the text in a doubly linked list; joined pieces have size 0.
struct Piece {
  size_t begin;
  size_t size;
  int64_t previous;  // -1: none
  int64_t next;      // -1: none
};

// Two neighbours that together are a token.
struct Pair {
  float score;
  int64_t left;
  int64_t right;
  size_t size;  // of both when it was found; another size now means that the pair is stale

  // std::priority_queue gives the largest first: the best score, then the leftmost.
  bool operator<(const Pair& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

// Joins pieces of one text until no pair is a token.
class Joiner {
 public:
  Joiner(const Vocab& vocab, std::string_view text) : vocab_(vocab), text_(text) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t size = decode_utf8(text, begin).length;  // 1 for what is no character
      const auto index = static_cast<int64_t>(pieces_.size());
      pieces_.push_back({begin, size, index - 1, index + 1});
      begin += size;
    }
    pieces_.back().next = -1;
  }

  void run() {
    for (size_t i = 1; i < pieces_.size(); ++i) {
      add_pair(static_cast<int64_t>(i) - 1, static_cast<int64_t>(i));
    }
    while (!pairs_.empty()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      Piece& left = at(pair.left);
      Piece& right = at(pair.right);
      if (left.size == 0 || right.size == 0 || left.size + right.size != pair.size) continue;
      left.size += right.size;
      right.size = 0;
      left.next = right.next;
      if (right.next >= 0) at(right.next).previous = pair.left;
      if (left.previous >= 0) add_pair(left.previous, pair.left);
      if (left.next >= 0) add_pair(pair.left, left.next);
    }
  }

  template <typename Visit>
  void for_each_piece(Visit visit) const {
    for (const Piece& piece : pieces_) {
      if (piece.size > 0) visit(text_.substr(piece.begin, piece.size));
    }
  }

 private:
  Piece& at(int64_t index) { return pieces_[static_cast<size_t>(index)]; }

  void add_pair(int64_t left, int64_t right) {
    const size_t size = at(left).size + at(right).size;
    const int32_t id = vocab_.find(text_.substr(at(left).begin, size));
    if (id >= 0 && vocab_.is_text(id)) pairs_.push({vocab_.score(id), left, right, size});
  }

  const Vocab& vocab_;
  std::string_view text_;
  std::vector<Piece> pieces_;
  std::priority_queue<Pair> pairs_;
};

// Where the first space mark behind another character begins at or after `from`; npos for none.
size_t find_inner_mark(std::string_view text, size_t from) {
  for (size_t at = text.find(kSpaceMark, from); at != std::string_view::npos;
       at = text.find(kSpaceMark, at + kSpaceMark.size())) {
    if (at > 0 && !text.substr(0, at).ends_with(kSpaceMark)) return at;
  }
  return std::string_view::npos;
}

// "<0x0A>" as 10, -1 for anything else.
int byte_of_text(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

SpmTokenizer::SpmTokenizer(Vocab moved) : Tokenizer(std::move(moved)) {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = vocab().find(fmt::format("<0x{:02X}>", byte));
    // A vocabulary without byte tokens may still have the character itself.
    const char character = static_cast<char>(byte);
    if (byte_ids_[byte] < 0) byte_ids_[byte] = vocab().find(std::string_view(&character, 1));
  }
  for (int32_t id = 0; id < vocab().size() && words_are_independent_; ++id) {
    words_are_independent_ =
        !vocab().is_text(id) || find_inner_mark(vocab().text(id), 0) == std::string_view::npos;
  }
}

void SpmTokenizer::append_bytes(std::string_view bytes, std::vector<int32_t>& ids) const {
  for (const char byte : bytes) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id >= 0) {
      ids.push_back(id);
    } else if (vocab().special().unk >= 0) {
      ids.push_back(vocab().special().unk);
    }
  }
}

void SpmTokenizer::encode_plain(std::string_view text, bool after_special,
                                std::vector<int32_t>& ids) const {
  std::string marked;
  marked.reserve(text.size() + text.size() / 4 + kSpaceMark.size());
  if (after_special && vocab().add_space_prefix()) marked += kSpaceMark;
  for (const char byte : text) {
    if (byte == ' ') {
      marked += kSpaceMark;
    } else {
      marked += byte;
    }
  }
  const std::string_view whole = marked;
  for (size_t begin = 0; begin < whole.size();) {
    const size_t mark =
        words_are_independent_ ? find_inner_mark(whole, begin + 1) : std::string_view::npos;
    const size_t end = std::min(mark, whole.size());
    encode_stretch(whole.substr(begin, end - begin), ids);
    begin = end;
  }
}

void SpmTokenizer::encode_stretch(std::string_view marked, std::vector<int32_t>& ids) const {
  Joiner joiner(vocab(), marked);
  joiner.run();
  joiner.for_each_piece([&](std::string_view piece) {
    const int32_t id = vocab().find(piece);
    if (id >= 0 && vocab().is_text(id)) {
      ids.push_back(id);
    } else {
      append_bytes(piece, ids);
    }
  });
}

std::string SpmTokenizer::plain_piece(int32_t id) const {
  const std::string_view text = vocab().text(id);
  if (vocab().type(id) == TokenType::byte) {
    const int byte = byte_of_text(text);
    if (byte >= 0) return std::string(1, static_cast<char>(byte));
  }
  std::string piece;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i).starts_with(kSpaceMark)) {
      piece += ' ';
      i += kSpaceMark.size();
    } else {
      piece += text[i++];
    }
  }
  return piece;
}

}  // namespace strata
