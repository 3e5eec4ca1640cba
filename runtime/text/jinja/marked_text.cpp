#include "runtime/text/jinja/marked_text.h"

#include <algorithm>

namespace strata::jinja {

bool TextBuilder::reserve(size_t more) {
  if (more <= bytes_max_ - std::min(bytes_max_, size())) return true;
  overflowed_ = true;
  return false;
}

void TextBuilder::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!text_.foreign.empty() && text_.foreign.back().end == begin) {
    text_.foreign.back().end = end;
  } else {
    text_.foreign.push_back({begin, end});
  }
}

void TextBuilder::append(std::string_view text, bool is_foreign) {
  if (!reserve(text.size())) return;
  const size_t begin = size();
  text_.bytes += text;
  if (is_foreign) mark(begin, size());
}

void TextBuilder::append(const MarkedText& text, size_t begin, size_t end) {
  if (!reserve(end - begin)) return;
  const size_t base = size();
  text_.bytes.append(text.bytes, begin, end - begin);
  if (text.foreign.empty()) return;
  auto range =
      std::upper_bound(text.foreign.begin(), text.foreign.end(), begin,
                       [](size_t position, const ByteRange& r) { return position < r.end; });
  for (; range != text.foreign.end() && range->begin < end; ++range) {
    mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
  }
}

void TextBuilder::append_repeated(const MarkedText& text, size_t count) {
  if (text.bytes.empty()) return;
  if (count > bytes_max_ / text.bytes.size()) {
    overflowed_ = true;
    return;
  }
  for (size_t i = 0; i < count && !overflowed_; ++i) append(text);
}

void TextBuilder::append_repeated(std::string_view text, size_t count) {
  if (text.empty()) return;
  if (count > bytes_max_ / text.size() || !reserve(count * text.size())) {
    overflowed_ = true;
    return;
  }
  for (size_t i = 0; i < count; ++i) text_.bytes += text;
}

}  // namespace strata::jinja
