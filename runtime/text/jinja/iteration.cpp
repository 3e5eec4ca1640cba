#include "runtime/text/jinja/iteration.h"

#include <fmt/format.h>

#include "runtime/text/jinja/unicode_text.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

struct LazyIterator final : Iterator {
  Result<bool> next(Runtime& runtime, Value& out) override {
    TRY(runtime.charge());
    return function(runtime, out);
  }
  NextFunction function;
};

struct VectorIterator final : Iterator {
  std::string_view type_name() const override { return name; }
  Result<bool> next(Runtime& runtime, Value& out) override {
    TRY(runtime.charge());
    if (at >= values.size()) return false;
    out = values[at++];
    return true;
  }
  std::vector<Value> values;
  std::string_view name = "list_iterator";
  size_t at = 0;
};

// Over the elements of a list or tuple, which it does not copy.
struct SequenceIterator final : Iterator {
  std::string_view type_name() const override { return "list_iterator"; }
  Result<bool> next(Runtime& runtime, Value& out) override {
    TRY(runtime.charge());
    const std::vector<Value>& items = sequence.elements();
    if (at >= items.size()) return false;
    out = items[at++];
    return true;
  }
  Value sequence;
  size_t at = 0;
};

struct StringIterator final : Iterator {
  std::string_view type_name() const override { return "str_iterator"; }
  Result<bool> next(Runtime& runtime, Value& out) override {
    if (at >= text->bytes.size()) return false;
    const size_t length = character_at(text->bytes, at).length;
    out = TRY(runtime.slice(*text, at, at + length));
    at += length;
    return true;
  }
  TextRef text;
  size_t at = 0;
};

struct DictIterator final : Iterator {
  std::string_view type_name() const override { return "dict_iterator"; }
  Result<bool> next(Runtime& runtime, Value& out) override {
    TRY(runtime.charge());
    if (at >= dict->entries.size()) return false;
    const auto& [key, value] = dict->entries[at++];
    switch (part) {
      case DictView::Part::keys:
        out = key;
        break;
      case DictView::Part::values:
        out = value;
        break;
      case DictView::Part::items:
        out = runtime.tuple({key, value});
    }
    return true;
  }
  const Dict* dict = nullptr;
  DictView::Part part = DictView::Part::keys;
  size_t at = 0;
};

struct RangeIterator final : Iterator {
  std::string_view type_name() const override { return "range_iterator"; }
  Result<bool> next(Runtime& runtime, Value& out) override {
    TRY(runtime.charge());
    if (at >= range->count) return false;
    out = range->at(at++);
    return true;
  }
  const Range* range = nullptr;
  int64_t at = 0;
};

Iterator* over_dict(Runtime& runtime, const Dict* dict, DictView::Part part) {
  auto* iterator = runtime.make<DictIterator>();
  iterator->dict = dict;
  iterator->part = part;
  return iterator;
}

}  // namespace

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
      return true;
    case Kind::special:
      return value.special()->is_iterable();
    default:
      return false;
  }
}

Result<Iterator*> iterate(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return over(runtime, {}, "generator");
    case Kind::string: {
      auto* iterator = runtime.make<StringIterator>();
      iterator->text = value.text();
      return iterator;
    }
    case Kind::list:
    case Kind::tuple: {
      auto* iterator = runtime.make<SequenceIterator>();
      iterator->sequence = value;
      return iterator;
    }
    case Kind::dict:
      return over_dict(runtime, value.dict(), DictView::Part::keys);
    default:
      break;
  }
  if (auto* iterator = value.as<Iterator>()) return iterator;
  if (auto* view = value.as<DictView>()) return over_dict(runtime, view->dict, view->part);
  if (auto* range = value.as<Range>()) {
    auto* iterator = runtime.make<RangeIterator>();
    iterator->range = range;
    return iterator;
  }
  return runtime.error(fmt::format("'{}' object is not iterable", value.type_name()));
}

Result<std::vector<Value>> collect(Runtime& runtime, const Value& value) {
  if (value.is_sequence_object()) {
    TRY(runtime.charge(value.elements().size()));
    return value.elements();
  }
  Iterator* iterator = TRY(iterate(runtime, value));
  std::vector<Value> values;
  Value item;
  // What the list costs is counted where it becomes one; here only against runaways.
  while (TRY(iterator->next(runtime, item))) {
    if (values.size() * sizeof(Value) > runtime.limits().live_bytes_max) {
      return runtime.exhausted("the memory limit for a sequence");
    }
    values.push_back(item);
  }
  return values;
}

Iterator* lazy(Runtime& runtime, NextFunction next) {
  auto* iterator = runtime.make<LazyIterator>();
  iterator->function = std::move(next);
  return iterator;
}

Iterator* over(Runtime& runtime, std::vector<Value> values, std::string_view type_name) {
  auto* iterator = runtime.make<VectorIterator>();
  runtime.grow(values.size() * sizeof(Value));
  iterator->values = std::move(values);
  iterator->name = type_name;
  return iterator;
}

}  // namespace strata::jinja
