// Threads, and what to say where the system gives none.
#pragma once

#include <exception>
#include <system_error>
#include <thread>
#include <utility>

namespace strata {

// The limit on threads or memory is reached. Thrown by start_thread() and caught by main(), since a
// program that gets no threads can do nothing but say so.
class NoThreadLeft final : public std::exception {
 public:
  const char* what() const noexcept override {
    return "the system gives this process no more threads";
  }
};

// As std::thread(function).
template <typename Function>
std::thread start_thread(Function&& function) {
  try {
    return std::thread(std::forward<Function>(function));
  } catch (const std::system_error&) {
    throw NoThreadLeft();
  }
}

}  // namespace strata
