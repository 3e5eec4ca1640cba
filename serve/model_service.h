// ModelService: the model that a server answers with, from before it is loaded until it is gone.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backends/remote/client_records.h"
#include "coordinator/generator.h"
#include "runtime/base/work_thread.h"
#include "runtime/gguf/gguf_file.h"

namespace strata::serve {

// What is known of the model, for /v1/models and /props.
struct ModelFacts {
  std::string path;
  std::string architecture;
  std::string bos_text;
  std::string eos_text;
  uint32_t context = 0;  // that one request may fill
  uint32_t slots = 1;    // requests that are answered at once
  int32_t vocab_size = 0;
  int32_t trained_context = 0;
  int32_t embedding_length = 0;
  uint64_t parameters = 0;
  uint64_t file_bytes = 0;
};
// Errors: those of read_hparams().
Result<ModelFacts> facts_of(const GgufFile& file, uint32_t context, uint32_t slots);

class ModelService {
 public:
  struct Open {
    coordinator::Generator& generator;
    coordinator::EngineLoop& engine;
    ModelFacts facts;
    // OK, or UNAVAILABLE with why there is no pipeline right now.
    std::function<Status()> health;
    // The nodes and what they hold, for the page.
    std::function<remote::ClusterStatus()> cluster;
  };

  // `name`: what clients call the model.
  explicit ModelService(std::string name) : name_(std::move(name)) {}

  // From now on there is a model. Once. What `open` refers to must live until the last request has
  // ended.
  void open(Open open);
  // Null while the model is being loaded.
  const Open* get() const { return open_.load(); }
  // OK if requests can be answered now.
  Status health() const;
  const std::string& name() const { return name_; }
  int64_t created() const { return created_; }
  // For what must not be done on the engine's thread.
  WorkThread& helper() { return helper_; }

 private:
  const std::string name_;
  const int64_t created_ = unix_seconds();
  std::unique_ptr<const Open> owned_;
  std::atomic<const Open*> open_ = nullptr;
  WorkThread helper_{4096};

  static int64_t unix_seconds();
};

}  // namespace strata::serve
