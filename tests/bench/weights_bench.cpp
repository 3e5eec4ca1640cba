// How fast weights travel from a coordinator to workers on loopback, and what a second start moves.
//
//   weights_bench [MIB [WORKERS [THREADS]]]     256 MiB to 2 workers with 2 threads each
//
// Each worker has a cache of its own and reads every tensor as a load does: received, hashed,
// stored, read back. Printed: MB/s of each worker and of all together, then the bytes and the time
// of a second start from the caches.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "backends/remote/weights_service.h"
#include "runtime/base/check.h"
#include "runtime/gguf/digest.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"
#include "worker/weight_store.h"

namespace strata::worker {
namespace {

constexpr uint64_t kTensors = 16;
constexpr uint64_t kPiece = uint64_t{1} << 20;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string random_bytes(uint64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t value = random();
    std::memcpy(bytes.data() + i, &value, 8);
  }
  return bytes;
}

std::shared_ptr<GgufFile> make_file(const std::string& path, uint64_t mib) {
  test::GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  const uint64_t bytes = (mib << 20) / kTensors;
  for (uint64_t i = 0; i < kTensors; ++i) {
    writer.add_tensor(fmt::format("blk.{}.weight", i), DType::f32, {1024, bytes / 4096},
                      random_bytes(bytes / 4096 * 4096, i));
  }
  std::ofstream(path, std::ios::binary) << writer.build();
  return GgufFile::open(path).value();
}

// All tensors through a store, by `threads` threads as the loader has them. Bytes received.
uint64_t load_all(const std::string& cache, const remote::ModelName& model,
                  const remote::Address& address, int threads) {
  WeightStore store({{}, cache, threads});
  const auto client = remote::WeightsClient::create(address, "bench", "worker");
  OpenedModel opened = store.open(model, *client, {}).value();
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    std::vector<std::byte> piece(kPiece);
    const auto tensors = opened.file->tensors();
    for (size_t i = next++; i < tensors.size(); i = next++) {
      for (uint64_t at = 0; at < tensors[i].size_bytes; at += piece.size()) {
        piece.resize(std::min(kPiece, tensors[i].size_bytes - at));
        const Status status = opened.source->read(tensors[i], at, piece, {});
        STRATA_CHECK(status.ok(), status.to_string());
      }
      opened.source->release(tensors[i]);
    }
  };
  std::vector<std::jthread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  return store.received_bytes();
}

void run(uint64_t mib, int workers, int threads) {
  const test::TempDir folder;
  std::shared_ptr<GgufFile> file = make_file(folder.path() + "/bench.gguf", mib);
  const ModelDigest digest = compute_digest(*file).value();
  const remote::ModelName model{"bench.gguf", "sha256:" + digest.model};
  const auto service = remote::WeightsService::create("bench", model, file, digest);
  remote::ServerOptions options;
  options.listen = {"127.0.0.1", 0};
  options.services = {&service->service()};
  const auto server = remote::RpcServer::start(options).value();
  for (const char* what : {"first", "second"}) {
    std::atomic<uint64_t> received = 0;
    const auto begin = Clock::now();
    {
      std::vector<std::jthread> all;
      for (int w = 0; w < workers; ++w) {
        all.emplace_back([&, w] {
          const std::string cache = fmt::format("{}/cache-{}", folder.path(), w);
          const uint64_t bytes = load_all(cache, model, server->address(), threads);
          received += bytes;
          const double seconds = seconds_since(begin);
          fmt::print("{} start, worker {}: {:.0f} MB received, {:.2f} s, {:.0f} MB/s loaded\n",
                     what, w + 1, static_cast<double>(bytes) / 1e6, seconds,
                     static_cast<double>(file->tensor_bytes_total()) / 1e6 / seconds);
        });
      }
    }
    fmt::print("{} start, all: {:.1f} MB over the network, {:.0f} MB/s\n", what,
               static_cast<double>(received) / 1e6,
               static_cast<double>(received) / 1e6 / seconds_since(begin));
  }
}

}  // namespace
}  // namespace strata::worker

int main(int argc, char** argv) {
  const auto argument = [&](int index, long fallback) {
    const long value = argc > index ? std::strtol(argv[index], nullptr, 10) : fallback;
    return value > 0 ? value : fallback;
  };
  strata::worker::run(static_cast<uint64_t>(argument(1, 256)), static_cast<int>(argument(2, 2)),
                      static_cast<int>(argument(3, 2)));
  return 0;
}
