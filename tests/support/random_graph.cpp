#include "tests/support/random_graph.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/graph/ops.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/memory/linear_allocator.h"
#include "tests/support/reference_ops.h"

namespace strata::testing {
namespace {

constexpr int64_t kTableRows = 5;
constexpr int64_t kCacheBlocks = 2;

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 1469598103934665603u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

}  // namespace

RandomGraph::RandomGraph(const RandomGraphOptions& options)
    : options_(options), random_(options.seed) {
  const Dims shape = {options_.width, options_.n_tokens, 1, 1};
  keep(graph_.new_input("x", DType::f32, shape));
  keep(graph_.new_input("y", DType::f32, shape));
  ids_ = graph_.new_input("ids", DType::i32, {options_.n_tokens, 1, 1, 1});
  positions_ = graph_.new_input("positions", DType::i32, {options_.n_tokens, 1, 1, 1});
  table_ = new_weight("table", {options_.width, kTableRows, 1, 1});
  if (number(4) == 0) graph_.mark_output(pool_[0]);
  for (int i = 0; i < options_.node_count; ++i) add_random_node();
  graph_.mark_output(pool_.back());
}

Tensor* RandomGraph::new_weight(const std::string& name, const Dims& ne) {
  Tensor& tensor = weights_.emplace_back();
  tensor.name = name;
  tensor.ne = ne;
  tensor.nb = dense_strides(DType::f32, ne).value();
  return &tensor;
}

Tensor* RandomGraph::pick() {
  // Recent ones more often, so that chains form and old ones die.
  const int64_t size = static_cast<int64_t>(pool_.size());
  const int64_t back = number(3) == 0 ? number(size) : number(std::min<int64_t>(size, 3));
  return pool_[static_cast<size_t>(size - 1 - back)];
}

void RandomGraph::add_random_node() {
  const int kind = static_cast<int>(number(18));
  if (kind < 11) {
    add_arithmetic(kind);
  } else if (kind < 16) {
    add_views(kind);
  } else if (attention_count_ < 2) {
    add_attention();
  } else {
    add_arithmetic(static_cast<int>(number(11)));
  }
  pool_.back()->name = fmt::format("n{}", pool_.size());
  if (number(12) == 0) graph_.mark_output(pool_.back());
}

void RandomGraph::add_arithmetic(int kind) {
  using namespace strata::ops;
  const int64_t n = options_.width;
  const std::string name = fmt::format("w{}", weights_.size());
  switch (kind) {
    case 0:
      return keep(scale(graph_, add(graph_, pick(), pick()), 0.5f));
    case 1:
      return keep(soft_cap(graph_, multiply(graph_, pick(), pick()), 2.0f));
    case 2:
      return keep(add(graph_, pick(), new_weight(name, {n, 1, 1, 1})));
    case 3:
      return keep(rms_norm(graph_, pick(), new_weight(name, {n, 1, 1, 1}), 1e-5f));
    case 4:
      return keep(layer_norm(graph_, pick(), new_weight(name, {n, 1, 1, 1}),
                             new_weight(name + "b", {n, 1, 1, 1}), 1e-5f));
    case 5:
      return keep(soft_cap(graph_, mul_mat(graph_, new_weight(name, {n, n, 1, 1}), pick()), 3.0f));
    case 6: {
      Tensor* up = mul_mat(graph_, new_weight(name, {n, 2 * n, 1, 1}), pick());
      Tensor* gate = mul_mat(graph_, new_weight(name + "g", {n, 2 * n, 1, 1}), pick());
      Tensor* both = gated(graph_, gate, up, Activation::silu);
      Tensor* down = mul_mat(graph_, new_weight(name + "d", {2 * n, n, 1, 1}), both);
      return keep(soft_cap(graph_, down, 3.0f));
    }
    case 7:
      return keep(activate(graph_, pick(), Activation::gelu_tanh));
    case 8: {
      std::vector<Tensor*> terms;
      for (int64_t i = 2 + number(6); i > 0; --i) terms.push_back(pick());
      return keep(soft_cap(graph_, sum(graph_, std::move(terms)), 4.0f));
    }
    case 9: {
      Tensor* x = pick();
      return keep(scale(graph_, add(graph_, x, x), 0.4f));  // one tensor twice
    }
    default:
      return keep(get_rows(graph_, table_, ids_));
  }
}

void RandomGraph::add_views(int kind) {
  using namespace strata::ops;
  const int64_t n = options_.width, t = options_.n_tokens;
  switch (kind) {
    case 11: {  // heads, turned and put back
      Tensor* heads = reshape(graph_, pick(), {n / 2, 2, t, 1});
      RopeParams params;
      params.n_rot = static_cast<int32_t>(n / 4);
      Tensor* turned = rope(graph_, heads, positions_, nullptr, params);
      return keep(reshape(graph_, turned, {n, t, 1, 1}));
    }
    case 12: {  // transposed twice through memory
      Tensor* there = contiguous(graph_, transpose(graph_, pick()));
      return keep(contiguous(graph_, transpose(graph_, there)));
    }
    case 13: {  // halves of the rows, added, and spread again by a product
      Tensor* x = pick();
      Tensor* low = contiguous(graph_, slice(graph_, x, 0, 0, n / 2));
      Tensor* high = contiguous(graph_, slice(graph_, x, 0, n / 2, n / 2));
      Tensor* half = scale(graph_, add(graph_, low, high), 0.5f);
      Tensor* spread = new_weight(fmt::format("w{}", weights_.size()), {n / 2, n, 1, 1});
      return keep(soft_cap(graph_, mul_mat(graph_, spread, half), 3.0f));
    }
    case 14: {  // a view of a view of a weight
      Tensor* weight = new_weight(fmt::format("w{}", weights_.size()), {n, 4, 1, 1});
      Tensor* rows = slice(graph_, weight, 1, 1, 2);
      Tensor* row = slice(graph_, rows, 1, 1, 1);
      return keep(add(graph_, pick(), row));
    }
    default: {  // views of one tensor with lives of different lengths
      Tensor* x = pick();
      Tensor* first = reshape(graph_, x, {n * t, 1, 1, 1});
      Tensor* second = reshape(graph_, first, {n, t, 1, 1});
      Tensor* scaled = scale(graph_, first, 0.7f);
      return keep(add(graph_, reshape(graph_, scaled, {n, t, 1, 1}), second));
    }
  }
}

void RandomGraph::add_attention() {
  using namespace strata::ops;
  const int64_t n = options_.width, t = options_.n_tokens, dim = n / 4;
  const std::string suffix = std::to_string(attention_count_++);
  const Dims cache_shape = {kKvBlockPositions * dim * 2, kCacheBlocks, 1, 1};
  Tensor* k_cache = new_weight("cache_k" + suffix, cache_shape);
  Tensor* v_cache = new_weight("cache_v" + suffix, cache_shape);
  Tensor* cells = graph_.new_input("cells" + suffix, DType::i32, {t, 1, 1, 1});
  AttentionSources sources;
  sources.block_table = graph_.new_input("blocks" + suffix, DType::i32, {kCacheBlocks, 1, 1, 1});
  sources.seq = graph_.new_input("seq" + suffix, DType::i32, {t, 1, 1, 1});
  sources.positions = positions_;
  sources.q = reshape(graph_, pick(), {dim, 4, t, 1});
  Tensor* kv = reshape(graph_, pick(), {dim, 4, t, 1});
  Tensor* k = contiguous(graph_, slice(graph_, kv, 1, 0, 2));
  Tensor* v = contiguous(graph_, slice(graph_, kv, 1, 2, 2));
  sources.k_cache = kv_write(graph_, k, v, k_cache, v_cache, cells);
  sources.v_cache = v_cache;
  AttentionParams params;
  params.n_head_kv = 2;
  params.head_dim_v = static_cast<int32_t>(dim);
  keep(reshape(graph_, attention(graph_, sources, params), {n, t, 1, 1}));
}

std::vector<std::byte> RandomGraph::initial_bytes(const Tensor& tensor) const {
  const size_t count = static_cast<size_t>(tensor.element_count());
  std::vector<std::byte> bytes(tensor.size_bytes());
  std::mt19937_64 random(hash_of(tensor.name) ^ options_.seed);
  for (size_t i = 0; i < count; ++i) {
    if (tensor.dtype == DType::i32) {
      int32_t value = static_cast<int32_t>(i);  // positions, cells and blocks
      if (tensor.name == "ids") value = static_cast<int32_t>(random() % kTableRows);
      if (tensor.name.starts_with("seq")) value = 0;
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      const float value =
          tensor.name.starts_with("cache")
              ? 0.0f
              : static_cast<float>(random() >> 40) / static_cast<float>(1 << 23) - 1.0f;
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    }
  }
  return bytes;
}

std::vector<std::unique_ptr<Buffer>> place_one_by_one(Graph& graph, std::byte poison) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  const auto give = [&](Tensor& tensor) {
    const uint64_t size = std::max<uint64_t>(tensor.size_bytes(), 1);
    buffers.push_back(host_buffer_type().allocate(size).value());
    buffers.back()->fill(poison);
    place(tensor, *buffers.back(), 0);
  };
  for (Tensor* input : graph.inputs()) give(*input);
  for (Tensor* node : graph.nodes()) {
    if (node->view_source != nullptr) {
      place_view(*node);
    } else {
      give(*node);
    }
  }
  return buffers;
}

void write_leaves(RandomGraph& random) {
  const auto write = [&](Tensor& tensor) {
    const Status status = tensor.buffer->write(tensor, 0, random.initial_bytes(tensor));
    STRATA_CHECK(status.ok(), status.to_string());
  };
  for (Tensor& weight : random.weights()) write(weight);
  for (Tensor* input : random.graph().inputs()) write(*input);
}

void run_on_host(RandomGraph& random) {
  write_leaves(random);
  for (Tensor* node : random.graph().nodes()) {
    const Status status = run_reference(*node, plain_address);
    STRATA_CHECK(status.ok(), status.to_string());
  }
}

std::vector<std::vector<std::byte>> output_bytes(const Graph& graph) {
  std::vector<std::vector<std::byte>> all;
  for (const Tensor* output : graph.outputs()) {
    std::vector<std::byte>& bytes = all.emplace_back(output->size_bytes());
    const Status status = output->buffer->read(*output, 0, bytes);
    STRATA_CHECK(status.ok(), status.to_string());
  }
  return all;
}

std::vector<std::unique_ptr<Buffer>> place_weights(RandomGraph& random, const BufferType& type) {
  LinearAllocator allocator(type);
  for (Tensor& weight : random.weights()) allocator.add(weight);
  return allocator.allocate(BufferUsage::weights).value();
}

}  // namespace strata::testing
