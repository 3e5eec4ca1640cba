// Runtime: what one rendering may use (steps, memory, time), where it is, and the heap of its
// objects. All code that makes values gets one.
//
// Threads: one rendering, one thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/text/jinja/value.h"

namespace strata::jinja {

// Generous for real templates (a thousand messages take some 10^6 steps), small enough that a
// hostile one ends soon.
struct Limits {
  uint64_t steps_max = 50'000'000;           // an expression, a statement, 64 bytes of text
  size_t text_bytes_max = size_t{64} << 20;  // one string, and the output
  size_t live_bytes_max = size_t{512} << 20;
  uint32_t depth_max = 400;  // nested evaluations: expressions, macros, loops
  // Processor time of the rendering's thread, so that a busy machine is no template's fault.
  double seconds_max = 5;
};

// Both from 1; columns in code points. Line 0: unknown.
struct Position {
  uint32_t line = 0;
  uint32_t column = 0;
};
// "line 3, column 14: what", as all errors of a template begin.
std::string at_position(Position position, std::string_view what);

class Runtime {
 public:
  explicit Runtime(const Limits& limits);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  // Where errors are. Set by the evaluator before each operation.
  Position position;

  // INVALID_ARGUMENT "line L, column C: message".
  Status error(std::string_view message) const;
  // Python's error for an undefined value that is used.
  Status error(const Undefined& undefined) const;

  // RESOURCE_EXHAUSTED "line L, column C: the template needs more than ...".
  Status exhausted(std::string_view what) const;
  // Errors: RESOURCE_EXHAUSTED when steps, time or memory are used up.
  Status charge(uint64_t steps = 1);
  Status charge_bytes(size_t bytes) { return charge(1 + bytes / 64); }

  template <typename T>
  T* make() {
    auto object = std::make_unique<T>();
    T* raw = object.get();
    objects_.push_back(std::move(object));
    heap_bytes_ += sizeof(T) + 32;
    return raw;
  }
  // Counts memory that an object's elements take.
  void grow(size_t bytes) { heap_bytes_ += bytes; }

  TextBuilder builder() const { return TextBuilder(limits_.text_bytes_max); }
  // Errors: RESOURCE_EXHAUSTED if the builder ran over the limit of a text.
  Result<Value> text(TextBuilder&& builder, bool is_markup = false);
  Result<Value> text(std::string bytes, bool is_foreign = false);
  Result<Value> slice(const Text& text, size_t begin, size_t end);

  Value undefined(std::string why);
  List* list(std::vector<Value> items);
  Tuple* tuple(std::vector<Value> items);

 private:
  friend class DepthGuard;

  Limits limits_;
  uint64_t steps_ = 0;
  uint64_t next_clock_look_;
  double seconds_at_start_;
  uint32_t depth_ = 0;
  size_t heap_bytes_ = 0;
  size_t text_bytes_ = 0;
  std::deque<std::unique_ptr<Object>> objects_;
};

// One level of recursion, for as long as it lives. Check status() first.
class DepthGuard {
 public:
  explicit DepthGuard(Runtime& runtime) : runtime_(runtime) { ++runtime_.depth_; }
  ~DepthGuard() { --runtime_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  Status status() const;

 private:
  Runtime& runtime_;
};

}  // namespace strata::jinja
