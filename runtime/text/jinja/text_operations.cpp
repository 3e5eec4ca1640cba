#include "runtime/text/jinja/text_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace strata::jinja {
namespace {

// Whether a character is one of those to strip.
class StripSet {
 public:
  explicit StripSet(const Text* characters) : characters_(characters) {}
  bool has(std::string_view text, const Character& c) const {
    if (characters_ == nullptr) return is_space(c.code_point);
    return characters_->bytes.find(text.substr(c.begin, c.length)) != std::string::npos;
  }

 private:
  const Text* characters_;
};

Result<Value> split_on_spaces(Runtime& runtime, const Text& text, int64_t splits_max) {
  std::vector<Value> parts;
  const std::string& bytes = text.bytes;
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < bytes.size()) {
      const Character c = character_at(bytes, at);
      if (is_space(c.code_point) != spaces) break;
      at += c.length;
    }
  };
  skip(true);
  while (at < bytes.size()) {
    const size_t begin = at;
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) == splits_max) {
      at = bytes.size();
    } else {
      skip(false);
    }
    parts.push_back(TRY(runtime.slice(text, begin, at)));
    skip(true);
  }
  return Value(runtime.list(std::move(parts)));
}

Result<Value> rsplit_on_spaces(Runtime& runtime, const Text& text, int64_t splits_max) {
  std::vector<Value> parts;
  const std::string& bytes = text.bytes;
  size_t end = bytes.size();
  const auto skip = [&](bool spaces) {
    while (end > 0) {
      const Character c = character_before(bytes, end);
      if (is_space(c.code_point) != spaces) break;
      end = c.begin;
    }
  };
  skip(true);
  while (end > 0) {
    const size_t part_end = end;
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) == splits_max) {
      end = 0;
    } else {
      skip(false);
    }
    parts.push_back(TRY(runtime.slice(text, end, part_end)));
    skip(true);
  }
  std::reverse(parts.begin(), parts.end());
  return Value(runtime.list(std::move(parts)));
}

void append_character_cased(const Text& text, const Character& c, Case wanted, bool foreign,
                            TextBuilder& out) {
  std::string changed;
  append_cased(text.bytes, c, wanted, changed);
  out.append(changed, foreign);
}

}  // namespace

Status charge_backward_search(Runtime& runtime, const Text& text, const Text& wanted) {
  return runtime.charge(1 + text.bytes.size() / 64 * (1 + wanted.bytes.size()));
}

Result<Value> strip(Runtime& runtime, const Text& text, const Text* characters, bool left,
                    bool right) {
  const StripSet set(characters);
  const uint64_t set_cost = characters == nullptr ? 0 : 1 + characters->bytes.size() / 64;
  size_t begin = 0;
  size_t end = text.bytes.size();
  while (left && begin < end) {
    const Character c = character_at(text.bytes, begin);
    TRY(runtime.charge(set_cost));
    if (!set.has(text.bytes, c)) break;
    begin += c.length;
  }
  while (right && end > begin) {
    const Character c = character_before(text.bytes, end);
    TRY(runtime.charge(set_cost));
    if (!set.has(text.bytes, c)) break;
    end = c.begin;
  }
  return runtime.slice(text, begin, end);
}

Result<Value> split(Runtime& runtime, const Text& text, const Text* separator, int64_t splits_max,
                    bool from_right) {
  if (separator == nullptr) {
    return from_right ? rsplit_on_spaces(runtime, text, splits_max)
                      : split_on_spaces(runtime, text, splits_max);
  }
  if (separator->bytes.empty()) return runtime.error("empty separator");
  if (from_right) TRY(charge_backward_search(runtime, text, *separator));
  std::vector<Value> parts;
  size_t begin = 0;
  size_t end = text.bytes.size();
  while (splits_max < 0 || static_cast<int64_t>(parts.size()) < splits_max) {
    const std::optional<size_t> found = find_text(text, *separator, begin, end, from_right);
    if (!found) break;
    const size_t behind = *found + separator->bytes.size();
    parts.push_back(from_right ? TRY(runtime.slice(text, behind, end))
                               : TRY(runtime.slice(text, begin, *found)));
    if (from_right) {
      end = *found;
    } else {
      begin = behind;
    }
  }
  parts.push_back(TRY(runtime.slice(text, begin, end)));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return Value(runtime.list(std::move(parts)));
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    at += c.length;
    if (!is_line_break(c.code_point)) continue;
    if (c.code_point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back({begin, c.begin, at});
    begin = at;
  }
  if (begin < text.size()) lines.push_back({begin, text.size(), text.size()});
  return lines;
}

Result<Value> replace(Runtime& runtime, const Text& text, const Text& old_text,
                      const Text& new_text, int64_t count_max) {
  TextBuilder out = runtime.builder();
  const std::string& bytes = text.bytes;
  TRY(runtime.charge_bytes(bytes.size()));
  size_t at = 0;
  int64_t count = 0;
  while ((count_max < 0 || count < count_max) && !out.overflowed()) {
    if (old_text.bytes.empty()) {
      // Before each character and at the end.
      out.append(new_text);
      ++count;
      if (at >= bytes.size()) return runtime.text(std::move(out), text.markup);
      const size_t length = character_at(bytes, at).length;
      out.append(text, at, at + length);
      at += length;
      continue;
    }
    const std::optional<size_t> found = find_text(text, old_text, at, bytes.size(), false);
    if (!found) break;
    out.append(text, at, *found);
    out.append(new_text);
    at = *found + old_text.bytes.size();
    ++count;
  }
  out.append(text, at, bytes.size());
  return runtime.text(std::move(out), text.markup);
}

Result<Value> with_case(Runtime& runtime, const Text& text, Case wanted) {
  TextBuilder out = runtime.builder();
  OriginCursor origin(text);
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    append_character_cased(text, c, wanted, origin.is_foreign(at), out);
    at += c.length;
  }
  return runtime.text(std::move(out), text.markup);
}

Result<Value> capitalize(Runtime& runtime, const Text& text) {
  TextBuilder out = runtime.builder();
  OriginCursor origin(text);
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    append_character_cased(text, c, at == 0 ? Case::title : Case::lower, origin.is_foreign(at),
                           out);
    at += c.length;
  }
  return runtime.text(std::move(out), text.markup);
}

Result<Value> title(Runtime& runtime, const Text& text) {
  TextBuilder out = runtime.builder();
  OriginCursor origin(text);
  bool in_word = false;
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    append_character_cased(text, c, in_word ? Case::lower : Case::title, origin.is_foreign(at),
                           out);
    in_word = is_cased(c.code_point);
    at += c.length;
  }
  return runtime.text(std::move(out), text.markup);
}

Result<Value> pad(Runtime& runtime, const Text& text, int64_t width, std::string_view fill,
                  Side side) {
  const auto length = static_cast<int64_t>(text.length);
  const int64_t missing = std::max<int64_t>(width - length, 0);
  int64_t left = side == Side::left ? missing : 0;
  // As CPython rounds: the odd one goes left where both the gap and the width are odd.
  if (side == Side::both) left = missing / 2 + (missing & width & 1);
  TextBuilder out = runtime.builder();
  out.append_repeated(fill, static_cast<size_t>(left));
  out.append(text);
  out.append_repeated(fill, static_cast<size_t>(missing - left));
  return runtime.text(std::move(out), text.markup);
}

Result<Value> join(Runtime& runtime, const Text& separator, const std::vector<TextRef>& parts) {
  TextBuilder out = runtime.builder();
  for (size_t i = 0; i < parts.size(); ++i) {
    TRY(runtime.charge());
    if (i > 0) out.append(separator);
    out.append(*parts[i]);
  }
  return runtime.text(std::move(out), separator.markup);
}

std::optional<size_t> find_text(const Text& text, const Text& wanted, size_t begin, size_t end,
                                bool last) {
  if (begin > end) return std::nullopt;
  const std::string_view window = std::string_view(text.bytes).substr(begin, end - begin);
  if (last) {
    const size_t at = window.rfind(wanted.bytes);
    if (at == std::string_view::npos) return std::nullopt;
    return begin + at;
  }
  // memmem and not find(): linear in the worst case.
  const void* at = ::memmem(window.data(), window.size(), wanted.bytes.data(), wanted.bytes.size());
  if (at == nullptr) return std::nullopt;
  return begin + static_cast<size_t>(static_cast<const char*>(at) - window.data());
}

}  // namespace strata::jinja
