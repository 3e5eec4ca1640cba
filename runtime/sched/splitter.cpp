#include "runtime/sched/splitter.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/human.h"

namespace strata {
namespace {

constexpr int kElsewhere = -1;

class Splitter {
 public:
  Splitter(const Graph& graph, const Assignment& assignment, std::span<const Device* const> devices,
           int n_copies)
      : graph_(graph),
        assignment_(assignment),
        devices_(devices),
        n_copies_(static_cast<size_t>(n_copies)) {}

  SplitPlan run();

 private:
  struct Crossing {
    std::vector<Tensor*> tensors;  // by set, what a reader takes instead; one if not persistent
  };

  void index_graph();
  void add_node(size_t index);
  void add_plain(Split& split, size_t index);
  void open_split(int backend);
  bool needs_cut(int backend, const Tensor& node) const;
  int made_by(const Tensor* storage) const;
  bool readable(int backend, const Tensor* tensor) const;
  bool is_weight(const Tensor* tensor) const;
  Crossing& cross(Split& split, Tensor* source);
  std::vector<Tensor*> make_copies(Split& split, Tensor* source);
  void add_stand_ins(Split& split, Tensor* node);
  void add_request();

  const Graph& graph_;
  const Assignment& assignment_;
  const std::span<const Device* const> devices_;
  const size_t n_copies_;

  SplitPlan plan_;
  std::unordered_map<const Tensor*, int> made_by_;  // nodes and inputs that the scheduler places
  // What was brought to a backend already, in any split so far, and caches of the open split.
  std::map<std::pair<const Tensor*, int>, Crossing> crossings_;
  bool split_copies_weight_ = false;
  std::vector<size_t> leading_views_;
};

SplitPlan Splitter::run() {
  index_graph();
  for (size_t i = 0; i < graph_.nodes().size(); ++i) add_node(i);
  if (!leading_views_.empty()) open_split(assignment_.nodes[0]);  // nothing but views
  add_request();
  return std::move(plan_);
}

void Splitter::index_graph() {
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Tensor* node = graph_.nodes()[i];
    const bool own = node->view_source == nullptr && (node->buffer == nullptr || node->planned);
    if (own) made_by_.emplace(node, assignment_.nodes[i]);
  }
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const Tensor* input = graph_.inputs()[i];
    if (input->buffer == nullptr || input->planned) made_by_.emplace(input, assignment_.inputs[i]);
  }
}

int Splitter::made_by(const Tensor* storage) const {
  const auto found = made_by_.find(storage);
  return found == made_by_.end() ? kElsewhere : found->second;
}

bool Splitter::readable(int backend, const Tensor* tensor) const {
  const Tensor* storage = storage_of(tensor);
  const int from = made_by(storage);
  if (from == backend) return true;
  const Device& device = *devices_[static_cast<size_t>(backend)];
  if (from != kElsewhere) {
    const Device& maker = *devices_[static_cast<size_t>(from)];
    return device.supports_buffer_type(maker.compute_buffer_type());
  }
  // Without memory: the allocator will say so.
  return storage->buffer == nullptr || device.supports_buffer_type(storage->buffer->type());
}

bool Splitter::is_weight(const Tensor* tensor) const {
  const Buffer* buffer = storage_of(tensor)->buffer;
  return made_by(storage_of(tensor)) == kElsewhere && buffer != nullptr &&
         buffer->usage == BufferUsage::weights;
}

// A new split where the backend changes; and where one more weight would have to be copied, so that
// copied weights do not all need memory at once.
bool Splitter::needs_cut(int backend, const Tensor& node) const {
  if (plan_.splits.empty() || plan_.splits.back().backend != backend) return true;
  if (!split_copies_weight_) return false;
  for (const Tensor* source : node.sources) {
    if (is_weight(source) && !readable(backend, source) &&
        !crossings_.contains({source, backend})) {
      return true;
    }
  }
  return false;
}

void Splitter::open_split(int backend) {
  Split& split = plan_.splits.emplace_back();
  split.backend = backend;
  split.nodes.resize(n_copies_);
  split_copies_weight_ = false;
  for (const size_t index : std::exchange(leading_views_, {})) add_plain(split, index);
  // Caches change between splits: what was copied before is not copied for good.
  std::erase_if(crossings_, [&](const auto& entry) {
    const Tensor* source = entry.first.first;
    return made_by(storage_of(source)) == kElsewhere && !is_weight(source);
  });
}

// Views go with whatever is open, those before all work with the first split; readers on other
// backends take copies of them one by one.
void Splitter::add_node(size_t index) {
  Tensor* node = graph_.nodes()[index];
  const int backend = assignment_.nodes[index];
  if (node->op == Op::view) {
    if (plan_.splits.empty()) {
      leading_views_.push_back(index);
    } else {
      add_plain(plan_.splits.back(), index);
    }
    return;
  }
  if (needs_cut(backend, *node)) open_split(backend);
  Split& split = plan_.splits.back();
  bool all_readable = true;
  for (const Tensor* source : node->sources) {
    all_readable = all_readable && readable(split.backend, source);
  }
  if (all_readable) {
    add_plain(split, index);
  } else {
    split.node_indices.push_back(index);
    add_stand_ins(split, node);
  }
}

void Splitter::add_plain(Split& split, size_t index) {
  split.node_indices.push_back(index);
  for (std::vector<Tensor*>& nodes : split.nodes) nodes.push_back(graph_.nodes()[index]);
}

void Splitter::add_stand_ins(Split& split, Tensor* node) {
  std::vector<const Crossing*> crossings;
  for (Tensor* source : node->sources) {
    crossings.push_back(readable(split.backend, source) ? nullptr : &cross(split, source));
  }
  Tensor* first = nullptr;
  for (size_t set = 0; set < n_copies_; ++set) {
    bool differs = first == nullptr;
    for (const Crossing* crossing : crossings) {
      differs = differs || (crossing != nullptr && crossing->tensors.size() > 1);
    }
    if (differs) {
      Tensor& stand_in = plan_.arena.emplace_back(*node);
      for (size_t i = 0; i < crossings.size(); ++i) {
        if (crossings[i] == nullptr) continue;
        const std::vector<Tensor*>& tensors = crossings[i]->tensors;
        stand_in.sources[i] = tensors[tensors.size() > 1 ? set : 0];
      }
      plan_.stand_ins.push_back({&stand_in, node});
      if (first == nullptr) first = &stand_in;
      split.nodes[set].push_back(&stand_in);
    } else {
      split.nodes[set].push_back(first);
    }
  }
}

// What readers on the split's backend take instead of `source`; copies it now if it is not there.
Splitter::Crossing& Splitter::cross(Split& split, Tensor* source) {
  Crossing& crossing = crossings_[{source, split.backend}];
  if (!crossing.tensors.empty()) return crossing;
  if (source->view_source == nullptr || source->is_contiguous()) {
    crossing.tensors = make_copies(split, source);
    return crossing;
  }
  Crossing& whole = crossings_[{source->view_source, split.backend}];
  if (whole.tensors.empty()) whole.tensors = make_copies(split, source->view_source);
  for (Tensor* copy : whole.tensors) {
    Tensor& view = plan_.arena.emplace_back(*source);
    view.op = Op::view;
    view.sources = {copy};
    view.view_source = copy;
    view.buffer = nullptr;
    view.data = nullptr;
    plan_.copied_views.push_back(&view);
    crossing.tensors.push_back(&view);
  }
  return crossing;
}

std::vector<Tensor*> Splitter::make_copies(Split& split, Tensor* source) {
  SplitInput input;
  input.source = source;
  input.from = made_by(storage_of(source));
  input.persistent = n_copies_ > 1 && input.from != kElsewhere;
  split_copies_weight_ = split_copies_weight_ || is_weight(source);
  const std::string_view device = devices_[static_cast<size_t>(split.backend)]->name();
  for (size_t set = 0; set < (input.persistent ? n_copies_ : 1); ++set) {
    Tensor& copy = plan_.arena.emplace_back();
    copy.name =
        fmt::format("{} on {}", source->name.empty() ? op_name(source->op) : source->name, device);
    copy.dtype = source->dtype;
    copy.ne = source->ne;
    const std::optional<Strides> dense = dense_strides(source->dtype, source->ne);
    STRATA_CHECK(dense.has_value(), "copy of " + describe(*source));
    copy.nb = *dense;
    copy.sources = {source};  // keeps the source alive until the copy is made
    input.copies.push_back(&copy);
  }
  split.inputs.push_back(input);
  return input.copies;
}

void Splitter::add_request() {
  AllocationRequest& request = plan_.request;
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    request.inputs.push_back({graph_.inputs()[i], assignment_.inputs[i]});
  }
  for (const Split& split : plan_.splits) {
    for (const SplitInput& input : split.inputs) {
      if (input.persistent) {
        for (Tensor* copy : input.copies) request.inputs.push_back({copy, split.backend});
      }
      Tensor* copy = input.copies[0];
      request.steps.push_back({copy, copy->sources, split.backend});
    }
    for (size_t i = 0; i < split.node_indices.size(); ++i) {
      const size_t index = split.node_indices[i];
      request.steps.push_back(
          {graph_.nodes()[index], split.nodes[0][i]->sources, assignment_.nodes[index]});
    }
  }
}

}  // namespace

SplitPlan split_graph(const Graph& graph, const Assignment& assignment,
                      std::span<const Device* const> devices, int n_copies) {
  STRATA_CHECK(n_copies >= 1, "a plan needs a set of copies");
  return Splitter(graph, assignment, devices, n_copies).run();
}

std::string describe_splits(const Graph& graph, const SplitPlan& plan,
                            std::span<const Device* const> devices) {
  std::string text;
  for (size_t s = 0; s < plan.splits.size(); ++s) {
    const Split& split = plan.splits[s];
    const Tensor* first = nullptr;
    const Tensor* last = nullptr;
    size_t working = 0;
    for (const size_t index : split.node_indices) {
      const Tensor* node = graph.nodes()[index];
      if (node->op == Op::view) continue;
      ++working;
      last = node;
      if (first == nullptr) first = node;
    }
    text += fmt::format("split {} on {}: {} nodes", s,
                        devices[static_cast<size_t>(split.backend)]->name(), working);
    if (first != nullptr) {
      text += fmt::format(", {} ({}) to {} ({})", describe(*first), op_name(first->op),
                          describe(*last), op_name(last->op));
    }
    for (const SplitInput& input : split.inputs) {
      text += fmt::format(
          "\n  copies {} ({}) from {}{}", describe(*input.source),
          human_bytes(input.copies[0]->size_bytes()),
          input.from < 0 ? "its own memory" : devices[static_cast<size_t>(input.from)]->name(),
          input.persistent ? fmt::format(", {} times", input.copies.size()) : "");
    }
    text += "\n";
  }
  return text;
}

}  // namespace strata
