#include "worker/grammar_loader.h"

#include <algorithm>
#include <chrono>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/text/tokenizer.h"

namespace strata::worker {
namespace {

// Grammars that are waited for; sequences with others come again.
constexpr size_t kJobsMax = 64;
// A finished one is kept this long for its sequence, which asks after its prompt.
constexpr Duration kKeptFor = std::chrono::seconds(30);

}  // namespace

struct GrammarLoader::Job {
  explicit Job(GrammarSpec wanted) : spec(std::move(wanted)) {}

  const GrammarSpec spec;
  Mutex mutex;
  std::optional<Result<std::shared_ptr<grammar::MaskCache>>> outcome STRATA_GUARDED_BY(mutex);
  TimePoint finished STRATA_GUARDED_BY(mutex);
};

GrammarLoader::GrammarLoader(std::shared_ptr<const GgufFile> tokenizer_file)
    : tokenizer_file_(std::move(tokenizer_file)) {}

GrammarLoader::~GrammarLoader() = default;

GrammarLoader::Jobs::iterator GrammarLoader::find_job(const GrammarSpec& spec) {
  return std::find_if(jobs_.begin(), jobs_.end(), [&spec](const std::shared_ptr<Job>& job) {
    return job->spec.is_same_grammar(spec);
  });
}

void GrammarLoader::prepare(const GrammarSpec& spec) {
  if (tokenizer_file_ == nullptr || (cache_ && cache_->find(spec))) return;
  if (find_job(spec) != jobs_.end()) return;
  if (jobs_.size() >= kJobsMax && !drop_unwanted_job()) return;
  if (!thread_) thread_.emplace(kJobsMax);
  const auto job = std::make_shared<Job>(spec);
  if (!thread_->post([this, job] { compile(*job); })) return;
  jobs_.push_back(job);
}

bool GrammarLoader::drop_unwanted_job() {
  const TimePoint before = std::chrono::steady_clock::now() - kKeptFor;
  const auto unwanted = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    const MutexLock lock(job->mutex);
    return job->outcome && job->finished < before;
  });
  if (unwanted == jobs_.end()) return false;
  jobs_.erase(unwanted);
  return true;
}

// On the loader thread.
void GrammarLoader::compile(Job& job) {
  const auto masks = [&]() -> Result<std::shared_ptr<grammar::MaskCache>> {
    if (vocabulary_ == nullptr) {
      const std::unique_ptr<Tokenizer> tokenizer = TRY(make_tokenizer(tokenizer_file_->metadata()));
      vocabulary_ = grammar::Vocabulary::of(*tokenizer);
    }
    return grammar::compile_masks(job.spec, vocabulary_);
  };
  Result<std::shared_ptr<grammar::MaskCache>> outcome = masks();
  // The first mask is among the dearest: nothing is known yet.
  if (outcome.ok()) grammar::Constraint(*outcome, job.spec.drops_first_space).mask({});
  const MutexLock lock(job.mutex);
  job.outcome = std::move(outcome);
  job.finished = std::chrono::steady_clock::now();
}

Result<std::optional<grammar::Constraint>> GrammarLoader::start(const GrammarSpec& spec) {
  if (tokenizer_file_ == nullptr) {
    return failed_precondition("the tail has no tokenizer for the answer's grammar");
  }
  if (cache_) {
    if (std::optional<grammar::Constraint> known = cache_->find(spec)) return known;
  }
  const auto found = find_job(spec);
  if (found == jobs_.end()) {
    prepare(spec);
    return std::optional<grammar::Constraint>();
  }
  std::shared_ptr<grammar::MaskCache> masks;
  {
    const std::shared_ptr<Job> job = *found;
    const MutexLock lock(job->mutex);
    if (!job->outcome) return std::optional<grammar::Constraint>();
    jobs_.erase(found);
    masks = TRY(std::move(*job->outcome));
  }
  if (!cache_) cache_.emplace(masks->vocabulary());
  return std::optional(cache_->add(spec, std::move(masks)));
}

}  // namespace strata::worker
