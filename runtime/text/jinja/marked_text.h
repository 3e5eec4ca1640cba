// Text that remembers which of its bytes came from outside of the template.
//
// A chat template mixes its own words with those of users. Only its own may become control tokens,
// so each string of a rendering carries the byte ranges that messages, tools and variables gave;
// concatenation, slices and all string methods carry them along. Where a method cannot say, the
// whole result counts as a user's.
//
// Threads: immutable once made; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::jinja {

// Bytes [begin, end).
struct ByteRange {
  size_t begin;
  size_t end;
  bool operator==(const ByteRange&) const = default;
};

// UTF-8 and its ranges of foreign origin: ascending, apart, not empty.
struct MarkedText {
  std::string bytes;
  std::vector<ByteRange> foreign;

  bool has_foreign() const { return !foreign.empty(); }
};

// Collects a text piece by piece, up to a limit. What does not fit is dropped and remembered, so
// that callers ask once, at the end.
class TextBuilder {
 public:
  explicit TextBuilder(size_t bytes_max) : bytes_max_(bytes_max) {}

  void append(std::string_view text, bool is_foreign);
  void append(const MarkedText& text) { append(text, 0, text.bytes.size()); }
  // Bytes [begin, end) of `text`. Requires: begin <= end <= size.
  void append(const MarkedText& text, size_t begin, size_t end);
  // `text` `count` times; cheap when it does not fit.
  void append_repeated(const MarkedText& text, size_t count);
  void append_repeated(std::string_view text, size_t count);

  size_t size() const { return text_.bytes.size(); }
  bool overflowed() const { return overflowed_; }
  MarkedText take() { return std::move(text_); }

 private:
  bool reserve(size_t more);
  void mark(size_t begin, size_t end);

  MarkedText text_;
  size_t bytes_max_;
  bool overflowed_ = false;
};

// Walks through the foreign ranges of a text in ascending order of positions.
class OriginCursor {
 public:
  explicit OriginCursor(const MarkedText& text) : text_(text) {}
  // Requires: positions never fall from call to call.
  bool is_foreign(size_t position) {
    while (next_ < text_.foreign.size() && text_.foreign[next_].end <= position) ++next_;
    return next_ < text_.foreign.size() && text_.foreign[next_].begin <= position;
  }

 private:
  const MarkedText& text_;
  size_t next_ = 0;
};

}  // namespace strata::jinja
