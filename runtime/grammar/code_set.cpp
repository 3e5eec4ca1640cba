#include "runtime/grammar/code_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace strata::grammar {

CodeSet::CodeSet(std::initializer_list<CodeRange> ranges) : ranges_(ranges) { normalise(); }

CodeSet::CodeSet(std::vector<CodeRange> ranges) : ranges_(std::move(ranges)) { normalise(); }

const CodeSet& CodeSet::all() {
  static const CodeSet set({{0, kCodeMax}});
  return set;
}

void CodeSet::normalise() {
  std::vector<CodeRange> cut;
  for (const CodeRange& range : ranges_) {
    if (range.first > range.last) continue;
    if (range.last < kSurrogateFirst || range.first > kSurrogateLast) {
      cut.push_back(range);
      continue;
    }
    if (range.first < kSurrogateFirst) cut.push_back({range.first, kSurrogateFirst - 1});
    if (range.last > kSurrogateLast) cut.push_back({kSurrogateLast + 1, range.last});
  }
  std::sort(cut.begin(), cut.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  ranges_.clear();
  for (const CodeRange& range : cut) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodeSet CodeSet::complement() const {
  CodeSet result;
  uint32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodeMax) result.ranges_.push_back({next, kCodeMax});
  result.normalise();
  return result;
}

bool CodeSet::contains(uint32_t code) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code,
                       [](uint32_t value, const CodeRange& range) { return value < range.first; });
  return after != ranges_.begin() && std::prev(after)->last >= code;
}

const CodeSet& digit_codes() {
  static const CodeSet set({{'0', '9'}});
  return set;
}

const CodeSet& word_codes() {
  static const CodeSet set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return set;
}

const CodeSet& space_codes() {
  static const CodeSet set({{0x09, 0x0D},
                            {0x20, 0x20},
                            {0xA0, 0xA0},
                            {0x1680, 0x1680},
                            {0x2000, 0x200A},
                            {0x2028, 0x2029},
                            {0x202F, 0x202F},
                            {0x205F, 0x205F},
                            {0x3000, 0x3000},
                            {0xFEFF, 0xFEFF}});
  return set;
}

const CodeSet& line_codes() {
  static const CodeSet set = CodeSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
  return set;
}

const CodeSet* category_codes(std::string_view name) {
  static const std::map<std::string, CodeSet, std::less<>> categories = [] {
    std::map<std::string, std::vector<CodeRange>, std::less<>> ranges;
    const auto add = [&ranges](std::string_view category, CodeRange range) {
      ranges[std::string(category)].push_back(range);
    };
    std::string_view current = "Cc";
    uint32_t first = 0;
    for (uint32_t code = 1; code <= kCodeMax + 1; ++code) {
      const std::string_view category =
          code <= kCodeMax ? utf8proc_category_string(static_cast<utf8proc_int32_t>(code)) : "";
      if (category == current) continue;
      add(current, {first, code - 1});
      add(current.substr(0, 1), {first, code - 1});
      current = category;
      first = code;
    }
    std::map<std::string, CodeSet, std::less<>> sets;
    for (auto& [category, codes] : ranges) sets.emplace(category, CodeSet(std::move(codes)));
    std::erase_if(sets, [](const auto& entry) { return entry.second.empty(); });
    return sets;
  }();
  const auto known = categories.find(name);
  return known == categories.end() ? nullptr : &known->second;
}

}  // namespace strata::grammar
