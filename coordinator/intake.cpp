#include "coordinator/intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/human.h"
#include "runtime/base/thread_start.h"

namespace strata::coordinator {
namespace {

// What a request holds while it waits, but for what all have.
uint64_t bytes_of(const remote::GenerateRequest& request) {
  uint64_t bytes = request.grammar.text.size() + 8 * request.logit_bias.size();
  for (const std::string& stop : request.stop) bytes += stop.size();
  if (const auto* text = std::get_if<std::string>(&request.prompt)) bytes += text->size();
  if (const auto* ids = std::get_if<remote::TokenPrompt>(&request.prompt)) {
    bytes += sizeof(int32_t) * ids->size();
  }
  if (const auto* chat = std::get_if<remote::ChatPrompt>(&request.prompt)) {
    bytes += chat->messages.size() + chat->tools.size() + chat->tool_choice.size();
  }
  return bytes;
}

}  // namespace

Intake::Intake(const IntakeLimits& limits, Target target)
    : limits_(limits), target_(std::move(target)) {
  for (uint32_t i = 0; i < std::max(1U, limits.threads); ++i) {
    if (start_thread(threads_.emplace_back(), [this] { run(); }).ok()) continue;
    threads_.pop_back();  // those that there are do the work
    break;
  }
  has_threads_ = !threads_.empty();
}

Intake::~Intake() { stop(); }

void Intake::add(RequestId id, remote::GenerateRequest request, AnswerListener listener) {
  const uint64_t bytes = bytes_of(request);
  const Status taken = take({id, std::move(request), listener, bytes});
  if (!taken.ok()) listener(taken);
}

Status Intake::take(Waiting waiting) {
  const MutexLock lock(mutex_);
  if (stopping_) return unavailable("the coordinator is shutting down");
  if (!has_threads_) return no_more_threads();
  if (waiting_.size() >= limits_.requests_max) {
    return resource_exhausted(fmt::format("{} requests wait to be read already", waiting_.size()),
                              "try again later");
  }
  // One alone always fits: a message's size bounds it.
  if (!waiting_.empty() && waiting.bytes > limits_.bytes_max - waiting_bytes_) {
    return resource_exhausted(
        fmt::format("{} requests of {} together wait to be read already, {} may", waiting_.size(),
                    human_bytes(waiting_bytes_), human_bytes(limits_.bytes_max)),
        "try again later");
  }
  waiting_bytes_ += waiting.bytes;
  waiting_.push_back(std::move(waiting));
  wake_.notify_one();
  return ok_status();
}

void Intake::cancel(RequestId id) {
  AnswerListener listener;
  {
    const MutexLock lock(mutex_);
    if (in_work_.contains(id)) {
      gone_.insert(id);  // its thread ends it
      return;
    }
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [id](const Waiting& waiting) { return waiting.id == id; });
    if (found != waiting_.end()) {
      listener = std::move(found->listener);
      waiting_bytes_ -= found->bytes;
      waiting_.erase(found);
    }
  }
  if (listener) {
    listener(cancelled("the answer was cancelled"));
  } else {
    target_.cancel(id);
  }
}

void Intake::run() noexcept {
  for (;;) {
    Waiting next;
    {
      const MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) wake_.wait(mutex_);
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= next.bytes;
      in_work_.insert(next.id);
    }
    target_.start(next.request, std::move(next.listener), next.id);
    bool is_gone = false;
    {
      const MutexLock lock(mutex_);
      in_work_.erase(next.id);
      is_gone = gone_.erase(next.id) > 0;
    }
    if (is_gone) target_.cancel(next.id);
  }
}

void Intake::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    waiting_.clear();
    waiting_bytes_ = 0;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace strata::coordinator
