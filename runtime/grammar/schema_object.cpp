// Objects of an alternative: which names may come, and what holds of each one's value.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/base/utf8.h"
#include "runtime/grammar/schema_alternative.h"

namespace strata::grammar {
namespace {

constexpr size_t kKeysMax = 5000;
constexpr size_t kLabelsMax = 10000;

Bits bits_of(size_t count) { return Bits((count + 63) / 64); }
void set_bit(Bits& bits, uint32_t bit) { bits[bit / 64] |= uint64_t{1} << (bit % 64); }

}  // namespace

// The automata that run over a name, side by side: the names known before, each pattern, each
// propertyNames; last, any text, so that a name that none of them takes is still one.
struct AlternativeBuilder::NameParts {
  std::vector<CharDfa> automata = {};
  // Of pattern i + 1: whose it is, and the schema for its members.
  struct Pattern {
    size_t own;
    JsonId schema;
  };
  std::vector<Pattern> patterns = {};
  size_t rules_begin = 0;  // automata from here are propertyNames
};

void AlternativeBuilder::collect_keys(ObjectAlternative& object) const {
  std::map<std::string, uint32_t> numbers;
  const auto number = [&](const std::string& name) {
    const auto [entry, is_new] =
        numbers.try_emplace(name, static_cast<uint32_t>(object.keys.size()));
    if (is_new) object.keys.push_back(name);
    return entry->second;
  };
  for (const auto& [condition, keywords] : owns_) {
    for (const auto& [name, schema] : keywords->properties) number(name);
    for (const std::string& name : keywords->required) number(name);
    for (const auto& [name, names] : keywords->dependents) {
      number(name);
      for (const std::string& wanted : names) number(wanted);
    }
  }
  for (const JsonId literal : literals_) {
    for (const std::string& name : values_.schema_.at(literal).keys) number(name);
  }
  object.required = bits_of(object.keys.size());
  for (const auto& [condition, keywords] : owns_) {
    for (const std::string& name : keywords->required) set_bit(object.required, number(name));
    for (const auto& [name, names] : keywords->dependents) {
      Bits wanted = bits_of(object.keys.size());
      for (const std::string& other : names) set_bit(wanted, number(other));
      object.dependents.emplace_back(number(name), std::move(wanted));
    }
  }
  for (const JsonId literal : literals_) {
    for (const std::string& name : values_.schema_.at(literal).keys) {
      set_bit(object.required, number(name));
    }
  }
}

Status AlternativeBuilder::add_objects(ValueDef& def) {
  ObjectAlternative object;
  for (const auto& [condition, keywords] : owns_) {
    object.min = std::max(object.min, keywords->members_min);
    object.max = std::min(object.max, keywords->members_max);
  }
  if (object.min > object.max) return ok_status();
  collect_keys(object);
  if (object.keys.size() > kKeysMax) {
    return invalid_argument(
        fmt::format("schema: an object of more than {} known members", kKeysMax));
  }
  TRY(name_automaton(object));
  def.objects.push_back(std::move(object));
  return ok_status();
}

// False: a propertyNames is not compiled yet.
Result<bool> AlternativeBuilder::add_name_rules(NameParts& parts) {
  for (size_t i = 0; i < owns_.size(); ++i) {
    for (const auto& [pattern, schema] : owns_[i].second->pattern_properties) {
      parts.automata.push_back(TRY(
          values_.pattern_texts(pattern).with_context(place(owns_[i].first, "patternProperties"))));
      parts.patterns.push_back({i, schema});
    }
  }
  parts.rules_begin = parts.automata.size();
  bool ready = true;
  for (const auto& [condition, keywords] : owns_) {
    if (!keywords->property_names) continue;
    const ValueId id = values_.value_of({{Condition::Kind::schema, *keywords->property_names}});
    if (values_.states_[id] != SchemaValues::State::done) {
      values_.needed_.push_back(id);
      ready = false;
      continue;
    }
    CharDfa names;
    for (const StringAlternative& strings : values_.values_[id].strings) {
      const CharDfa texts = TRY(texts_of(strings).with_context(place(condition, "propertyNames")));
      names = TRY(unite(names, texts, values_.budget_));
    }
    parts.automata.push_back(std::move(names));
  }
  return ready;
}

Status AlternativeBuilder::name_automaton(ObjectAlternative& object) {
  NameParts parts;
  parts.automata.push_back(any_of_texts(object.keys));
  if (!TRY(add_name_rules(parts))) return ok_status();
  parts.automata.push_back(any_text());

  // What holds of a member's value, given which automata accept its name.
  std::map<std::vector<uint32_t>, uint32_t> known;
  std::map<std::pair<uint32_t, ValueId>, uint32_t> numbers;
  const auto label_of = [&](std::span<const uint32_t> accepts) -> uint32_t {
    for (size_t i = parts.rules_begin; i < accepts.size(); ++i) {
      if (accepts[i] == 0) return 0;
    }
    const uint32_t key = accepts[0] == 0 ? kUnlimited : accepts[0] - 1;
    Conditions conditions;
    for (size_t own = 0; own < owns_.size(); ++own) {
      const Keywords& keywords = *owns_[own].second;
      bool found = false;
      const auto add = [&](JsonId schema) {
        conditions.push_back({Condition::Kind::schema, schema});
        found = true;
      };
      if (key != kUnlimited) {
        for (const auto& [name, schema] : keywords.properties) {
          if (name == object.keys[key]) add(schema);
        }
      }
      for (size_t p = 0; p < parts.patterns.size(); ++p) {
        if (parts.patterns[p].own == own && accepts[p + 1] != 0) add(parts.patterns[p].schema);
      }
      if (!found && keywords.additional) add(*keywords.additional);
    }
    for (const JsonId literal : literals_) {
      if (key == kUnlimited) return 0;
      const std::optional<JsonId> member = values_.schema_.find(literal, object.keys[key]);
      if (!member) return 0;
      conditions.push_back({Condition::Kind::equals, *member});
    }
    const ValueId value = values_.value_of(std::move(conditions));
    const auto [entry, is_new] =
        numbers.try_emplace(std::pair(key, value), static_cast<uint32_t>(object.labels.size() + 1));
    if (is_new) object.labels.push_back({key, value});
    return entry->second;
  };
  const auto remembered = [&](std::span<const uint32_t> accepts) -> uint32_t {
    const std::vector<uint32_t> key(accepts.begin(), accepts.end());
    const auto entry = known.find(key);
    if (entry != known.end()) return entry->second;
    const uint32_t label = label_of(accepts);
    known.emplace(key, label);
    return label;
  };
  std::vector<const CharDfa*> pointers;
  for (const CharDfa& automaton : parts.automata) pointers.push_back(&automaton);
  const std::string where = owns_.empty() ? "schema" : place(owns_[0].first, "object");
  object.names = TRY(product(pointers, remembered, values_.budget_).with_context(where));
  if (object.labels.size() > kLabelsMax) {
    return invalid_argument(
        fmt::format("{}: names fall into more than {} kinds", where, kLabelsMax));
  }
  return ok_status();
}

}  // namespace strata::grammar
