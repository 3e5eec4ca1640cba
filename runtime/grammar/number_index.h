// NumberIndex: finds the number of a thing that a table holds, by its hash.
//
// The things themselves stay with the owner, who compares them; this is the open addressing alone.
// Nothing is ever taken out.
//
// Threads: externally synchronised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::grammar {

class NumberIndex {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  // The number that was added under this hash and that `is_it` accepts, or kNone.
  template <typename Predicate>
  uint32_t find(uint64_t hash, Predicate is_it) const {
    for (size_t slot = hash & (slots_.size() - 1); slots_[slot].number != kNone;
         slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].hash == hash && is_it(slots_[slot].number)) return slots_[slot].number;
    }
    return kNone;
  }
  void add(uint64_t hash, uint32_t number) {
    if (2 * ++count_ > slots_.size()) grow();
    insert({hash, number});
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t number = kNone;
  };

  void insert(const Slot& added) {
    size_t slot = added.hash & (slots_.size() - 1);
    while (slots_[slot].number != kNone) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = added;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 4);
    std::swap(old, slots_);
    for (const Slot& slot : old) {
      if (slot.number != kNone) insert(slot);
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(256);  // a power of two
  size_t count_ = 0;
};

}  // namespace strata::grammar
