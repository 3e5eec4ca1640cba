// Tensors by digest: in a folder, and from the coordinator where the folder has them not.
//
// A tensor in the folder is complete and was right when it was stored; a later load hashes it once
// more while it is read, so that a disk's error shows as such and not as a wrong answer.
//
// Threads: as TensorSource.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "backends/remote/weights_client.h"
#include "runtime/base/digest.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/mutex.h"
#include "runtime/model/weights.h"

namespace strata::worker {

class TensorCache final : public TensorSource {
 public:
  // `client` and `received_bytes` must outlive the object.
  TensorCache(std::string folder, remote::ModelName model,
              const std::vector<remote::ManifestTensor>& manifest, remote::WeightsClient& client,
              std::atomic<uint64_t>& received_bytes);
  ~TensorCache() override;

  // Errors: DATA_LOSS for bytes that do not have the digest (what was stored of them is removed);
  // RESOURCE_EXHAUSTED if the disk is full; those of the client.
  Status read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out,
              std::stop_token stop) override;
  void release(const TensorInfo& tensor) override;

 private:
  struct Reading {
    std::unique_ptr<MappedFile> file;
    bool is_fresh = false;  // hashed a moment ago, when it came in
    Sha256 sha;
    uint64_t hashed_bytes = 0;
  };

  Result<std::shared_ptr<Reading>> reading_of(const TensorInfo& tensor, std::stop_token stop);
  Status fetch(const remote::ManifestTensor& tensor, const std::string& path, std::stop_token stop);
  Status receive(const remote::ManifestTensor& tensor, int fd, const std::string& part,
                 std::stop_token stop);

  const std::string folder_;
  const remote::ModelName model_;
  std::unordered_map<std::string, remote::ManifestTensor> manifest_;  // by name
  remote::WeightsClient& client_;
  std::atomic<uint64_t>& received_bytes_;

  Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Reading>> open_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::worker
