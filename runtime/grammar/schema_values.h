// From schemas to the values that they allow, keyword combinations resolved.
//
// What must hold of one value at once is a set of *conditions*: schemas, parts of schemas, values
// that it must equal. Each different set is compiled once, to a ValueDef: which texts, which
// numbers, which kinds of arrays and objects fit, where the parts of these are again sets of
// conditions. So allOf needs no rewriting of schemas ({a: A} and {a: B} meet in "a: both A and B"),
// and recursion by $ref ends, since there are only so many sets.
//
// Threads: externally synchronised.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/char_dfa.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/json_document.h"
#include "runtime/grammar/schema_keywords.h"

namespace strata::grammar {

struct Condition {
  enum class Kind : uint8_t {
    schema,   // all of the schema `node`
    own,      // its keywords about the value itself, without $ref, allOf, anyOf, oneOf, enum
    scalars,  // equal to one of its enum's values that are no array or object
    equals,   // equal to the JSON value `node`
    one_of,   // exactly one of the schemas in its oneOf
  };
  Kind kind = Kind::schema;
  JsonId node = 0;
  auto operator<=>(const Condition&) const = default;
};
using Conditions = std::vector<Condition>;  // ascending, each once
using ValueId = uint32_t;

struct StringAlternative {
  bool counted = false;  // any text of min to max characters; else what `texts` accepts
  uint32_t min = 0;
  uint32_t max = kUnlimited;
  CharDfa texts;
};

struct ArrayAlternative {
  std::vector<ValueId> prefix;
  ValueId rest = 0;  // the elements after the prefix
  uint32_t min = 0;
  uint32_t max = kUnlimited;  // also cut where an element cannot be
};

struct ObjectAlternative {
  // Accepts names; label l means labels[l - 1].
  CharDfa names;
  struct Label {
    uint32_t key = kUnlimited;  // index of a name known before; kUnlimited: any other
    ValueId value = 0;
  };
  std::vector<Label> labels;
  std::vector<std::string> keys;
  Bits required;
  std::vector<std::pair<uint32_t, Bits>> dependents;
  uint32_t min = 0;
  uint32_t max = kUnlimited;
};

struct ValueDef {
  bool has_null = false;
  bool has_true = false;
  bool has_false = false;
  CharDfa numbers;
  std::vector<StringAlternative> strings;
  std::vector<ArrayAlternative> arrays;
  std::vector<ObjectAlternative> objects;
  bool possible = false;  // some value fits; set when all are compiled
};

class SchemaValues {
 public:
  // Compiles the whole schema. values()[0] is the document's.
  // Errors: see compile_grammar().
  static Result<std::vector<ValueDef>> compile(const JsonDocument& schema, Strictness strictness,
                                               Budget& budget);

 private:
  friend class AlternativeBuilder;
  // Two branches of a oneOf at `node`; no array or object may fit both.
  struct Overlap {
    ValueId both;
    JsonId node;
    size_t first;
    size_t second;
  };
  struct Branch;

  SchemaValues(const JsonDocument& schema, Strictness strictness, Budget& budget)
      : schema_(schema), strictness_(strictness), budget_(budget) {}

  Result<const Keywords*> keywords(JsonId node);
  ValueId value_of(Conditions conditions);
  // A pattern's or a format's texts, compiled once however often it is used.
  Result<CharDfa> pattern_texts(const std::string& pattern);
  Result<CharDfa> format_texts(const std::string& format);
  Status build_all();
  Status build(ValueId id);
  Result<bool> build_now(ValueId id);
  Status expand(Branch branch, std::vector<Branch>& done);
  Status expand_schema(Branch& branch, JsonId node, uint32_t chain, std::vector<Branch>& open);
  Result<bool> build_one_of(const Branch& branch, ValueDef& def);
  void find_possible();
  Status check_overlaps() const;

  const JsonDocument& schema_;
  const Strictness strictness_;
  Budget& budget_;
  std::map<JsonId, Keywords> keywords_;
  std::map<std::string, CharDfa> patterns_;
  std::map<std::string, CharDfa> formats_;
  std::map<Conditions, ValueId> numbers_;
  std::vector<Conditions> conditions_;
  std::vector<ValueDef> values_;
  enum class State : uint8_t { waiting, open, done };
  std::vector<State> states_;
  std::vector<ValueId> needed_;  // by the value under way, before it can go on
  std::vector<Overlap> overlaps_;
  struct Link {
    JsonId node;
    uint32_t next;
  };
  std::vector<Link> chains_;  // schemas on the way to a condition, for circles
};

}  // namespace strata::grammar
