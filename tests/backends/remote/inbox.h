// What another thread brings a test, waited for with a limit.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "runtime/base/mutex.h"

namespace strata::remote {

// Values of one type, waited for with a limit.
template <typename T>
class Inbox {
 public:
  void put(T value) {
    MutexLock lock(mutex_);
    values_.push_back(std::move(value));
    changed_.notify_all();
  }
  std::optional<T> take(std::chrono::milliseconds limit = std::chrono::milliseconds(10'000)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    MutexLock lock(mutex_);
    while (values_.empty()) {
      if (!changed_.wait_until(mutex_, deadline)) return std::nullopt;
    }
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<T> values_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::remote
