// From the values of a schema to the automaton of their JSON texts.
//
// One rule for each value, string, number, array and object that differs; a value's rule does
// nothing but call those of its kinds, so that a string of the same kind is the same rule wherever
// it stands, and what a vocabulary may do inside it is found out once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/pda.h"
#include "runtime/grammar/schema_values.h"

namespace strata::grammar {

class SchemaEmitter {
 public:
  // Requires: values come from SchemaValues::compile(), and the first is possible.
  static Result<std::shared_ptr<const Pda>> emit(const std::vector<ValueDef>& values,
                                                 Strictness strictness, Budget& budget);

 private:
  SchemaEmitter(const std::vector<ValueDef>& values, Strictness strictness, Budget& budget)
      : values_(values), strictness_(strictness), budget_(budget), rules_(values.size()) {}

  bool is_checking() const { return strictness_ == Strictness::checking; }
  void emit_root();
  Status emit_value(ValueId id);
  RuleId value_rule(ValueId id);
  RuleId plain_rule(const CharDfa& texts);
  RuleId string_rule(const CharDfa& texts);
  RuleId counted_rule(uint32_t min, uint32_t max);
  RuleId array_rule(const ArrayAlternative& array);
  RuleId object_rule(const ObjectAlternative& object);
  void emit_rest(const ArrayAlternative& array, StateId first, uint32_t control);
  struct Names;
  void emit_names(Names& names);
  void set_guards(const Names& names, StateId begin, StateId end);
  StateId after_space(StateId from);
  OpId op(Op::Kind kind, uint32_t control, uint32_t value = 0);

  const std::vector<ValueDef>& values_;
  const Strictness strictness_;
  Budget& budget_;
  std::shared_ptr<Pda> pda_ = std::make_shared<Pda>();
  std::vector<RuleId> rules_;  // by value; 0: none yet, since rule 0 is the root's
  std::vector<ValueId> open_;  // values with a rule that is still empty
  std::map<std::string, RuleId> plain_rules_;
  std::map<std::string, RuleId> string_rules_;
  std::map<std::pair<uint32_t, uint32_t>, RuleId> counted_rules_;
  StateId end_ = 0;        // accepts, and does nothing else
  RuleId space_rule_ = 0;  // bounded white space, for generation
};

// As the function of this name in grammar.h, with a budget that several share.
Result<std::shared_ptr<const Pda>> compile_schema(std::string_view schema, Strictness strictness,
                                                  Budget& budget);

}  // namespace strata::grammar
