#include "runtime/grammar/registers.h"

#include <algorithm>
#include <bit>

namespace strata::grammar {
namespace {

bool contains(const Bits& bits, uint32_t bit) {
  return bit / 64 < bits.size() && ((bits[bit / 64] >> (bit % 64)) & 1) != 0;
}

uint32_t count(const Bits& bits) {
  uint32_t total = 0;
  for (const uint64_t word : bits) total += static_cast<uint32_t>(std::popcount(word));
  return total;
}

void add_all(Bits& bits, const Bits& other) {
  if (bits.size() < other.size()) bits.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) bits[i] |= other[i];
}

void remove_all(Bits& bits, const Bits& other) {
  for (size_t i = 0; i < std::min(bits.size(), other.size()); ++i) bits[i] &= ~other[i];
}

}  // namespace

Registers::Registers(std::shared_ptr<const Pda> pda)
    : pda_(std::move(pda)), wanted_by_(pda_->controls.size()), initial_(pda_->controls.size()) {
  for (uint32_t control = 0; control < pda_->controls.size(); ++control) close_dependents(control);
}

void Registers::close_dependents(uint32_t id) {
  const Control& control = pda_->controls[id];
  if (control.dependents.empty()) return;
  const size_t words = (control.key_count + 63) / 64;
  std::vector<Bits> direct(control.key_count, Bits(words));
  for (const auto& [key, wanted] : control.dependents) add_all(direct[key], wanted);
  std::vector<Bits>& closed = wanted_by_[id];
  closed.assign(control.key_count, Bits(words));
  std::vector<uint32_t> work;
  for (uint32_t key = 0; key < control.key_count; ++key) {
    work.assign(1, key);
    while (!work.empty()) {
      const Bits& wanted = direct[work.back()];
      work.pop_back();
      for (size_t i = 0; i < words; ++i) {
        uint64_t added = wanted[i] & ~closed[key][i];
        closed[key][i] |= added;
        for (; added != 0; added &= added - 1) {
          work.push_back(static_cast<uint32_t>(i * 64) +
                         static_cast<uint32_t>(std::countr_zero(added)));
        }
      }
    }
  }
}

uint32_t Registers::apply_known(OpId op_id, uint32_t reg) {
  const Op& op = pda_->ops[op_id];
  const Control& control = pda_->controls[op.control];
  if (op.kind == Op::Kind::count) {
    if (control.max == kUnlimited) return std::min(reg + 1, control.min);
    return reg < control.max ? reg + 1 : kRefused;
  }
  if (op.kind == Op::Kind::enough) return reg >= control.min ? reg : kRefused;
  const uint64_t key = (uint64_t{op_id} << 32) | reg;
  if (const auto known = results_.find(key); known != results_.end()) return known->second;
  const uint32_t result = apply_object(op, reg);
  results_.emplace(key, result);
  return result;
}

uint32_t Registers::apply_object(const Op& op, uint32_t reg) {
  const uint32_t number = object_number(op.control, reg);
  const Object& object = objects_[number - 1];
  switch (op.kind) {
    case Op::Kind::close:
      return object.can_close ? reg : kRefused;
    case Op::Kind::reach: {
      const Reach& reach = pda_->reaches[op.value];
      if (reach.other && object.other_allowed) return reg;
      for (size_t i = 0; i < std::min(reach.keys.size(), object.allowed.size()); ++i) {
        if ((reach.keys[i] & object.allowed[i]) != 0) return reg;
      }
      return kRefused;
    }
    case Op::Kind::key: {
      if (!contains(object.allowed, op.value)) return kRefused;
      Object next = object;
      next.seen[op.value / 64] |= uint64_t{1} << (op.value % 64);
      return intern(std::move(next));
    }
    case Op::Kind::other_key: {
      if (!object.other_allowed) return kRefused;
      Object next = object;
      // Without a maximum only being below the minimum matters.
      const Control& control = pda_->controls[op.control];
      if (control.max != kUnlimited || next.others < control.min) ++next.others;
      return intern(std::move(next));
    }
    default:
      return kRefused;
  }
}

uint32_t Registers::object_number(uint32_t control, uint32_t reg) {
  if (reg != 0) return reg;
  if (initial_[control] == 0) {
    Object object;
    object.control = control;
    object.seen.resize((pda_->controls[control].key_count + 63) / 64);
    initial_[control] = intern(std::move(object));
  }
  return initial_[control];
}

uint32_t Registers::intern(Object object) {
  const auto [entry, is_new] =
      numbers_.try_emplace(std::tuple(object.control, object.seen, object.others),
                           static_cast<uint32_t>(objects_.size() + 1));
  if (is_new) {
    derive(object);
    objects_.push_back(std::move(object));
  }
  return entry->second;
}

// What must come yet: the required members, and those that members ask for.
Bits Registers::missing(const Object& object) const {
  const Control& control = pda_->controls[object.control];
  const std::vector<Bits>& wanted_by = wanted_by_[object.control];
  Bits missing = control.required;
  missing.resize(object.seen.size());
  for (uint32_t key = 0; key < wanted_by.size(); ++key) {
    if (contains(object.seen, key) || contains(control.required, key)) {
      add_all(missing, wanted_by[key]);
    }
  }
  remove_all(missing, object.seen);
  return missing;
}

void Registers::derive(Object& object) const {
  const Control& control = pda_->controls[object.control];
  const std::vector<Bits>& wanted_by = wanted_by_[object.control];
  const Bits missing = this->missing(object);
  const uint64_t total = uint64_t{count(object.seen)} + object.others;
  const uint64_t needed = total + count(missing);
  object.can_close = count(missing) == 0 && total >= control.min;
  object.allowed = missing;
  object.allowed.resize(object.seen.size());
  object.other_allowed = needed < control.max;
  if (!object.other_allowed) return;
  for (uint32_t key = 0; key < control.key_count; ++key) {
    if (contains(object.seen, key)) continue;
    bool fits = true;
    if (control.max != kUnlimited && !wanted_by.empty()) {
      Bits with_key = missing;
      add_all(with_key, wanted_by[key]);
      with_key[key / 64] |= uint64_t{1} << (key % 64);
      remove_all(with_key, object.seen);
      fits = total + count(with_key) <= control.max;
    }
    if (fits) object.allowed[key / 64] |= uint64_t{1} << (key % 64);
  }
}

uint32_t Registers::canonical(uint32_t control_id, uint32_t reg, uint32_t bytes) const {
  const Control& control = pda_->controls[control_id];
  if (control.kind != Control::Kind::counter) return reg;
  const uint64_t reach = uint64_t{bytes} + 2;  // counts that these bytes can make, and one more
  if (reg < control.min) {
    return control.min - reg > reach ? static_cast<uint32_t>(control.min - reach - 1) : reg;
  }
  if (control.max == kUnlimited || control.max - reg <= reach) return reg;
  return static_cast<uint32_t>(control.max - reach - 1);
}

uint32_t Registers::adopt(uint32_t control, uint32_t reg, const Registers& other) {
  if (pda_->controls[control].kind != Control::Kind::object || reg == 0) return reg;
  Object object = other.objects_[reg - 1];
  return intern(std::move(object));
}

}  // namespace strata::grammar
