// ItemChain: neighbouring item steps run as one.
//
//   step by step:  add  t0 t1 t2 ..  | norm t0 t1 t2 ..  | round t0 t1 t2 ..     3 meetings
//   a chain:       t0: add norm round  t1: add norm round  t2: ..                1 meeting
//
// What a step leaves for the next is then still in the first-level cache (of a prompt: a token's
// row; one token alone saves only the meetings), and threads meet once.
// Each element is computed by the same operations in the same order, so the bits are those of steps
// run one by one. All results are written where the graph has placed them: others may read them.
//
// A step joins if that can't be noticed: its items and those so far can be grouped so that no group
// reads or overwrites what belongs to another group of another step. (Graph memory is reused: a
// norm's result may lie where the sum before it had an operand.)
#pragma once

#include <memory>
#include <vector>

#include "backends/cpu/item_step.h"

namespace strata::cpu {

class ItemChain final : public Step {
 public:
  ItemChain(std::unique_ptr<ItemStep> first, int threads);

  // Whether the step may follow in this chain: it stays right, and, unless all of it is little
  // work, neither loses items that threads could share or the cache could hold.
  bool admits(const ItemStep& step) const;
  // Takes the step if it may, and says whether it did.
  bool join(std::unique_ptr<ItemStep>& step);

  Status run(const RunContext& context) override;

 private:
  // What items_ and item_work_ are with the step.
  struct Grouping {
    int64_t items;
    int64_t item_work;
  };
  Grouping grouping_with(const ItemStep& step) const;

  // Whether threads and caches lose nothing against the chain and the step apart.
  bool keeps_items(const ItemStep& step, const Grouping& joined) const;

  int threads_;
  int64_t items_;      // groups of neighbouring items of each step
  int64_t item_work_;  // of a group, over all steps
  std::vector<std::unique_ptr<ItemStep>> steps_;
};

}  // namespace strata::cpu
