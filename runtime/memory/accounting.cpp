#include "runtime/memory/accounting.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/human.h"

namespace strata {
namespace {

uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

uint64_t DeviceAccount::weights_bytes() const {
  uint64_t sum = input_bytes + output_bytes + shared_bytes;
  for (const LayerMemory& layer : layers) sum += layer.weights_bytes;
  return sum;
}

uint64_t DeviceAccount::kv_bytes() const {
  uint64_t sum = 0;
  for (const LayerMemory& layer : layers) sum += layer.kv_bytes;
  return sum;
}

uint64_t DeviceAccount::short_bytes() const { return minus(needed_bytes(), free_bytes); }

MemoryShare memory_share(const DeviceAccount& account, std::span<const DeviceAccount> all) {
  MemoryShare share;
  share.total_bytes = account.total_bytes;
  // A device may report more free than it has, or count a neighbour's allocations late.
  const uint64_t free = std::min(account.free_bytes, account.total_bytes);
  uint64_t neighbours = 0;
  for (const DeviceAccount& other : all) {
    const bool shares = !account.memory_id.empty() && other.memory_id == account.memory_id;
    if (shares && &other != &account) neighbours += other.needed_bytes();
  }
  share.ours_bytes = std::min(account.needed_bytes(), free);
  share.others_bytes = share.total_bytes - free + std::min(neighbours, free - share.ours_bytes);
  share.left_bytes = share.total_bytes - share.ours_bytes - share.others_bytes;
  return share;
}

std::string memory_table(std::span<const DeviceAccount> accounts) {
  constexpr std::string_view kLine = "{:<12} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}\n";
  std::string text = fmt::format(fmt::runtime(kLine), "device", "total", "weights", "KV", "compute",
                                 "others", "left");
  for (const DeviceAccount& account : accounts) {
    const MemoryShare share = memory_share(account, accounts);
    text += fmt::format(fmt::runtime(kLine), account.device, human_bytes(share.total_bytes),
                        human_bytes(account.weights_bytes()), human_bytes(account.kv_bytes()),
                        human_bytes(account.compute_bytes), human_bytes(share.others_bytes),
                        human_bytes(share.left_bytes));
  }
  return text;
}

Status out_of_memory(const DeviceAccount& account, std::string would_fit) {
  STRATA_CHECK(account.short_bytes() > 0, account.device + " has room");
  return resource_exhausted(
      fmt::format("device {} is short by {}: needs weights {} + KV {} + compute {} = {}, has {} "
                  "free of {}",
                  account.device, human_bytes(account.short_bytes()),
                  human_bytes(account.weights_bytes()), human_bytes(account.kv_bytes()),
                  human_bytes(account.compute_bytes), human_bytes(account.needed_bytes()),
                  human_bytes(account.free_bytes), human_bytes(account.total_bytes)),
      std::move(would_fit));
}

}  // namespace strata
