// Serves a model's header and tensors to workers that have no file of it:
// proto/strata/v1/weights.proto.
//
// Reads from the mapped file by reading, piece by piece, as fast as the worker takes them; nothing
// is kept. Give service() to RpcServer, which must be shut down before this is destroyed.
//
// This header includes no gRPC. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/remote/cluster_records.h"
#include "runtime/gguf/digest.h"
#include "runtime/gguf/gguf_file.h"

namespace grpc {
class Service;
}

namespace strata::remote {

class WeightsService {
 public:
  // `name`'s digest is "sha256:" and `digest.model`. Requires: file->has_data(), one digest for
  // each tensor.
  static std::unique_ptr<WeightsService> create(std::string token, ModelName name,
                                                std::shared_ptr<const GgufFile> file,
                                                ModelDigest digest);
  virtual ~WeightsService() = default;
  virtual grpc::Service& service() = 0;
  // Bytes of tensors sent since creation.
  virtual uint64_t sent_bytes() const = 0;
};

}  // namespace strata::remote
