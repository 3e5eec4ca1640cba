// ItemStep: work that falls into items (rows, heads, tokens), each of which can be done alone.
//
// An item step says which bytes each of its items reads and writes. From that a chain
// (item_chain.h) finds out whether steps that follow one another may be done item by item, each
// item going through all of them while it is in the first-level cache, instead of step by step.
//
// Threads: run_items() from several threads at once, for distinct items.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/cpu/step.h"

namespace strata::cpu {

// Bytes that the items of a step touch. Evenly spread: item i touches [begin + i * item_stride,
// that + item_bytes). Otherwise any item may touch all of [begin, begin + item_bytes).
struct Access {
  enum class Kind {
    read,
    read_ahead,  // by check() too, before the first item
    write,
  };
  Kind kind = Kind::read;
  bool in_workspace = false;  // begin is an offset there, else an address
  bool is_even = false;
  uint64_t begin = 0;
  uint64_t item_bytes = 0;
  uint64_t item_stride = 0;
};

class ItemStep {
 public:
  // `item_work`: element operations of an item, for piece_count().
  ItemStep(int64_t items, int64_t item_work) : items_(items), item_work_(item_work) {}
  virtual ~ItemStep() = default;
  ItemStep(const ItemStep&) = delete;
  ItemStep& operator=(const ItemStep&) = delete;

  int64_t items() const { return items_; }
  int64_t item_work() const { return item_work_; }
  // Everything that its items touch, weights and tables included.
  std::span<const Access> accesses() const { return accesses_; }

  // What must be known before any item is done. Errors: INVALID_ARGUMENT for inputs (ids, cells)
  // that are out of range.
  virtual Status check() const { return ok_status(); }
  // Does items [begin, end).
  virtual void run_items(const RunContext& context, int64_t begin, int64_t end) const = 0;

 protected:
  void touches(const Access& access) { accesses_.push_back(access); }
  // Where the items find or put their rows of a tensor, noted as touched: see item_access().
  RowAddress read_rows(const Tensor& tensor, const Dims& shape);
  RowAddress written_rows(const Tensor& tensor, const Dims& shape);
  // A tensor of which any item may read anything: weights, tables, what check() looks at.
  void reads_all(const Tensor& tensor, Access::Kind kind = Access::Kind::read);
  void writes_all(const Tensor& tensor);

 private:
  int64_t items_;
  int64_t item_work_;
  std::vector<Access> accesses_;
};

// A tensor that is touched over the rows of `shape` (RowAddress), which `items` items share
// equally: several neighbouring rows each, or a part of one row each. All of the tensor for each
// item if it is repeated over the shape, its rows are not evenly apart, or rows and items don't
// divide.
Access item_access(Access::Kind kind, const Tensor& tensor, const Dims& shape, int64_t items);
// Neighbours of `item_bytes` each in the workspace.
Access workspace_access(Access::Kind kind, uint64_t offset, uint64_t item_bytes);

// Into how many equal parts to cut each row of `n` elements, where parts of a row can be done
// alone: parts of at most kPartElements, and of whole blocks of 32 if the row is. 1 if that needs
// far smaller parts, as for a prime n.
inline constexpr int64_t kPartElements = 4096;
int64_t row_parts(int64_t n);

}  // namespace strata::cpu
