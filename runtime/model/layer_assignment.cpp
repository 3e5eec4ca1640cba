#include "runtime/model/layer_assignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/human.h"

namespace strata {
namespace {

// Items are the layers in order and the head after them, if there is one.
class Filler {
 public:
  explicit Filler(const LayerAssignmentRequest& request) : request_(request) {
    item_count_ = static_cast<int>(model().layers.size()) + (model().has_head ? 1 : 0);
  }

  int item_count() const { return item_count_; }
  int host() const { return static_cast<int>(request_.devices.size()) - 1; }
  bool has_accelerators() const { return host() > 0; }

  // The accounts when item i is on devices[items[i]].
  std::vector<DeviceAccount> accounts(std::span<const int> items) const;
  // Items [first, count) over the accelerators in order, each filled up to `part` of its free
  // memory; the others on the host. False if they do not fit.
  bool fill(int first, double part, std::vector<int>& items) const;
  // The best such filling; what fits nowhere is on the host.
  std::vector<int> balance() const;

 private:
  const ModelMemory& model() const { return request_.model; }
  bool is_head(int item) const { return item == static_cast<int>(model().layers.size()); }
  // Bytes on an accelerator with items [first, end) of the list.
  uint64_t accelerator_bytes(int first, int end) const;

  const LayerAssignmentRequest& request_;
  int item_count_ = 0;
};

void add_item(const ModelMemory& model, int item, bool on_host, DeviceAccount& account) {
  if (item < static_cast<int>(model.layers.size())) {
    account.layers[static_cast<size_t>(item)] = model.layers[static_cast<size_t>(item)];
    account.shared_bytes = model.shared_bytes;
  } else {
    const bool has_table = on_host && model.has_embedding;
    account.output_bytes = model.output_norm_bytes;
    account.output_bytes += !model.tied ? model.head_bytes : has_table ? 0 : model.embedding_bytes;
    account.compute_bytes += model.output_compute_bytes;
  }
}

std::vector<DeviceAccount> Filler::accounts(std::span<const int> items) const {
  std::vector<DeviceAccount> result;
  for (size_t d = 0; d < request_.devices.size(); ++d) {
    const AssignableDevice& device = request_.devices[d];
    DeviceAccount& account = result.emplace_back();
    account.device = device.name;
    account.memory_id = device.memory_id;
    account.total_bytes = device.total_bytes;
    account.free_bytes = device.free_bytes;
    account.layers.resize(model().layers.size());
    const bool on_host = static_cast<int>(d) == host();
    if (on_host && model().has_embedding) {
      account.input_bytes = model().embedding_bytes;
      account.compute_bytes += model().input_compute_bytes;
    }
    bool any = false;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i] != static_cast<int>(d)) continue;
      any = true;
      add_item(model(), static_cast<int>(i), on_host, account);
    }
    if (any) account.compute_bytes += model().compute_bytes;
  }
  return result;
}

uint64_t Filler::accelerator_bytes(int first, int end) const {
  uint64_t sum = model().compute_bytes;
  for (int item = first; item < end; ++item) {
    if (is_head(item)) {
      sum += model().output_norm_bytes + model().output_compute_bytes;
      sum += model().tied ? model().embedding_bytes : model().head_bytes;
    } else {
      const LayerMemory& layer = model().layers[static_cast<size_t>(item)];
      sum += layer.weights_bytes + layer.kv_bytes;
    }
  }
  const bool has_layer = first < end && !is_head(first);
  return sum + (has_layer ? model().shared_bytes : 0);
}

bool Filler::fill(int first, double part, std::vector<int>& items) const {
  items.assign(static_cast<size_t>(item_count_), host());
  int next = first;
  for (int d = 0; d < host() && next < item_count_; ++d) {
    const uint64_t free = request_.devices[static_cast<size_t>(d)].free_bytes;
    const uint64_t room =
        part >= 1 ? free : static_cast<uint64_t>(static_cast<double>(free) * part);
    const int begin = next;
    while (next < item_count_ && accelerator_bytes(begin, next + 1) <= room) {
      items[static_cast<size_t>(next++)] = d;
    }
  }
  return next == item_count_;
}

std::vector<int> Filler::balance() const {
  std::vector<int> items;
  int first = 0;
  while (!fill(first, 1.0, items)) ++first;  // ends: nothing always fits
  double low = 0, high = 1;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (fill(first, middle, items) ? high : low) = middle;
  }
  fill(first, high, items);
  return items;
}

LayerAssignment to_assignment(const Filler& filler, const ModelMemory& model,
                              const std::vector<int>& items) {
  LayerAssignment result;
  const auto layers_end = items.begin() + static_cast<ptrdiff_t>(model.layers.size());
  result.layer_devices.assign(items.begin(), layers_end);
  result.head_device = model.has_head ? items.back() : -1;
  result.accounts = filler.accounts(items);
  return result;
}

const DeviceAccount* first_short(std::span<const DeviceAccount> accounts) {
  for (const DeviceAccount& account : accounts) {
    if (account.short_bytes() > 0) return &account;
  }
  return nullptr;
}

Result<std::vector<int>> place_items(const LayerAssignmentRequest& request, const Filler& filler) {
  if (request.ratios.empty()) {
    if (!filler.has_accelerators()) {
      return std::vector<int>(static_cast<size_t>(filler.item_count()), 0);
    }
    std::vector<int> items = filler.balance();
    if (!request.may_use_host) {
      // What would be on the host is the last accelerator's, so that the error shows it there.
      std::replace(items.begin(), items.end(), filler.host(), filler.host() - 1);
      std::sort(items.begin(), items.end());
    }
    return items;
  }
  const int wanted = std::max(filler.host(), 1);
  if (static_cast<int>(request.ratios.size()) != wanted) {
    return invalid_argument(
        fmt::format("{} ratios for {} devices: give one for each", request.ratios.size(), wanted));
  }
  const int layer_count = static_cast<int>(request.model.layers.size());
  const std::vector<int> counts = TRY(split_by_ratios(layer_count, request.ratios));
  std::vector<int> items;
  int last = 0;
  for (size_t d = 0; d < counts.size(); ++d) {
    items.insert(items.end(), static_cast<size_t>(counts[d]), static_cast<int>(d));
    if (request.ratios[d] > 0) last = static_cast<int>(d);
  }
  if (request.model.has_head) items.push_back(last);
  return items;
}

// One memory under several names is counted once, for the first of them.
void forget_shared_memory(std::vector<AssignableDevice>& devices) {
  for (size_t d = 0; d < devices.size(); ++d) {
    for (size_t earlier = 0; earlier < d; ++earlier) {
      const bool same = devices[d].memory_id == devices[earlier].memory_id;
      if (same && !devices[d].memory_id.empty()) devices[d].free_bytes = 0;
    }
  }
}

bool fits(const LayerAssignmentRequest& request) {
  const Filler filler(request);
  const Result<std::vector<int>> items = place_items(request, filler);
  return items.ok() && first_short(filler.accounts(*items)) == nullptr;
}

// The largest count for which `fits_with(count)` holds, or -1. It holds up to some count only.
template <typename F>
int64_t largest(int64_t limit, F fits_with) {
  int64_t low = -1, high = limit;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits_with(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::string what_would_fit(const LayerAssignmentRequest& request) {
  const ModelMemory& model = request.model;
  const bool none_reported = std::all_of(request.devices.begin(), request.devices.end(),
                                         [](const auto& device) { return device.free_bytes == 0; });
  if (none_reported) return "every device reports 0 bytes free: state the memory to use";
  if (model.context_positions > 0) {
    const auto with_context = [&](int64_t blocks) {
      LayerAssignmentRequest smaller = request;
      const double part =
          static_cast<double>(blocks) * 16 / static_cast<double>(model.context_positions);
      for (LayerMemory& layer : smaller.model.layers) {
        layer.kv_bytes =
            static_cast<uint64_t>(std::ceil(static_cast<double>(layer.kv_bytes) * part));
      }
      return fits(smaller);
    };
    const int64_t blocks = largest(model.context_positions / 16, with_context);
    if (blocks > 0) {
      return fmt::format("would fit: a context of {} positions instead of {}",
                         human_count(static_cast<uint64_t>(blocks * 16)),
                         human_count(static_cast<uint64_t>(model.context_positions)));
    }
  }
  const auto with_layers = [&](int64_t count) {
    LayerAssignmentRequest smaller = request;
    smaller.model.layers.resize(static_cast<size_t>(count));
    return fits(smaller);
  };
  const int64_t layers = largest(static_cast<int64_t>(model.layers.size()), with_layers);
  if (layers < 0) return "would fit: not even a part without layers; use a device with more memory";
  return fmt::format("would fit: {} of {} layers; add a worker for the others", layers,
                     model.layers.size());
}

}  // namespace

Result<std::vector<int>> split_by_ratios(int count, std::span<const double> ratios) {
  if (ratios.empty()) return invalid_argument("no ratios to split layers by");
  double sum = 0;
  for (const double ratio : ratios) {
    if (!std::isfinite(ratio) || ratio < 0) {
      return invalid_argument(fmt::format("ratio {} among {}: each must be a number from 0 on",
                                          ratio, fmt::join(ratios, ":")));
    }
    sum += ratio;
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    return invalid_argument(fmt::format("the ratios {} have no usable sum: give a device a share",
                                        fmt::join(ratios, ":")));
  }
  // Rounding the running sum, not each share, keeps every count within one of its share.
  std::vector<int> counts;
  double running = 0;
  int given = 0;
  for (size_t i = 0; i < ratios.size(); ++i) {
    running += ratios[i] / sum;
    const bool rest_is_empty = std::all_of(ratios.begin() + static_cast<ptrdiff_t>(i) + 1,
                                           ratios.end(), [](double ratio) { return ratio == 0; });
    const int end = rest_is_empty
                        ? count
                        : std::min(count, static_cast<int>(std::floor(count * running + 0.5)));
    counts.push_back(end - given);
    given = end;
  }
  return counts;
}

Result<LayerAssignment> assign_layers(const LayerAssignmentRequest& request) {
  if (request.devices.empty() || request.devices.back().kind != DeviceKind::cpu) {
    return invalid_argument("layers are assigned to accelerators and a host: the host is missing");
  }
  LayerAssignmentRequest counted = request;
  forget_shared_memory(counted.devices);
  const Filler filler(counted);
  const std::vector<int> items = TRY(place_items(counted, filler));
  LayerAssignment result = to_assignment(filler, counted.model, items);
  const DeviceAccount* missing = first_short(result.accounts);
  if (missing != nullptr) return out_of_memory(*missing, what_would_fit(counted));
  return result;
}

}  // namespace strata
