#include "runtime/text/bpe_tokenizer.h"

#include <queue>

#include "runtime/base/utf8.h"
#include "runtime/text/byte_level.h"
#include "runtime/text/unicode.h"

namespace strata {
namespace {

// A token of the word in a doubly linked list.
struct Link {
  int32_t id;  // -1: no token
  int32_t previous;
  int32_t next;
  bool joined;  // into its left neighbour
};

struct Pair {
  int32_t rank;
  int32_t left;  // index of the left link
  int32_t left_id;
  int32_t right_id;  // the ids when the pair was found; others now mean that it is stale
  int32_t id;

  // std::priority_queue gives the largest first: the lowest rank, then the leftmost.
  bool operator<(const Pair& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

// Merges the tokens of one word until no pair merges.
class Merger {
 public:
  Merger(const MergeTable& merges, std::vector<Link> links)
      : merges_(merges), links_(std::move(links)) {}

  void run() {
    for (size_t i = 0; i + 1 < links_.size(); ++i) add_pair(static_cast<int32_t>(i));
    while (!pairs_.empty()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      Link& left = at(pair.left);
      if (left.joined || left.next < 0) continue;
      Link& right = at(left.next);
      if (left.id != pair.left_id || right.id != pair.right_id) continue;
      left.id = pair.id;
      right.joined = true;
      left.next = right.next;
      if (left.next >= 0) {
        at(left.next).previous = pair.left;
        add_pair(pair.left);
      }
      if (left.previous >= 0) add_pair(left.previous);
    }
  }

  const std::vector<Link>& links() const { return links_; }

 private:
  Link& at(int32_t index) { return links_[static_cast<size_t>(index)]; }

  // The link and its right neighbour, which it must have.
  void add_pair(int32_t index) {
    const Link& left = at(index);
    const Link& right = at(left.next);
    const Merge merge = merges_.find(left.id, right.id);
    if (merge.rank >= 0) pairs_.push({merge.rank, index, left.id, right.id, merge.id});
  }

  const MergeTable& merges_;
  std::vector<Link> links_;
  std::priority_queue<Pair> pairs_;
};

// Longer words are cut: link indices have 32 bits, and this is far beyond any request.
constexpr size_t kWordBytesMax = size_t{1} << 30;

}  // namespace

BpeTokenizer::BpeTokenizer(Vocab moved, MergeTable merges, Pretokenizer pretokenizer)
    : Tokenizer(std::move(moved)),
      merges_(std::move(merges)),
      pretokenizer_(std::move(pretokenizer)) {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = vocab().find(byte_level_character(static_cast<uint8_t>(byte)));
  }
}

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::create(Vocab vocab, const Metadata& metadata) {
  Result<Pretokenizer> pretokenizer = Pretokenizer::create(vocab.pre());
  if (!pretokenizer.ok()) return pretokenizer.status().with_context(metadata.source());
  MergeTable merges = TRY(MergeTable::load(metadata, vocab));
  return std::unique_ptr<BpeTokenizer>(
      new BpeTokenizer(std::move(vocab), std::move(merges), std::move(pretokenizer).value()));
}

void BpeTokenizer::encode_plain(std::string_view text, bool /*after_special*/,
                                std::vector<int32_t>& ids) const {
  std::string repaired;
  if (!is_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  size_t begin = 0;
  for (const size_t end : pretokenizer_.split(text)) {
    for (; begin < end; begin += std::min(end - begin, kWordBytesMax)) {
      encode_word(text.substr(begin, std::min(end - begin, kWordBytesMax)), ids);
    }
  }
}

void BpeTokenizer::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (pretokenizer_.spec().ignores_merges) {
    const int32_t whole = vocab().find(byte_level_spell(word));
    if (whole >= 0 && vocab().is_text(whole)) {
      ids.push_back(whole);
      return;
    }
  }
  std::vector<Link> links(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    links[i] = {byte_ids_[static_cast<unsigned char>(word[i])], index - 1, index + 1, false};
  }
  links.back().next = -1;
  Merger merger(merges_, std::move(links));
  merger.run();
  for (const Link& link : merger.links()) {
    // A byte that the vocabulary has no token for is left out, as in the reference: the unknown
    // token of these families is often the end of text.
    if (!link.joined && link.id >= 0) ids.push_back(link.id);
  }
}

std::string BpeTokenizer::plain_piece(int32_t id) const {
  return byte_level_read(vocab().text(id));
}

}  // namespace strata
