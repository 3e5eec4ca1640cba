#include "runtime/graph/graph.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace strata {

Tensor* Graph::new_input(std::string name, DType dtype, const Dims& ne) {
  const std::optional<Strides> nb = dense_strides(dtype, ne);
  STRATA_CHECK(nb.has_value(), "input of an impossible shape " + shape_text(ne));
  Tensor& tensor = arena_.emplace_back();
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.ne = ne;
  tensor.nb = *nb;
  tensor.is_input = true;
  inputs_.push_back(&tensor);
  add_leaf(&tensor);
  return &tensor;
}

Tensor* Graph::new_node(Op op, DType dtype, const Dims& ne, std::vector<Tensor*> sources,
                        OpParams params) {
  const std::optional<Strides> nb = dense_strides(dtype, ne);
  STRATA_CHECK(nb.has_value(), "node of an impossible shape " + shape_text(ne));
  for (Tensor* source : sources) {
    STRATA_CHECK(source != nullptr, "a node without one of its sources");
    if (source->op == Op::none) add_leaf(source);
  }
  Tensor& tensor = arena_.emplace_back();
  tensor.op = op;
  tensor.dtype = dtype;
  tensor.ne = ne;
  tensor.nb = *nb;
  tensor.sources = std::move(sources);
  tensor.params = params;
  nodes_.push_back(&tensor);
  return &tensor;
}

Tensor* Graph::new_view(Tensor* of, const Dims& ne, const Strides& nb, uint64_t offset) {
  if (of->op == Op::none) add_leaf(of);
  Tensor& tensor = arena_.emplace_back();
  tensor.op = Op::view;
  tensor.dtype = of->dtype;
  tensor.ne = ne;
  tensor.nb = nb;
  tensor.sources = {of};
  // Views of views point at the tensor that holds the bytes.
  tensor.view_source = of->view_source != nullptr ? of->view_source : of;
  tensor.view_offset = of->view_offset + offset;
  STRATA_CHECK(tensor.view_offset + tensor.size_bytes() <= tensor.view_source->size_bytes(),
               "view " + shape_text(ne) + " reaches past " + describe(*tensor.view_source));
  nodes_.push_back(&tensor);
  return &tensor;
}

void Graph::add_source(Tensor* node, Tensor* source) {
  STRATA_CHECK(node == nodes_.back() && source != nullptr, "only the newest node takes sources");
  if (source->op == Op::none) add_leaf(source);
  node->sources.push_back(source);
}

void Graph::mark_output(Tensor* tensor) {
  tensor->is_output = true;
  if (tensor->view_source != nullptr) tensor->view_source->is_output = true;
  outputs_.push_back(tensor);
}

Tensor* Graph::find(std::string_view name) const {
  for (Tensor* tensor : inputs_) {
    if (tensor->name == name) return tensor;
  }
  for (Tensor* tensor : nodes_) {
    if (tensor->name == name) return tensor;
  }
  return nullptr;
}

void Graph::add_leaf(Tensor* tensor) {
  const auto place = std::lower_bound(known_leaves_.begin(), known_leaves_.end(), tensor);
  if (place != known_leaves_.end() && *place == tensor) return;
  known_leaves_.insert(place, tensor);
  leaves_.push_back(tensor);
}

}  // namespace strata
