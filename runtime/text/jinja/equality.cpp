#include "runtime/text/jinja/equality.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <functional>

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

// Values nest as deep as JSON input may (json_input.cpp) and a little more.
constexpr int kDepthMax = 300;
// Elements that one comparison may look at. Values whose parts are shared (x = [x, x], again and
// again) have more than the memory that they take.
constexpr size_t kWorkMax = 2'000'000;
constexpr size_t kKeyWorkMax = 100'000;
// Of hashes: enough to tell keys apart.
constexpr int kHashDepthMax = 8;
constexpr size_t kHashWorkMax = 1000;

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) {
    if (a.is(Kind::big) || b.is(Kind::big)) return a.big() <=> b.big();
    return a.small() <=> b.small();
  }
  // Exact where a double would round the integer.
  const auto exact = [](const Value& integer, double real) -> std::partial_ordering {
    if (std::isnan(real)) return std::partial_ordering::unordered;
    if (std::isinf(real)) {
      return real > 0 ? std::partial_ordering::less : std::partial_ordering::greater;
    }
    const std::partial_ordering whole = integer.big() <=> BigInteger::from_double(real);
    if (whole != std::partial_ordering::equivalent) return whole;
    return 0.0 <=> real - std::trunc(real);
  };
  if (a.is_integer()) return exact(a, b.real());
  if (b.is_integer()) return 0 <=> exact(b, a.real());
  return a.real() <=> b.real();
}

bool equals_to_depth(const Value& a, const Value& b, int depth, size_t& work);

bool all_equal(const std::vector<Value>& a, const std::vector<Value>& b, int depth, size_t& work) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equals_to_depth(a[i], b[i], depth, work)) return false;
  }
  return true;
}

bool equals_to_depth(const Value& a, const Value& b, int depth, size_t& work) {
  if (work == 0) return false;
  --work;
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind() || depth > kDepthMax) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.text() == b.text() || a.bytes() == b.bytes();
    case Kind::list:
    case Kind::tuple:
      return a.address() == b.address() || all_equal(a.elements(), b.elements(), depth + 1, work);
    case Kind::dict: {
      const Dict& left = *a.dict();
      const Dict& right = *b.dict();
      if (left.entries.size() != right.entries.size()) return false;
      for (const auto& [key, value] : left.entries) {
        const Value* other = right.find(key);
        if (other == nullptr || !equals_to_depth(value, *other, depth + 1, work)) return false;
      }
      return true;
    }
    default:
      return a.address() == b.address();
  }
}

uint64_t mix(uint64_t seed, uint64_t more) {
  return (std::rotl(seed, 5) ^ more) * 0x9E3779B97F4A7C15u;
}

std::optional<uint64_t> hash_to_depth(const Value& value, int depth, size_t& work) {
  switch (value.kind()) {
    case Kind::boolean:
    case Kind::integer:
    case Kind::big:
    case Kind::real:
      // Equal numbers of different types have the same double, or nearly: then equals() decides.
      return std::hash<double>()(value.real());
    case Kind::string:
      return std::hash<std::string_view>()(value.bytes());
    case Kind::tuple: {
      uint64_t hash = value.tuple()->items.size();
      if (depth >= kHashDepthMax) return hash;
      for (const Value& item : value.tuple()->items) {
        if (work == 0) break;
        --work;
        const std::optional<uint64_t> part = hash_to_depth(item, depth + 1, work);
        if (!part) return std::nullopt;
        hash = mix(hash, *part);
      }
      return hash;
    }
    case Kind::list:
    case Kind::dict:
      return std::nullopt;
    case Kind::undefined:
      return 1;
    case Kind::none:
      return 2;
    case Kind::special:
      return std::hash<const void*>()(value.address());
  }
  return std::nullopt;
}

}  // namespace

bool equals(const Value& a, const Value& b) {
  size_t work = kKeyWorkMax;
  return equals_to_depth(a, b, 0, work);
}

Result<bool> equal(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    TRY(runtime.charge_bytes(std::min(a.bytes().size(), b.bytes().size())));
  }
  size_t work = kWorkMax;
  const bool result = equals_to_depth(a, b, 0, work);
  TRY(runtime.charge(kWorkMax - work));
  if (work == 0) return runtime.exhausted(fmt::format("{} steps for one comparison", kWorkMax));
  return result;
}

std::optional<uint64_t> hash_of(const Value& value) {
  size_t work = kHashWorkMax;
  return hash_to_depth(value, 0, work);
}

Result<std::partial_ordering> compare(Runtime& runtime, const Value& a, const Value& b,
                                      std::string_view operator_name) {
  const DepthGuard guard(runtime);
  TRY(guard.status());
  TRY(runtime.charge());
  if (a.is_undefined()) return runtime.error(a.undefined());
  if (b.is_undefined()) return runtime.error(b.undefined());
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    TRY(runtime.charge_bytes(std::min(a.bytes().size(), b.bytes().size())));
    return std::partial_ordering(a.bytes().compare(b.bytes()) <=> 0);
  }
  if (a.is_sequence_object() && a.kind() == b.kind()) {
    const std::vector<Value>& left = a.elements();
    const std::vector<Value>& right = b.elements();
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      const bool same = TRY(equal(runtime, left[i], right[i]));
      if (!same) return compare(runtime, left[i], right[i], operator_name);
    }
    return std::partial_ordering(left.size() <=> right.size());
  }
  return runtime.error(fmt::format("'{}' not supported between instances of '{}' and '{}'",
                                   operator_name, a.type_name(), b.type_name()));
}

bool is_truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean();
    case Kind::integer:
      return value.small() != 0;
    case Kind::big:
      return true;
    case Kind::real:
      return value.real() != 0;
    case Kind::special:
      return value.special()->is_truthy();
    default:
      return length_of(value).value_or(1) != 0;
  }
}

std::optional<size_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return value.text()->length;
    case Kind::list:
    case Kind::tuple:
      return value.elements().size();
    case Kind::dict:
      return value.dict()->entries.size();
    case Kind::special:
      return value.special()->length();
    default:
      return std::nullopt;
  }
}

}  // namespace strata::jinja
