// One alternative of a value: conditions without any choice among them, merged keyword by keyword
// for each type. Part of SchemaValues.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/schema_values.h"

namespace strata::grammar {

class AlternativeBuilder {
 public:
  // `conditions`: own, scalars and equals only.
  AlternativeBuilder(SchemaValues& values, const Conditions& conditions)
      : values_(values), conditions_(conditions) {}

  // Adds to `def` what fits all conditions; to the SchemaValues' needed_ what must come first.
  Status add_to(ValueDef& def);

 private:
  struct Part;  // of an object: one condition's say about members
  struct NameParts;

  Status read_conditions();
  Status restrict_to(std::span<const JsonId> scalars);
  Status add_numbers(ValueDef& def);
  Status add_strings(ValueDef& def);
  Status apply_length(CharDfa& texts, uint32_t min, uint32_t max, const std::string& where);
  Status add_arrays(ValueDef& def);
  Status add_objects(ValueDef& def);
  Result<bool> add_name_rules(NameParts& parts);
  void collect_keys(ObjectAlternative& object) const;
  Status name_automaton(ObjectAlternative& object);
  std::string place(const Condition& condition, std::string_view keyword) const;

  SchemaValues& values_;
  const Conditions& conditions_;
  std::vector<std::pair<Condition, const Keywords*>> owns_;
  std::vector<JsonId> literals_;  // arrays and objects to be equal to
  uint8_t types_ = kTypeAll;
  bool integer_ = false;
  bool allows_null_ = true;
  bool allows_true_ = true;
  bool allows_false_ = true;
  std::vector<CharDfa> number_sets_;
  std::vector<CharDfa> string_sets_;
};

// Adds the scalars that are of exactly one of `parts`, and all their arrays and objects.
Status add_exactly_one(std::span<const ValueDef* const> parts, Budget& budget, ValueDef& def);

// What a string alternative accepts, as an automaton. Errors: INVALID_ARGUMENT for lengths that
// are too large for one.
Result<CharDfa> texts_of(const StringAlternative& alternative);

}  // namespace strata::grammar
