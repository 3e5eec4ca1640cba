#include "runtime/grammar/schema_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/grammar/formats.h"
#include "runtime/grammar/regex.h"
#include "runtime/grammar/schema_alternative.h"

namespace strata::grammar {
namespace {

constexpr size_t kValuesMax = 20000;
constexpr size_t kBranchesMax = 2000;
constexpr uint32_t kNoChain = 0xFFFFFFFF;

}  // namespace

// One way through the anyOfs, under way.
struct SchemaValues::Branch {
  struct Pending {
    Condition condition;
    uint32_t chain;
  };
  std::vector<Pending> pending;
  std::set<Condition> seen;
  Conditions finished;          // own, scalars and equals only
  std::vector<JsonId> one_ofs;  // schemas with a oneOf
};

Result<const Keywords*> SchemaValues::keywords(JsonId node) {
  const auto known = keywords_.find(node);
  if (known != keywords_.end()) return &known->second;
  return &keywords_.emplace(node, TRY(read_keywords(schema_, node))).first->second;
}

Result<CharDfa> SchemaValues::pattern_texts(const std::string& pattern) {
  const auto known = patterns_.find(pattern);
  if (known != patterns_.end()) return known->second;
  return patterns_.emplace(pattern, TRY(regex_dfa(pattern, true, budget_))).first->second;
}

Result<CharDfa> SchemaValues::format_texts(const std::string& format) {
  const auto known = formats_.find(format);
  if (known != formats_.end()) return known->second;
  return formats_.emplace(format, TRY(format_dfa(format, budget_))).first->second;
}

ValueId SchemaValues::value_of(Conditions conditions) {
  std::sort(conditions.begin(), conditions.end());
  conditions.erase(std::unique(conditions.begin(), conditions.end()), conditions.end());
  const auto [entry, is_new] =
      numbers_.try_emplace(conditions, static_cast<ValueId>(conditions_.size()));
  if (is_new) {
    conditions_.push_back(std::move(conditions));
    values_.emplace_back();
    states_.push_back(State::waiting);
  }
  return entry->second;
}

Result<std::vector<ValueDef>> SchemaValues::compile(const JsonDocument& schema,
                                                    Strictness strictness, Budget& budget) {
  SchemaValues values(schema, strictness, budget);
  values.value_of({{Condition::Kind::schema, JsonDocument::kRoot}});
  TRY(values.build_all());
  values.find_possible();
  TRY(values.check_overlaps());
  return std::move(values.values_);
}

Status SchemaValues::build_all() {
  for (ValueId id = 0; id < conditions_.size(); ++id) {
    TRY(build(id));
    if (conditions_.size() > kValuesMax) {
      return invalid_argument(
          fmt::format("schema: its keywords combine in more than {} ways", kValuesMax));
    }
    TRY(budget_.spend(100));
  }
  return ok_status();
}

// Some values need others first (the branches of a oneOf, propertyNames); these wait on a list.
Status SchemaValues::build(ValueId id) {
  std::vector<ValueId> stack = {id};
  while (!stack.empty()) {
    const ValueId top = stack.back();
    if (states_[top] == State::done) {
      stack.pop_back();
      continue;
    }
    needed_.clear();
    states_[top] = State::open;
    values_[top] = ValueDef();
    if (TRY(build_now(top))) {
      states_[top] = State::done;
      stack.pop_back();
      continue;
    }
    for (const ValueId needed : needed_) {
      if (states_[needed] == State::open) {
        return invalid_argument(
            fmt::format("schema at {}: it refers to itself with nothing in between",
                        schema_.path(conditions_[needed][0].node)));
      }
      stack.push_back(needed);
    }
  }
  return ok_status();
}

// False: needed_ lists what must be compiled before.
Result<bool> SchemaValues::build_now(ValueId id) {
  Branch first;
  for (const Condition& condition : conditions_[id]) first.pending.push_back({condition, kNoChain});
  std::vector<Branch> branches;
  TRY(expand(std::move(first), branches));
  ValueDef def;
  for (const Branch& branch : branches) {
    TRY(budget_.spend(100));
    if (!branch.one_ofs.empty()) {
      TRY(build_one_of(branch, def));
      continue;
    }
    TRY(AlternativeBuilder(*this, branch.finished).add_to(def));
  }
  if (!needed_.empty()) return false;
  values_[id] = std::move(def);
  return true;
}

// Follows $ref and allOf, and makes a branch for each member of an anyOf.
Status SchemaValues::expand(Branch branch, std::vector<Branch>& done) {
  std::vector<Branch> open;
  open.push_back(std::move(branch));
  while (!open.empty()) {
    Branch at = std::move(open.back());
    open.pop_back();
    bool alive = true;
    while (alive && !at.pending.empty()) {
      const Branch::Pending next = at.pending.back();
      at.pending.pop_back();
      const Condition condition = next.condition;
      // A circle is looked for first: what was seen on another way is no circle.
      for (uint32_t link = next.chain; link != kNoChain; link = chains_[link].next) {
        if (condition.kind != Condition::Kind::schema || chains_[link].node != condition.node)
          continue;
        return invalid_argument(
            fmt::format("schema at {}: it refers to itself with nothing in between",
                        schema_.path(condition.node)));
      }
      if (!at.seen.insert(condition).second) continue;
      if (condition.kind == Condition::Kind::one_of) {
        at.one_ofs.push_back(condition.node);
      } else if (condition.kind != Condition::Kind::schema) {
        at.finished.push_back(condition);
      } else if (TRY(keywords(condition.node))->never) {
        alive = false;
      } else {
        TRY(expand_schema(at, condition.node, next.chain, open));
      }
    }
    if (alive) done.push_back(std::move(at));
    if (open.size() + done.size() > kBranchesMax) {
      return invalid_argument(
          fmt::format("schema: more than {} alternatives in one place", kBranchesMax));
    }
  }
  return ok_status();
}

Status SchemaValues::expand_schema(Branch& branch, JsonId node, uint32_t chain,
                                   std::vector<Branch>& open) {
  using Kind = Condition::Kind;
  const Keywords& keywords = *TRY(this->keywords(node));
  TRY(budget_.spend(50));
  const auto link = static_cast<uint32_t>(chains_.size());
  chains_.push_back({node, chain});
  const auto add = [&](Branch& to, Kind kind, JsonId id) {
    to.pending.push_back({{kind, id}, link});
  };
  if (!keywords.one_of.empty()) add(branch, Kind::one_of, node);
  for (const JsonId child : keywords.all_of) add(branch, Kind::schema, child);
  if (keywords.ref) add(branch, Kind::schema, *keywords.ref);
  branch.finished.push_back({Kind::own, node});

  // Each fork takes all that is decided so far, and one of the choices.
  std::vector<Condition> choices;
  if (keywords.values) {
    bool has_scalar = false;
    for (const JsonId value : *keywords.values) {
      const bool composite = schema_.at(value).kind == JsonValue::Kind::array ||
                             schema_.at(value).kind == JsonValue::Kind::object;
      has_scalar = has_scalar || !composite;
      if (composite) choices.push_back({Kind::equals, value});
    }
    if (has_scalar || choices.empty()) choices.push_back({Kind::scalars, node});
  }
  std::vector<Branch> forks;
  for (const Condition& choice : choices) {
    Branch fork = &choice == &choices.back() ? std::move(branch) : branch;
    add(fork, choice.kind, choice.node);
    forks.push_back(std::move(fork));
  }
  if (choices.empty()) forks.push_back(std::move(branch));
  if (!keywords.any_of.empty()) {
    std::vector<Branch> more;
    for (const JsonId child : keywords.any_of) {
      for (const Branch& fork : forks) {
        TRY(budget_.spend(20 + fork.pending.size() + fork.finished.size()));
        more.push_back(fork);
        add(more.back(), Kind::schema, child);
        if (more.size() > kBranchesMax) break;
      }
    }
    forks = std::move(more);
  }
  branch = std::move(forks.back());
  forks.pop_back();
  for (Branch& fork : forks) open.push_back(std::move(fork));
  return ok_status();
}

namespace {

// Whether an array fits, given the values known to be possible.
bool is_possible(const ArrayAlternative& array, const std::vector<ValueDef>& values) {
  if (array.min > array.max) return false;
  for (uint32_t i = 0; i < array.min; ++i) {
    const bool in_prefix = i < array.prefix.size();
    if (!values[in_prefix ? array.prefix[i] : array.rest].possible) return false;
    if (!in_prefix) break;
  }
  return true;
}

bool is_possible(const ObjectAlternative& object, const std::vector<ValueDef>& values) {
  if (object.min > object.max) return false;
  uint32_t possible_keys = 0;
  uint32_t required = 0;
  bool has_others = false;
  std::vector<bool> possible(object.keys.size());
  for (const ObjectAlternative::Label& label : object.labels) {
    if (!values[label.value].possible) continue;
    if (label.key == kUnlimited) {
      has_others = true;
    } else if (!possible[label.key]) {
      possible[label.key] = true;
      ++possible_keys;
    }
  }
  for (uint32_t key = 0; key < object.keys.size(); ++key) {
    if (((object.required[key / 64] >> (key % 64)) & 1) == 0) continue;
    ++required;
    if (!possible[key]) return false;
  }
  return required <= object.max && (has_others || possible_keys >= object.min);
}

}  // namespace

// The least solution: a value that only contains itself without end is not possible.
// A value is looked at again where one that it contains has turned out possible.
void SchemaValues::find_possible() {
  std::vector<std::vector<ValueId>> containers(values_.size());
  std::vector<ValueId> work;
  for (ValueId id = 0; id < values_.size(); ++id) {
    for (const ArrayAlternative& array : values_[id].arrays) {
      for (const ValueId element : array.prefix) containers[element].push_back(id);
      containers[array.rest].push_back(id);
    }
    for (const ObjectAlternative& object : values_[id].objects) {
      for (const auto& label : object.labels) containers[label.value].push_back(id);
    }
    work.push_back(id);
  }
  std::vector<bool> waits(values_.size(), true);
  // Contained values have been made after their containers: the last ones are looked at first.
  while (!work.empty()) {
    const ValueId id = work.back();
    work.pop_back();
    waits[id] = false;
    ValueDef& value = values_[id];
    if (value.possible) continue;
    value.possible = value.has_null || value.has_true || value.has_false ||
                     !value.numbers.empty() || !value.strings.empty();
    for (const auto& array : value.arrays) {
      value.possible = value.possible || is_possible(array, values_);
    }
    for (const auto& object : value.objects) {
      value.possible = value.possible || is_possible(object, values_);
    }
    if (!value.possible) continue;
    for (const ValueId container : containers[id]) {
      if (waits[container] || values_[container].possible) continue;
      waits[container] = true;
      work.push_back(container);
    }
  }
  for (ValueDef& value : values_) {
    std::erase_if(value.arrays, [this](const auto& array) { return !is_possible(array, values_); });
    std::erase_if(value.objects,
                  [this](const auto& object) { return !is_possible(object, values_); });
  }
}

Status SchemaValues::check_overlaps() const {
  for (const Overlap& overlap : overlaps_) {
    const ValueDef& both = values_[overlap.both];
    if (both.arrays.empty() && both.objects.empty()) continue;
    return unimplemented(
        fmt::format("schema at {}: oneOf: {} may fit both branch {} and branch {}",
                    schema_.path(overlap.node), both.objects.empty() ? "an array" : "an object",
                    overlap.first, overlap.second),
        "tell the branches apart by a required member with a const, by additionalProperties: "
        "false, or use anyOf");
  }
  return ok_status();
}

Result<bool> SchemaValues::build_one_of(const Branch& branch, ValueDef& def) {
  const JsonId node = branch.one_ofs[0];
  Conditions common = branch.finished;
  for (size_t i = 1; i < branch.one_ofs.size(); ++i) {
    common.push_back({Condition::Kind::one_of, branch.one_ofs[i]});
  }
  const std::vector<JsonId> children = TRY(keywords(node))->one_of;
  std::vector<ValueId> parts;
  for (const JsonId child : children) {
    Conditions conditions = common;
    conditions.push_back({Condition::Kind::schema, child});
    parts.push_back(value_of(std::move(conditions)));
    if (states_[parts.back()] != State::done) needed_.push_back(parts.back());
  }
  if (!needed_.empty()) return false;
  std::vector<const ValueDef*> defs;
  for (const ValueId part : parts) defs.push_back(&values_[part]);
  TRY(add_exactly_one(defs, budget_, def)
          .with_context(fmt::format("schema at {}: oneOf", schema_.path(node))));
  for (size_t i = 0; i < children.size(); ++i) {
    for (size_t j = i + 1; j < children.size(); ++j) {
      const bool arrays = !values_[parts[i]].arrays.empty() && !values_[parts[j]].arrays.empty();
      const bool objects = !values_[parts[i]].objects.empty() && !values_[parts[j]].objects.empty();
      if (!arrays && !objects) continue;
      Conditions both = common;
      both.push_back({Condition::Kind::schema, children[i]});
      both.push_back({Condition::Kind::schema, children[j]});
      overlaps_.push_back({value_of(std::move(both)), node, i, j});
    }
  }
  return true;
}

}  // namespace strata::grammar
