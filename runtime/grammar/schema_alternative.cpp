#include "runtime/grammar/schema_alternative.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "runtime/grammar/formats.h"
#include "runtime/grammar/number_dfa.h"
#include "runtime/grammar/regex.h"

namespace strata::grammar {
namespace {

using Kind = JsonValue::Kind;

constexpr uint32_t kCountedTextMax = 5000;  // lengths that become states beside a pattern

// The most characters that the automaton takes; none if there is no most.
std::optional<uint32_t> longest_text(const CharDfa& dfa) {
  // Takes away states that nothing leads to any more; what stays lies on a circle.
  const size_t count = dfa.states.size();
  std::vector<uint32_t> incoming(count);
  for (const CharDfa::State& state : dfa.states) {
    for (const CharDfa::Edge& edge : state.edges) ++incoming[edge.target];
  }
  std::vector<uint32_t> length(count);
  std::vector<uint32_t> work;
  if (count > 0 && incoming[0] == 0) work.push_back(0);
  size_t taken = 0;
  for (; taken < work.size(); ++taken) {
    for (const CharDfa::Edge& edge : dfa.states[work[taken]].edges) {
      length[edge.target] = std::max(length[edge.target], length[work[taken]] + 1);
      if (--incoming[edge.target] == 0) work.push_back(edge.target);
    }
  }
  if (taken < count) return std::nullopt;
  return count == 0 ? 0 : *std::max_element(length.begin(), length.end());
}

}  // namespace

std::string AlternativeBuilder::place(const Condition& condition, std::string_view keyword) const {
  return fmt::format("schema at {}: {}", values_.schema_.path(condition.node), keyword);
}

Status AlternativeBuilder::add_to(ValueDef& def) {
  TRY(read_conditions());
  if ((types_ & kTypeNull) != 0) def.has_null = def.has_null || allows_null_;
  if ((types_ & kTypeBoolean) != 0) {
    def.has_true = def.has_true || allows_true_;
    def.has_false = def.has_false || allows_false_;
  }
  if ((types_ & kTypeNumber) != 0) TRY(add_numbers(def));
  if ((types_ & kTypeString) != 0) TRY(add_strings(def));
  if ((types_ & kTypeArray) != 0) TRY(add_arrays(def));
  if ((types_ & kTypeObject) != 0) TRY(add_objects(def));
  return ok_status();
}

Status AlternativeBuilder::read_conditions() {
  for (const Condition& condition : conditions_) {
    if (condition.kind == Condition::Kind::equals) {
      const Kind kind = values_.schema_.at(condition.node).kind;
      if (kind == Kind::array || kind == Kind::object) {
        types_ &= kind == Kind::array ? kTypeArray : kTypeObject;
        literals_.push_back(condition.node);
      } else {
        TRY(restrict_to(std::span(&condition.node, 1)));
      }
      continue;
    }
    const Keywords* keywords = TRY(values_.keywords(condition.node));
    if (condition.kind == Condition::Kind::scalars) {
      TRY(restrict_to(*keywords->values));
      continue;
    }
    // "integer" and "number" meet in "integer".
    types_ &= keywords->types;
    integer_ = integer_ || keywords->integer;
    owns_.emplace_back(condition, keywords);
  }
  return ok_status();
}

Status AlternativeBuilder::restrict_to(std::span<const JsonId> scalars) {
  bool has_null = false;
  bool has_true = false;
  bool has_false = false;
  CharDfa numbers;
  std::vector<std::string> texts;
  for (const JsonId id : scalars) {
    const JsonValue& value = values_.schema_.at(id);
    has_null = has_null || value.kind == Kind::null;
    has_true = has_true || (value.kind == Kind::boolean && value.boolean);
    has_false = has_false || (value.kind == Kind::boolean && !value.boolean);
    if (value.kind == Kind::string) texts.push_back(value.text);
    if (value.kind != Kind::number) continue;
    NumberLimits limits;
    limits.low = TRY(parse_decimal(value.text));
    limits.high = limits.low;
    limits.integer = limits.low->is_integer();
    limits.free_spelling = values_.strictness_ == Strictness::checking;
    const CharDfa one = TRY(number_dfa(limits, values_.budget_));
    numbers = TRY(unite(numbers, one, values_.budget_));
  }
  allows_null_ = allows_null_ && has_null;
  allows_true_ = allows_true_ && has_true;
  allows_false_ = allows_false_ && has_false;
  number_sets_.push_back(std::move(numbers));
  size_t letters = 0;
  for (const std::string& text : texts) letters += text.size();
  TRY(values_.budget_.spend(letters * 10));
  string_sets_.push_back(any_of_texts(texts));
  types_ &= static_cast<uint8_t>(~(kTypeArray | kTypeObject));
  return ok_status();
}

Status AlternativeBuilder::add_numbers(ValueDef& def) {
  NumberLimits limits;
  limits.free_spelling = values_.strictness_ == Strictness::checking;
  limits.integer = integer_;
  std::vector<Decimal> multiples;
  for (const auto& [condition, keywords] : owns_) {
    const auto tighten = [](const std::optional<Decimal>& from, bool from_excluded, int sign,
                            std::optional<Decimal>& to, bool& to_excluded) {
      if (!from) return;
      const auto order = to ? compare(*from, *to) : std::strong_ordering::equal;
      const bool tighter = !to || (sign > 0 ? order > 0 : order < 0);
      if (tighter)
        to_excluded = from_excluded;
      else if (order == 0)
        to_excluded = to_excluded || from_excluded;
      if (tighter) to = from;
    };
    tighten(keywords->low, keywords->low_excluded, 1, limits.low, limits.low_excluded);
    tighten(keywords->high, keywords->high_excluded, -1, limits.high, limits.high_excluded);
    if (keywords->multiple_of) multiples.push_back(*keywords->multiple_of);
  }
  if (!multiples.empty()) limits.multiple_of = multiples[0];
  const std::string where = owns_.empty() ? "schema" : place(owns_[0].first, "number");
  CharDfa numbers = TRY(number_dfa(limits, values_.budget_).with_context(where));
  for (size_t i = 1; i < multiples.size(); ++i) {
    NumberLimits more = limits;
    more.multiple_of = multiples[i];
    const CharDfa other = TRY(number_dfa(more, values_.budget_).with_context(where));
    numbers = TRY(intersection(numbers, other, values_.budget_).with_context(where));
  }
  for (const CharDfa& set : number_sets_) {
    // A listed number is spelled as its value asks, which the limits' automaton need not do.
    numbers = TRY(intersection(numbers, set, values_.budget_).with_context(where));
  }
  if (def.numbers.empty())
    def.numbers = std::move(numbers);
  else
    def.numbers = TRY(unite(def.numbers, numbers, values_.budget_));
  return ok_status();
}

Status AlternativeBuilder::add_strings(ValueDef& def) {
  StringAlternative strings;
  std::vector<CharDfa> sets = string_sets_;
  std::string where = "schema";
  for (const auto& [condition, keywords] : owns_) {
    strings.min = std::max(strings.min, keywords->length_min);
    strings.max = std::min(strings.max, keywords->length_max);
    if (keywords->length_min > 0 || keywords->length_max != kUnlimited) {
      where = place(condition, "length");
    }
    if (keywords->pattern) {
      sets.push_back(
          TRY(values_.pattern_texts(*keywords->pattern).with_context(place(condition, "pattern"))));
    }
    if (keywords->format) {
      sets.push_back(
          TRY(values_.format_texts(*keywords->format).with_context(place(condition, "format"))));
    }
  }
  if (strings.min > strings.max) return ok_status();
  if (sets.empty()) {
    strings.counted = true;
  } else {
    strings.texts = std::move(sets[0]);
    for (size_t i = 1; i < sets.size(); ++i) {
      strings.texts =
          TRY(intersection(strings.texts, sets[i], values_.budget_).with_context(where));
    }
    TRY(apply_length(strings.texts, strings.min, strings.max, where));
    if (strings.texts.empty()) return ok_status();
  }
  def.strings.push_back(std::move(strings));
  return ok_status();
}

Status AlternativeBuilder::apply_length(CharDfa& texts, uint32_t min, uint32_t max,
                                        const std::string& where) {
  const std::optional<uint32_t> longest = longest_text(texts);
  if (longest && *longest <= max) max = kUnlimited;
  if (min == 0 && max == kUnlimited) return ok_status();
  if (min > kCountedTextMax || (max != kUnlimited && max > kCountedTextMax)) {
    return invalid_argument(
        fmt::format("{}: beside a pattern or a format, lengths of up to {} are supported", where,
                    kCountedTextMax));
  }
  texts = TRY(intersection(texts, text_of_length(min, max), values_.budget_).with_context(where));
  return ok_status();
}

Status AlternativeBuilder::add_arrays(ValueDef& def) {
  ArrayAlternative array;
  size_t prefix = 0;
  for (const auto& [condition, keywords] : owns_) {
    array.min = std::max(array.min, keywords->items_min);
    array.max = std::min(array.max, keywords->items_max);
    prefix = std::max(prefix, keywords->prefix_items.size());
  }
  for (const JsonId literal : literals_) {
    const auto size = static_cast<uint32_t>(values_.schema_.at(literal).children.size());
    array.min = std::max(array.min, size);
    array.max = std::min(array.max, size);
    prefix = std::max<size_t>(prefix, size);
  }
  if (array.min > array.max) return ok_status();
  for (size_t i = 0; i <= prefix; ++i) {
    Conditions conditions;
    for (const auto& [condition, keywords] : owns_) {
      const std::vector<JsonId>& first = keywords->prefix_items;
      const bool in_prefix = i < first.size();
      if (in_prefix || keywords->items) {
        conditions.push_back({Condition::Kind::schema, in_prefix ? first[i] : *keywords->items});
      }
    }
    for (const JsonId literal : literals_) {
      const std::vector<JsonId>& elements = values_.schema_.at(literal).children;
      if (i < elements.size()) conditions.push_back({Condition::Kind::equals, elements[i]});
    }
    const ValueId value = values_.value_of(std::move(conditions));
    if (i < prefix)
      array.prefix.push_back(value);
    else
      array.rest = value;
  }
  def.arrays.push_back(std::move(array));
  return ok_status();
}

Result<CharDfa> texts_of(const StringAlternative& alternative) {
  if (!alternative.counted) return alternative.texts;
  if (alternative.min > kCountedTextMax ||
      (alternative.max != kUnlimited && alternative.max > kCountedTextMax)) {
    return invalid_argument(fmt::format("lengths of up to {} are supported here", kCountedTextMax));
  }
  return text_of_length(alternative.min, alternative.max);
}

namespace {

// Accepts what exactly one of the automata does.
Result<CharDfa> exactly_one(const std::vector<const CharDfa*>& parts, Budget& budget) {
  return product(
      parts,
      [](std::span<const uint32_t> labels) {
        return std::count_if(labels.begin(), labels.end(), [](uint32_t l) { return l != 0; }) == 1
                   ? 1U
                   : 0U;
      },
      budget);
}

Status add_strings_of_one(std::span<const ValueDef* const> parts, Budget& budget, ValueDef& def) {
  std::vector<CharDfa> automata;
  const ValueDef* only = nullptr;
  for (const ValueDef* part : parts) {
    if (!part->strings.empty()) {
      automata.emplace_back();
      only = part;
    }
  }
  if (automata.size() == 1) {
    def.strings.insert(def.strings.end(), only->strings.begin(), only->strings.end());
    return ok_status();
  }
  size_t next = 0;
  for (const ValueDef* part : parts) {
    if (part->strings.empty()) continue;
    CharDfa& texts = automata[next++];
    for (const StringAlternative& strings : part->strings) {
      const CharDfa more = TRY(texts_of(strings));
      texts = TRY(unite(texts, more, budget));
    }
  }
  if (automata.empty()) return ok_status();
  std::vector<const CharDfa*> pointers;
  for (const CharDfa& texts : automata) pointers.push_back(&texts);
  StringAlternative strings;
  strings.texts = TRY(exactly_one(pointers, budget));
  if (!strings.texts.empty()) def.strings.push_back(std::move(strings));
  return ok_status();
}

}  // namespace

Status add_exactly_one(std::span<const ValueDef* const> parts, Budget& budget, ValueDef& def) {
  const auto one = [&](bool ValueDef::*flag) {
    return std::count_if(parts.begin(), parts.end(),
                         [flag](const ValueDef* part) { return part->*flag; }) == 1;
  };
  def.has_null = def.has_null || one(&ValueDef::has_null);
  def.has_true = def.has_true || one(&ValueDef::has_true);
  def.has_false = def.has_false || one(&ValueDef::has_false);
  std::vector<const CharDfa*> numbers;
  for (const ValueDef* part : parts) numbers.push_back(&part->numbers);
  const CharDfa of_one = TRY(exactly_one(numbers, budget));
  def.numbers = TRY(unite(def.numbers, of_one, budget));
  TRY(add_strings_of_one(parts, budget, def));
  for (const ValueDef* part : parts) {
    def.arrays.insert(def.arrays.end(), part->arrays.begin(), part->arrays.end());
    def.objects.insert(def.objects.end(), part->objects.begin(), part->objects.end());
  }
  return ok_status();
}

}  // namespace strata::grammar
