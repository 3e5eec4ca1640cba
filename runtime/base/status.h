// Status and Result<T>: how every failure that is not a bug travels in Strata.
//
// A failure here is often an ordinary outcome on another thread or node (a worker died, a file is
// truncated, a cache is full), so it is a value that can be stored, sent over the wire and
// returned, never an exception. The codes are gRPC's, one to one
// (https://grpc.io/docs/guides/status-codes). A message is one sentence with the thing, the value
// and the limit; a hint says what to do next. Context is added by the caller that knows it; the
// error is logged once, where it is handled.
//
// Threads: values, externally synchronised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "runtime/base/check.h"

namespace strata {

// gRPC's numbers, so that a Status crosses the wire unchanged.
enum class StatusCode : int32_t {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  already_exists = 6,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  out_of_range = 11,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15,
  unauthenticated = 16,
};

// The code's name as gRPC prints it, such as "INVALID_ARGUMENT".
std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message, std::string hint = {})
      : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // What the reader can do next; empty where nothing useful can be said.
  const std::string& hint() const { return hint_; }

  // "context: message", code and hint kept. No change to an ok status.
  Status with_context(std::string_view context) const;
  Status with_hint(std::string hint) const;
  // "message (hint)", for one line of text; "ok" if ok.
  std::string to_string() const;

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
  std::string hint_;
};

inline Status ok_status() { return {}; }
Status invalid_argument(std::string message, std::string hint = {});
Status not_found(std::string message, std::string hint = {});
Status failed_precondition(std::string message, std::string hint = {});
Status resource_exhausted(std::string message, std::string hint = {});
Status unimplemented(std::string message, std::string hint = {});
Status unavailable(std::string message, std::string hint = {});
Status internal_error(std::string message, std::string hint = {});
Status data_loss(std::string message, std::string hint = {});
Status cancelled(std::string message, std::string hint = {});
Status deadline_exceeded(std::string message, std::string hint = {});
// The message of errno value `error` after `what`: "cannot open x: No such file or directory".
Status from_errno(int error, std::string_view what);

// A T or the Status that explains why there is none. Accessing the wrong one is a bug and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  // Implicit on purpose: `return value;` and `return invalid_argument(...);` both work.
  Result(T value) : state_(std::in_place_index<1>, std::move(value)) {}        // NOLINT
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {  // NOLINT
    STRATA_CHECK(!std::get<0>(state_).ok(), "a Result needs a value or an error");
  }

  bool ok() const { return state_.index() == 1; }
  Status status() const { return ok() ? Status() : std::get<0>(state_); }
  T& value() & {
    STRATA_CHECK(ok(), std::get<0>(state_).to_string());
    return std::get<1>(state_);
  }
  const T& value() const& {
    STRATA_CHECK(ok(), std::get<0>(state_).to_string());
    return std::get<1>(state_);
  }
  T&& value() && {
    STRATA_CHECK(ok(), std::get<0>(state_).to_string());
    return std::get<1>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T fallback) const& { return ok() ? value() : std::move(fallback); }
  // The result with "context: " before its error's message.
  Result with_context(std::string_view context) && {
    if (ok()) return std::move(*this);
    return std::get<0>(state_).with_context(context);
  }

 private:
  std::variant<Status, T> state_;
};

namespace status_detail {
inline Status error_of(Status&& s) { return std::move(s); }
template <typename T>
Status error_of(Result<T>&& r) {
  return r.status();
}
inline std::monostate take(Status&&) { return {}; }
template <typename T>
T take(Result<T>&& r) {
  return std::move(r).value();
}
}  // namespace status_detail

}  // namespace strata

// `auto n = TRY(reader.read_u64());` and `TRY(check(x));`: the value, or return the error to the
// caller. The only macro with control flow in the project. Not usable inside coroutines.
#define TRY(expression)                                                                      \
  __extension__({                                                                            \
    auto try_result_ = (expression);                                                         \
    if (!try_result_.ok()) return ::strata::status_detail::error_of(std::move(try_result_)); \
    ::strata::status_detail::take(std::move(try_result_));                                   \
  })
