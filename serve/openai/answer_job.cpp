#include "serve/openai/answer_job.h"

#include <algorithm>

#include "runtime/base/mutex.h"

namespace strata::serve {
namespace {

class AnswerJob : public std::enable_shared_from_this<AnswerJob> {
 public:
  AnswerJob(ModelService& service, const ModelService::Open& model, std::vector<AnswerCall> calls,
            std::unique_ptr<AnswerSink> sink, std::shared_ptr<HttpReply> reply)
      : service_(service),
        model_(model),
        calls_(std::move(calls)),
        sink_(std::move(sink)),
        reply_(std::move(reply)),
        ids_(calls_.size(), 0),
        prompt_tokens_(calls_.size(), 0) {}

  void begin() {
    reply_->on_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->abandon();
    });
    const size_t at_once = std::min<size_t>(calls_.size(), std::max(model_.facts.slots, 1U));
    for (size_t i = 0; i < at_once; ++i) start_next();
  }

 private:
  void start_next() {
    size_t call = 0;
    coordinator::RequestId id = 0;
    {
      const MutexLock lock(mutex_);
      if (ended_ || next_ == calls_.size()) return;
      call = next_++;
      id = model_.engine.reserve_id();
      ids_[call] = id;
    }
    const AnswerCall& asked = calls_[call];
    coordinator::GenerateExtras extras = asked.extras;
    const auto self = shared_from_this();
    if (extras.on_prompt) {
      extras.on_prompt = [self, call](const coordinator::PromptLogprob& about) {
        const MutexLock lock(self->mutex_);
        if (!self->ended_) self->sink_->on_prompt(call, about);
      };
    }
    model_.generator.start(
        asked.request,
        [self, call](coordinator::AnswerEvent event) { self->take(call, std::move(event)); }, id,
        extras);
    bool is_late = false;
    {
      const MutexLock lock(mutex_);
      is_late = ended_;
    }
    if (is_late) model_.generator.cancel(id);  // an end before the start had nothing to cancel
  }

  void take(size_t call, coordinator::AnswerEvent event) {
    bool has_finished = false;
    bool failed = false;
    {
      const MutexLock lock(mutex_);
      if (ended_) return;
      if (const auto* started = std::get_if<remote::GenerateStarted>(&event)) {
        prompt_tokens_[call] = started->prompt_tokens;
        sink_->on_started(call, *started);
      } else if (auto* token = std::get_if<remote::GenerateToken>(&event)) {
        sink_->on_token(call, std::move(*token));
      } else if (const auto* finished = std::get_if<remote::GenerateFinished>(&event)) {
        sink_->on_finished(call, *finished);
        has_finished = true;
        ended_ = ++finished_ == calls_.size();
        if (ended_) sink_->on_done();
      } else if (const auto* status = std::get_if<Status>(&event)) {
        ended_ = failed = true;
        sink_->on_failed(*status, {.param = {},
                                   .prompt_tokens = prompt_tokens_[call],
                                   .context = model_.facts.context,
                                   .wants_answer = !calls_[call].extras.no_answer});
      }
    }
    if (failed) cancel_all();
    if (!has_finished) return;
    // Tokenizing is not for the engine's thread.
    service_.helper().post_always([self = shared_from_this()] { self->start_next(); });
  }

  void abandon() {
    {
      const MutexLock lock(mutex_);
      if (ended_) return;
      ended_ = true;
    }
    cancel_all();
  }

  void cancel_all() {
    std::vector<coordinator::RequestId> ids;
    {
      const MutexLock lock(mutex_);
      ids = ids_;
    }
    for (const coordinator::RequestId id : ids) model_.generator.cancel(id);
  }

  ModelService& service_;
  const ModelService::Open& model_;
  std::vector<AnswerCall> calls_;
  const std::unique_ptr<AnswerSink> sink_;
  const std::shared_ptr<HttpReply> reply_;

  Mutex mutex_;
  std::vector<coordinator::RequestId> ids_ STRATA_GUARDED_BY(mutex_);
  std::vector<uint32_t> prompt_tokens_ STRATA_GUARDED_BY(mutex_);
  size_t next_ STRATA_GUARDED_BY(mutex_) = 0;
  size_t finished_ STRATA_GUARDED_BY(mutex_) = 0;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
};

}  // namespace

void run_answers(ModelService& service, std::vector<AnswerCall> calls,
                 std::unique_ptr<AnswerSink> sink, std::shared_ptr<HttpReply> reply) {
  const ModelService::Open* model = service.get();
  if (model == nullptr) {
    reply->send(api_error(service.health()));
    return;
  }
  std::make_shared<AnswerJob>(service, *model, std::move(calls), std::move(sink), std::move(reply))
      ->begin();
}

}  // namespace strata::serve
