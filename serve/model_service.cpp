#include "serve/model_service.h"

#include <chrono>

#include "runtime/model/hparams.h"

namespace strata::serve {

Result<ModelFacts> facts_of(const GgufFile& file, uint32_t context, uint32_t slots) {
  const Hparams hparams = TRY(read_hparams(file));
  ModelFacts facts;
  facts.path = file.path();
  facts.architecture = TRY(file.metadata().get_or<std::string>("general.architecture", ""));
  facts.context = context;
  facts.slots = slots;
  facts.vocab_size = hparams.n_vocab;
  facts.trained_context = hparams.n_ctx_train;
  facts.embedding_length = hparams.n_embd;
  facts.parameters = file.parameter_count();
  facts.file_bytes = file.file_bytes();
  return facts;
}

int64_t ModelService::unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void ModelService::open(Open open) {
  owned_ = std::make_unique<const Open>(std::move(open));
  open_.store(owned_.get());
}

Status ModelService::health() const {
  const Open* model = get();
  if (model == nullptr) return unavailable("Loading model", "try again in a moment");
  return model->health ? model->health() : ok_status();
}

}  // namespace strata::serve
