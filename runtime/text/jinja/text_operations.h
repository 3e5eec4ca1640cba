// What string methods and text filters share: stripping, splitting, replacing, changing case. All
// keep the origins of what they move.
//
// Threads: free functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/unicode_text.h"

namespace strata::jinja {

// Without the characters of `characters` (null: white space) at the chosen ends.
Result<Value> strip(Runtime& runtime, const Text& text, const Text* characters, bool left,
                    bool right);

// str.split() and, from the right, rsplit(); `separator` null: runs of white space. At most
// `splits_max` splits, none for -1.
Result<Value> split(Runtime& runtime, const Text& text, const Text* separator, int64_t splits_max,
                    bool from_right);

// The lines as [begin, end) without their breaks; `next`: where the following line begins.
struct Line {
  size_t begin;
  size_t end;
  size_t next;
};
std::vector<Line> lines_of(std::string_view text);

// At most `count_max` replacements from the left, all for -1.
Result<Value> replace(Runtime& runtime, const Text& text, const Text& old_text,
                      const Text& new_text, int64_t count_max);

Result<Value> with_case(Runtime& runtime, const Text& text, Case wanted);
// The first character in title case, the rest in lower case.
Result<Value> capitalize(Runtime& runtime, const Text& text);
// str.title(): each run of letters.
Result<Value> title(Runtime& runtime, const Text& text);

// Padded to `width` characters; the text itself where it is wider.
enum class Side : uint8_t { left, right, both };
Result<Value> pad(Runtime& runtime, const Text& text, int64_t width, std::string_view fill,
                  Side side);

// The texts with the separator between them.
Result<Value> join(Runtime& runtime, const Text& separator, const std::vector<TextRef>& parts);

// A search from the right compares at each place: counts that work beforehand.
Status charge_backward_search(Runtime& runtime, const Text& text, const Text& wanted);

// Byte offset of the first, or last, place of `wanted` in bytes [begin, end).
std::optional<size_t> find_text(const Text& text, const Text& wanted, size_t begin, size_t end,
                                bool last);

}  // namespace strata::jinja
