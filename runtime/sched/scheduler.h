// Scheduler: runs graphs over one or several backends that share a node's work.
//
// For each graph it makes a plan once: every node gets a backend (assignment.h), the node list is
// cut where the backend changes and tensors that the next backend cannot read get copies in its
// memory (splitter.h), and everything is placed in compute memory shared by all graphs
// (runtime/memory/graph_allocator.h). The plan is kept as long as the Graph object lives, so a
// caller keeps one Graph for each (n_tokens, n_outputs) and runs it again and again: that costs a
// table look-up. With one backend there is one split, no copy, and nothing between the caller and
// Backend::compute.
//
//   scheduler->reserve({&prompt_graph, &token_graph});     // once: memory for the worst case
//   TRY(scheduler->prepare(graph));                        // every step; free when already planned
//   TRY(scheduler->set_input(tokens, bytes));
//   TRY(scheduler->compute(graph));
//   TRY(scheduler->read_output(*logits, out));
//
// Pipelining: with n_copies > 1, compute_async() of the next micro-batch may start on the first
// backend while later ones still work on the last one; the copies that cross from one backend to
// the next are then kept n_copies times. docs/memory.md draws it.
//
// What survives: the outputs of a graph are valid until another graph is prepared that does not
// read them; inputs of a graph are to be set again after another graph ran.
//
// Threads: one thread at a time. Owns: its backends and all compute memory; graphs, weights and
// caches belong to the caller and outlive the runs that use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/graph/graph.h"

namespace strata {

struct SchedulerOptions {
  int n_copies = 1;  // of every tensor that crosses backends, 1 to 4: micro-batches in flight
};

// Compute memory of one backend.
struct SchedulerMemory {
  std::string device;
  uint64_t compute_bytes = 0;  // tensors and the backend's workspace
};

class Scheduler {
 public:
  static constexpr int kMaxCopies = 4;

  // `backends` by falling priority: accelerators first, the CPU, which can run everything, last.
  // Errors: INVALID_ARGUMENT without a backend or with n_copies outside 1 to 4.
  static Result<std::unique_ptr<Scheduler>> create(std::vector<std::unique_ptr<Backend>> backends,
                                                   const SchedulerOptions& options = {});
  virtual ~Scheduler() = default;

  virtual int backend_count() const = 0;
  virtual Backend& backend(int index) const = 0;

  // Runs the node on that backend wherever its weights are, from the next plan of its graph on.
  // Requires: 0 <= backend_index < backend_count().
  virtual void pin(const Tensor& node, int backend_index) = 0;

  // Makes compute memory large enough for each of the graphs (prompt-sized, token-sized, worst
  // case), so that running one like them allocates nothing. Weights and caches must be placed.
  // Errors: RESOURCE_EXHAUSTED with need and have; UNIMPLEMENTED for a node that no backend runs;
  // FAILED_PRECONDITION for a leaf without memory. Earlier plans stay usable after an error.
  virtual Status reserve(std::span<Graph* const> graphs) = 0;
  Status reserve(Graph& graph) {
    Graph* one = &graph;
    return reserve(std::span<Graph* const>(&one, 1));
  }

  // Plans the graph, unless it is planned already, and places its tensors. Errors: as reserve().
  virtual Status prepare(Graph& graph) = 0;
  // Writes the whole input, in order after all work that was started; `bytes` may be dropped on
  // return. Requires: its graph is prepared. Errors: INVALID_ARGUMENT for a wrong size.
  virtual Status set_input(Tensor& input, std::span<const std::byte> bytes) = 0;

  // prepare(), run, wait.
  virtual Status compute(Graph& graph) = 0;
  // prepare() and start. Errors of the work itself may come from synchronize().
  virtual Status compute_async(Graph& graph) = 0;
  // Waits for everything that was started. The first error of any backend.
  virtual Status synchronize() = 0;

  // Reads all bytes of an output (or of a dense view of one), after the work that was started.
  // Errors: INVALID_ARGUMENT for a wrong size.
  virtual Status read_output(const Tensor& output, std::span<std::byte> bytes) = 0;
  // The same without waiting: `bytes` are there after synchronize(), and show the state after the
  // work started so far, whatever is started later.
  virtual Status read_output_async(const Tensor& output, std::span<std::byte> bytes) = 0;

  // Waits, drops all plans and pins; keeps the memory.
  virtual Status reset() = 0;

  // Compute memory held, one entry for each backend in order.
  virtual std::vector<SchedulerMemory> memory() const = 0;
  // One line per split with its backend, nodes and input copies, for people.
  virtual Result<std::string> describe_splits(Graph& graph) = 0;
};

}  // namespace strata
