// StateFolder: what a coordinator must not forget when it ends: its cluster's id, the last epoch
// and where the last pipeline ran.
//
//   FOLDER/lock          held while the coordinator lives
//   FOLDER/cluster.json  {"cluster_id": "...", "epoch": 7, "pipeline": {"model_digest": "...",
//                        "workers": 3, "nodes": ["a", "b"]}}, replaced as a whole
//
// The id tells workers and peers of one cluster from those of another that uses the same addresses;
// an epoch that is never used twice fences what is left of a coordinator that was killed. The last
// pipeline says for which workers the next coordinator need not wait.
//
// Threads: one caller at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/status.h"

namespace strata::coordinator {

// 32 random lower-case hex digits.
std::string random_cluster_id();

class StateFolder {
 public:
  // The last that served. Empty in a new folder, and in one that an older version has written.
  struct Pipeline {
    std::string model_digest;
    uint32_t workers = 0;  // as asked for
    std::vector<std::string> nodes;
  };

  // Makes the folder if it is missing, locks it and reads it; a new one gets a random id and
  // epoch 0. Errors: ALREADY_EXISTS if another process holds it; DATA_LOSS for a file that is not
  // one of these; those of the system.
  static Result<std::unique_ptr<StateFolder>> open(const std::string& path);

  const std::string& cluster_id() const { return cluster_id_; }
  uint64_t epoch() const { return epoch_; }
  const Pipeline& pipeline() const { return pipeline_; }
  // These return once it is on the disk.
  Status save_epoch(uint64_t epoch);
  Status save_pipeline(Pipeline pipeline);

 private:
  explicit StateFolder(std::string path) : path_(std::move(path)) {}
  Status lock();
  Status read();
  Status write() const;

  const std::string path_;
  FileDescriptor lock_;
  std::string cluster_id_;
  uint64_t epoch_ = 0;
  Pipeline pipeline_;
};

}  // namespace strata::coordinator
