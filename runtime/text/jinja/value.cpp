#include "runtime/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {
namespace {

// Up to here a dictionary is searched from its front.
constexpr size_t kLinearEntries = 8;

size_t code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

Text::Text(MarkedText text, bool is_markup, size_t* live_bytes)
    : MarkedText(std::move(text)),
      length(code_points(bytes)),
      markup(is_markup),
      live_bytes_(live_bytes) {
  if (live_bytes_ != nullptr) *live_bytes_ += sizeof(Text) + bytes.capacity();
}

Text::~Text() {
  if (live_bytes_ != nullptr) *live_bytes_ -= sizeof(Text) + bytes.capacity();
}

std::string Special::repr() const { return fmt::format("<{} object>", type_name()); }

Result<bool> Special::attribute(Runtime&, std::string_view, Value&) { return false; }

Result<bool> Special::item(Runtime&, const Value&, Value&) { return false; }

Result<Value> Special::call(Runtime& runtime, CallArguments&) {
  return runtime.error(fmt::format("'{}' object is not callable", type_name()));
}

Value Value::of(BigInteger big) {
  if (const auto small = big.as_int64()) return *small;
  Value value;
  value.data_ = std::make_shared<const BigInteger>(std::move(big));
  return value;
}

BigInteger Value::big() const {
  if (is(Kind::big)) return *std::get<std::shared_ptr<const BigInteger>>(data_);
  return BigInteger(small());
}

double Value::real() const {
  if (is(Kind::real)) return std::get<double>(data_);
  if (is(Kind::big)) return big().to_double();
  return static_cast<double>(small());
}

const std::vector<Value>& Value::elements() const {
  return is(Kind::list) ? list()->items : tuple()->items;
}

const void* Value::address() const {
  switch (kind()) {
    case Kind::list:
      return list();
    case Kind::tuple:
      return tuple();
    case Kind::dict:
      return dict();
    case Kind::special:
      return special();
    default:
      return nullptr;
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return text()->markup ? "Markup" : "str";
    case Kind::list:
      return list()->type_name();
    case Kind::tuple:
      return tuple()->type_name();
    case Kind::dict:
      return dict()->type_name();
    case Kind::special:
      return special()->type_name();
  }
  return "object";
}

size_t Dict::position(const Value& key, uint64_t hash) const {
  if (index_.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equals(entries[i].first, key)) return i;
    }
    return entries.size();
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    if (equals(entries[entry->second].first, key)) return entry->second;
  }
  return entries.size();
}

const Value* Dict::find(const Value& key) const {
  const std::optional<uint64_t> hash = hash_of(key);
  if (!hash) return nullptr;
  const size_t at = position(key, *hash);
  return at < entries.size() ? &entries[at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (index_.empty()) {
    for (const auto& [name, value] : entries) {
      if (name.is_string() && name.bytes() == key) return &value;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto entry = begin; entry != end; ++entry) {
    const auto& [name, value] = entries[entry->second];
    if (name.is_string() && name.bytes() == key) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  const uint64_t hash = hash_of(key).value_or(0);
  const size_t at = position(key, hash);
  if (at < entries.size()) {
    entries[at].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() <= kLinearEntries) return;
  if (!index_.empty()) {
    index_.emplace(hash, at);
    return;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    index_.emplace(hash_of(entries[i].first).value_or(0), i);
  }
}

Result<bool> Namespace::attribute(Runtime&, std::string_view name, Value& out) {
  const Value* value = attributes->find(name);
  if (value != nullptr) out = *value;
  return value != nullptr;
}

std::string Range::repr() const {
  return step == 1 ? fmt::format("range({}, {})", start, stop)
                   : fmt::format("range({}, {}, {})", start, stop, step);
}

Result<bool> Range::item(Runtime&, const Value& key, Value& out) {
  if (!key.is(Value::Kind::integer) && !key.is(Value::Kind::boolean)) return false;
  const int64_t index = key.small() < 0 ? key.small() + count : key.small();
  if (index < 0 || index >= count) return false;
  out = at(index);
  return true;
}

std::string_view DictView::type_name() const {
  switch (part) {
    case Part::keys:
      return "dict_keys";
    case Part::values:
      return "dict_values";
    default:
      return "dict_items";
  }
}

}  // namespace strata::jinja
