// Values of the template language: Python's, as far as templates can make them.
//
// Scalars and texts are values with shared ownership. Lists, dictionaries, iterators, scopes and
// functions are objects of one rendering: its Heap owns them all and frees them together, so cycles
// and depth are no danger. A Value must not outlive the heap that its object lives in.
//
// Threads: one rendering is used by one thread. Texts without an account (a template's literals)
// are shared by renderings on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/jinja/big_integer.h"
#include "runtime/text/jinja/marked_text.h"

namespace strata::jinja {

class Runtime;
class Value;

// A string's bytes with what Python asks of a string in constant time.
struct Text : MarkedText {
  // `live_bytes`, if not null, counts this text for as long as it lives.
  Text(MarkedText text, bool is_markup, size_t* live_bytes);
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  bool is_ascii() const { return length == bytes.size(); }

  size_t length;        // in code points
  bool markup = false;  // went through `safe` or `escape`: Python's Markup
 private:
  size_t* live_bytes_;
};
using TextRef = std::shared_ptr<const Text>;

// Why a value is undefined: the sentence of the error that using it raises.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

struct Object {
  virtual ~Object() = default;
  // As type(x).__name__ in Python.
  virtual std::string_view type_name() const = 0;
};

struct List;
struct Tuple;
struct Dict;

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Whatever else is iterable, callable or has attributes.
struct Special : Object {
  virtual std::string repr() const;
  virtual bool is_truthy() const { return true; }
  virtual bool is_callable() const { return false; }
  virtual bool is_iterable() const { return false; }
  // Elements, where Python's len() works.
  virtual std::optional<size_t> length() const { return std::nullopt; }
  // Sets `out` and returns true if there is such an attribute.
  virtual Result<bool> attribute(Runtime& runtime, std::string_view name, Value& out);
  virtual Result<bool> item(Runtime& runtime, const Value& key, Value& out);
  virtual Result<Value> call(Runtime& runtime, CallArguments& arguments);
};

// Gives values one after another, once.
struct Iterator : Special {
  std::string_view type_name() const override { return "generator"; }
  bool is_iterable() const override { return true; }
  // False at the end.
  virtual Result<bool> next(Runtime& runtime, Value& out) = 0;
};

class Value {
 public:
  enum class Kind : uint8_t {
    undefined,
    none,
    boolean,
    integer,
    big,
    real,
    string,
    list,
    tuple,
    dict,
    special
  };

  Value() : data_(None{}) {}
  Value(Undefined u) : data_(std::move(u)) {}      // NOLINT: implicit, as all here
  Value(bool b) : data_(b) {}                      // NOLINT
  Value(int64_t i) : data_(i) {}                   // NOLINT
  Value(double d) : data_(d) {}                    // NOLINT
  Value(TextRef text) : data_(std::move(text)) {}  // NOLINT
  Value(List* list) : data_(list) {}               // NOLINT
  Value(Tuple* tuple) : data_(tuple) {}            // NOLINT
  Value(Dict* dict) : data_(dict) {}               // NOLINT
  Value(Special* special) : data_(special) {}      // NOLINT
  template <typename T>
  Value(const T*) = delete;  // no pointer becomes a bool
  // An integer of 64 bits where it fits.
  static Value of(BigInteger big);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind k) const { return kind() == k; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_string() const { return is(Kind::string); }
  // Integers of any size and booleans, which are integers in Python.
  bool is_integer() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::big); }
  bool is_number() const { return is_integer() || is(Kind::real); }

  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  bool boolean() const { return std::get<bool>(data_); }
  // Requires: boolean or integer of 64 bits.
  int64_t small() const {
    return is(Kind::boolean) ? int64_t{boolean()} : std::get<int64_t>(data_);
  }
  // Requires: is_integer().
  BigInteger big() const;
  // Requires: is_number().
  double real() const;
  const TextRef& text() const { return std::get<TextRef>(data_); }
  const std::string& bytes() const { return text()->bytes; }
  List* list() const { return std::get<List*>(data_); }
  Tuple* tuple() const { return std::get<Tuple*>(data_); }
  Dict* dict() const { return std::get<Dict*>(data_); }
  Special* special() const { return std::get<Special*>(data_); }
  // The object as that type, null if it is none.
  template <typename T>
  T* as() const {
    return is(Kind::special) ? dynamic_cast<T*>(special()) : nullptr;
  }
  // List or tuple elements. Requires: one of them.
  const std::vector<Value>& elements() const;
  bool is_sequence_object() const { return is(Kind::list) || is(Kind::tuple); }
  // Requires: list, tuple, dict or special. For identity.
  const void* address() const;

  std::string_view type_name() const;

 private:
  std::variant<Undefined, None, bool, int64_t, std::shared_ptr<const BigInteger>, double, TextRef,
               List*, Tuple*, Dict*, Special*>
      data_;
};

struct List : Object {
  std::string_view type_name() const override { return "list"; }
  std::vector<Value> items;
};

struct Tuple : Object {
  std::string_view type_name() const override { return "tuple"; }
  std::vector<Value> items;
  // Names of the elements of a named tuple, else empty.
  std::vector<std::string_view> names;
};

// In the order of insertion.
struct Dict : Object {
  std::string_view type_name() const override { return "dict"; }
  // Null if there is none. Requires: a hashable key (equality.h).
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);

  std::vector<std::pair<Value, Value>> entries;

 private:
  size_t position(const Value& key, uint64_t hash) const;

  // From the hash of a key to positions, once there are more than a few entries.
  std::unordered_multimap<uint64_t, size_t> index_;
};

// The attributes that `{% set ns.x = ... %}` writes.
struct Namespace final : Special {
  std::string_view type_name() const override { return "Namespace"; }
  std::string repr() const override { return "<Namespace>"; }
  Result<bool> attribute(Runtime& runtime, std::string_view name, Value& out) override;

  Dict* attributes = nullptr;
};

// Python's range: computed, never stored.
struct Range final : Special {
  std::string_view type_name() const override { return "range"; }
  std::string repr() const override;
  bool is_truthy() const override { return count > 0; }
  bool is_iterable() const override { return true; }
  std::optional<size_t> length() const override { return static_cast<size_t>(count); }
  Result<bool> item(Runtime& runtime, const Value& key, Value& out) override;
  int64_t at(int64_t index) const { return start + index * step; }

  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// dict.keys(), values() and items(): a live look at a dictionary.
struct DictView final : Special {
  enum class Part : uint8_t { keys, values, items };
  std::string_view type_name() const override;
  bool is_truthy() const override { return !dict->entries.empty(); }
  bool is_iterable() const override { return true; }
  std::optional<size_t> length() const override { return dict->entries.size(); }

  Dict* dict = nullptr;
  Part part = Part::keys;
};

}  // namespace strata::jinja
