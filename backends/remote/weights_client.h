// Asks a coordinator for a model's header and for tensors; the other end of weights_service.h.
//
// Moves bytes and nothing else: what is stored where, and whether a digest is right, is the weight
// store's to see. This header includes no gRPC. Threads: any; each call blocks its caller.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/remote/channel.h"
#include "backends/remote/cluster_records.h"

namespace strata::remote {

struct ManifestTensor {
  std::string name;
  std::string digest;  // 64 hex digits
  uint64_t size_bytes = 0;
};

struct ModelHeader {
  std::string header;  // for GgufFile::from_header()
  std::vector<ManifestTensor> tensors;
};

class WeightsClient {
 public:
  // Connects lazily, over a connection of its own.
  static std::unique_ptr<WeightsClient> create(const Address& coordinator, std::string token,
                                               std::string caller);
  virtual ~WeightsClient() = default;

  // `with_tokenizer`: the header has the tokenizer's arrays too (some MB).
  // Errors: NOT_FOUND if the coordinator has another model; CANCELLED; UNAVAILABLE if it is lost.
  virtual Result<ModelHeader> get_model(const ModelName& model, bool with_tokenizer,
                                        std::stop_token stop) = 0;

  // The tensor's bytes from `offset` on, in order, each once. A piece that never comes is
  // DEADLINE_EXCEEDED. Errors: also those of `take`.
  virtual Status get_tensor(const ModelName& model, const ManifestTensor& tensor, uint64_t offset,
                            const std::function<Status(std::span<const std::byte>)>& take,
                            std::stop_token stop) = 0;
};

}  // namespace strata::remote
