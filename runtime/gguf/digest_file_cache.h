// Digests of model files that have not changed, kept in a folder between runs.
//
// One small text file for each set of files, named by their identity (device, inode, size, time of
// change): a file that was written has another name and is simply not found. A cache that cannot
// be read or written is no error: the digests are computed again.
//
// Threads: any, and several processes at once.
#pragma once

#include <string>

#include "runtime/gguf/digest.h"

namespace strata {

class DigestFileCache final : public DigestCache {
 public:
  // Files go to `folder`, which is made when the first is stored.
  explicit DigestFileCache(std::string folder) : folder_(std::move(folder)) {}

  std::optional<std::vector<std::string>> find(std::span<const FileIdentity> files) override;
  void store(std::span<const FileIdentity> files,
             const std::vector<std::string>& tensor_digests) override;

 private:
  std::string path_of(std::span<const FileIdentity> files) const;

  std::string folder_;
};

}  // namespace strata
