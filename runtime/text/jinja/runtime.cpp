#include "runtime/text/jinja/runtime.h"

#include <fmt/format.h>

namespace strata::jinja {
namespace {

constexpr uint64_t kStepsPerClockLook = 4096;

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

std::string at_position(Position position, std::string_view what) {
  return fmt::format("line {}, column {}: {}", position.line, position.column, what);
}

Runtime::Runtime(const Limits& limits)
    : limits_(limits), next_clock_look_(kStepsPerClockLook), seconds_at_start_(thread_seconds()) {}

Status Runtime::error(std::string_view message) const {
  return invalid_argument(at_position(position, message));
}

Status Runtime::error(const Undefined& undefined) const {
  return error(undefined.why ? *undefined.why : "the value is undefined");
}

Status Runtime::exhausted(std::string_view what) const {
  return resource_exhausted(
      at_position(position, fmt::format("the template needs more than {}", what)));
}

Status Runtime::charge(uint64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps_max) {
    return exhausted(fmt::format("{} steps", limits_.steps_max));
  }
  if (heap_bytes_ + text_bytes_ > limits_.live_bytes_max) {
    return exhausted(fmt::format("{} MiB of memory", limits_.live_bytes_max >> 20));
  }
  if (steps_ >= next_clock_look_) {
    next_clock_look_ = steps_ + kStepsPerClockLook;
    if (thread_seconds() - seconds_at_start_ > limits_.seconds_max) {
      return exhausted(fmt::format("{} s", limits_.seconds_max));
    }
  }
  return ok_status();
}

Result<Value> Runtime::text(TextBuilder&& builder, bool is_markup) {
  if (builder.overflowed()) {
    return exhausted(fmt::format("{} MiB for a text", limits_.text_bytes_max >> 20));
  }
  TRY(charge_bytes(builder.size()));
  return Value(std::make_shared<const Text>(builder.take(), is_markup, &text_bytes_));
}

Result<Value> Runtime::text(std::string bytes, bool is_foreign) {
  TextBuilder out = builder();
  out.append(bytes, is_foreign);
  return text(std::move(out));
}

Result<Value> Runtime::slice(const Text& source, size_t begin, size_t end) {
  TextBuilder out = builder();
  out.append(source, begin, end);
  return text(std::move(out), source.markup);
}

Value Runtime::undefined(std::string why) {
  return Undefined{std::make_shared<const std::string>(std::move(why))};
}

List* Runtime::list(std::vector<Value> items) {
  List* list = make<List>();
  grow(items.size() * sizeof(Value));
  list->items = std::move(items);
  return list;
}

Tuple* Runtime::tuple(std::vector<Value> items) {
  Tuple* tuple = make<Tuple>();
  grow(items.size() * sizeof(Value));
  tuple->items = std::move(items);
  return tuple;
}

Status DepthGuard::status() const {
  if (runtime_.depth_ <= runtime_.limits_.depth_max) return ok_status();
  return resource_exhausted(
      at_position(runtime_.position,
                  fmt::format("the template nests deeper than {}", runtime_.limits_.depth_max)));
}

}  // namespace strata::jinja
