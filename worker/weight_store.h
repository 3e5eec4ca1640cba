// WeightStore: finds the model that a coordinator names, or gets just the tensors of a stage.
//
//   1. a file of that base name in the --models folders, with that digest
//   2. tensors in the cache folder, by digest
//   3. the coordinator, whose bytes are checked against the manifest's digests and stored as in 2
//
// So a second load sends nothing, and a broken transfer goes on where it ended. Several workers of
// one machine may share a cache folder: one receives a tensor, the others wait for it. What is
// stored is checked by digest at each use, and received again if it is damaged. The header is
// checked against the model's digest, which covers all metadata and the tensors' digests, also when
// it has just come. A cache that cannot be written is said so once, and done without.
//
//   <cache>/digests/          digests of files in the folders (runtime/gguf/digest_file_cache.h)
//   <cache>/models/<digest>/  header.gguf, manifest (with the digests of both)
//   <cache>/tensors/<digest>  a tensor's bytes; "<digest>.part" while they come in
//
// Threads: any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/remote/cluster_records.h"
#include "backends/remote/weights_client.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/weights.h"
#include "worker/cache_disk.h"

namespace strata::worker {

struct WeightStoreOptions {
  std::vector<std::string> model_folders;
  std::string cache_folder;  // made when something is stored
  int threads = 1;           // for digests
};

// A model ready for StageModel: its file, or its header and a source of tensors.
struct OpenedModel {
  std::shared_ptr<const GgufFile> file;
  std::unique_ptr<TensorSource> source;  // null: the file itself
};

class WeightStore {
 public:
  explicit WeightStore(WeightStoreOptions options)
      : options_(std::move(options)), disk_(options_.cache_folder + "/tensors") {}

  // Opens a model by base name and digest. `client`, which must outlive the result, is asked if no
  // folder has it. with_tokenizer: keep the tokenizer's arrays. Computing the digest of a new file
  // takes a while (1.5 GB/s a core). Errors: NOT_FOUND if neither folders nor coordinator have it;
  // DATA_LOSS if what the coordinator sends is another model; CANCELLED; UNAVAILABLE.
  Result<OpenedModel> open(const remote::ModelName& model, remote::WeightsClient& client,
                           std::stop_token stop, bool with_tokenizer = false);

  // Bytes of tensors that came over the network since creation and were used.
  uint64_t received_bytes() const { return received_bytes_; }

 private:
  // A header with the digest that was asked for.
  struct Header {
    std::shared_ptr<const GgufFile> file;
    std::vector<remote::ManifestTensor> tensors;
  };

  static Result<Header> check_header(const remote::ModelHeader& received,
                                     const remote::ModelName& model);
  Result<std::shared_ptr<const GgufFile>> find_local(const remote::ModelName& model,
                                                     std::stop_token stop) const;
  Result<Header> get_header(const remote::ModelName& model, remote::WeightsClient& client,
                            std::stop_token stop) const;

  const WeightStoreOptions options_;
  CacheDisk disk_;
  std::atomic<uint64_t> received_bytes_ = 0;
};

}  // namespace strata::worker
