// Tensors by digest: in a folder, and from the coordinator where the folder has them not.
//
// A tensor in the folder is complete and was right when it was stored; each use hashes it once
// more, and one that is damaged is removed and received again. Where nothing can be stored (a
// read-only folder, a full disk), it says so once, and tensors go through memory.
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
  Status fetch(const remote::ManifestTensor& tensor, const std::string& path, std::stop_token stop);
  Status receive(const remote::ManifestTensor& tensor, int fd, const std::string& part,
                 std::stop_token stop);
  Result<std::vector<std::byte>> receive_into_memory(const remote::ManifestTensor& tensor,
                                                     const std::stop_token& stop);
  // Remembers and says that nothing can be stored; the status as it is.
  Status cannot_store(Status why);

  const std::string folder_;
  const remote::ModelName model_;
  std::unordered_map<std::string, remote::ManifestTensor> manifest_;  // by name
  remote::WeightsClient& client_;
  std::atomic<uint64_t>& received_bytes_;
  std::atomic<bool> can_store_ = true;

  Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Reading>> open_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::worker
