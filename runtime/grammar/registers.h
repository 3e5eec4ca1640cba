// The values that registers of a Pda take, and what operations do to them (pda.h).
//
// Counters are the value itself, held at the minimum where there is no maximum, so that their
// number is bounded. An object's register is the number of a set of members in a table here.
//
// Threads: externally synchronised.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "runtime/grammar/pda.h"

namespace strata::grammar {

inline constexpr uint32_t kRefused = 0xFFFFFFFF;

class Registers {
 public:
  explicit Registers(std::shared_ptr<const Pda> pda);

  // The register after the operation, or kRefused. `reg` must be of this table, or 0.
  uint32_t apply(OpId op, uint32_t reg) { return op == kNoOp ? reg : apply_known(op, reg); }

  // A register with which a frame of this control does the same for the next `bytes` bytes: far
  // from both limits, one count is like another.
  uint32_t canonical(uint32_t control, uint32_t reg, uint32_t bytes) const;

  // The register of this table that means what `reg` means in `other`, a table of the same Pda.
  uint32_t adopt(uint32_t control, uint32_t reg, const Registers& other);

  size_t size() const { return objects_.size(); }

 private:
  struct Object {
    uint32_t control = 0;
    Bits seen;
    uint32_t others = 0;  // members that are no key
    // What follows from these.
    Bits allowed;
    bool other_allowed = false;
    bool can_close = false;
  };

  uint32_t apply_known(OpId op, uint32_t reg);
  uint32_t apply_object(const Op& op, uint32_t reg);
  uint32_t object_number(uint32_t control, uint32_t reg);
  uint32_t intern(Object object);
  void derive(Object& object) const;
  void close_dependents(uint32_t control);
  Bits missing(const Object& object) const;

  std::shared_ptr<const Pda> pda_;
  std::vector<Object> objects_;  // register r is objects_[r - 1]
  std::map<std::tuple<uint32_t, Bits, uint32_t>, uint32_t> numbers_;
  // By control and key: the keys that it asks for, and that these ask for; none for most controls.
  std::vector<std::vector<Bits>> wanted_by_;
  std::vector<uint32_t> initial_;  // {controls}: the register of an empty object; 0: not yet made
  std::unordered_map<uint64_t, uint32_t> results_;  // op and register
};

}  // namespace strata::grammar
