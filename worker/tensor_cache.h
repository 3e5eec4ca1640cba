// Tensors by digest: in a folder, and from the coordinator where the folder has them not.
//
// A tensor in the folder is complete and was right when it was stored; each use hashes it once
// more, and one that is damaged is removed and received again. What cannot be stored (a read-only
// folder) or does not fit on the disk goes through memory; what fits is stored.
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
#include "worker/cache_disk.h"

namespace strata::worker {

class TensorCache final : public TensorSource {
 public:
  // `disk`, `client` and `received_bytes` must outlive the object. received_bytes grows by what
  // comes over the network and is used; bytes that were thrown away and came again count once.
  TensorCache(CacheDisk& disk, remote::ModelName model,
              const std::vector<remote::ManifestTensor>& manifest, remote::WeightsClient& client,
              std::atomic<uint64_t>& received_bytes);
  ~TensorCache() override;

  // Errors: DATA_LOSS for bytes that do not have the digest after the transfer (what was stored of
  // them is removed); those of the client.
  Status read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out,
              std::stop_token stop) override;
  void release(const TensorInfo& tensor) override;

 private:
  // Where the bytes are: in a file, or here.
  struct Reading {
    std::unique_ptr<MappedFile> file;
    std::vector<std::byte> bytes;
  };

  Result<std::shared_ptr<Reading>> reading_of(const TensorInfo& tensor, std::stop_token stop);
  Result<std::shared_ptr<Reading>> open(const remote::ManifestTensor& tensor,
                                        const std::stop_token& stop);
  Result<std::unique_ptr<MappedFile>> open_stored(const remote::ManifestTensor& tensor,
                                                  const std::string& path,
                                                  const std::stop_token& stop) const;
  // Receives the tensor to that path. False if it cannot be stored.
  Result<bool> fetch(const remote::ManifestTensor& tensor, const std::string& path,
                     std::stop_token stop);
  Result<bool> receive(const remote::ManifestTensor& tensor, int fd, const std::string& part,
                       std::stop_token stop);
  Result<std::vector<std::byte>> receive_into_memory(const remote::ManifestTensor& tensor,
                                                     const std::stop_token& stop);
  // Remembers that nothing can be stored; false.
  bool cannot_store(const Status& why);
  // This one does not fit; its part goes. False.
  bool drop_part(const std::string& part, const Status& why);
  Status wrong_digest(const remote::ManifestTensor& tensor, uint64_t received);

  CacheDisk& disk_;
  const remote::ModelName model_;
  std::unordered_map<std::string, remote::ManifestTensor> manifest_;  // by name
  remote::WeightsClient& client_;
  std::atomic<uint64_t>& received_bytes_;
  std::atomic<bool> can_store_ = true;

  Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Reading>> open_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::worker
