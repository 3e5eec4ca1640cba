#include "runtime/base/status.h"

#include <array>
#include <cstring>
#include <system_error>

namespace strata {

std::string_view status_code_name(StatusCode code) {
  static constexpr std::array<std::string_view, 17> kNames = {"OK",
                                                              "CANCELLED",
                                                              "UNKNOWN",
                                                              "INVALID_ARGUMENT",
                                                              "DEADLINE_EXCEEDED",
                                                              "NOT_FOUND",
                                                              "ALREADY_EXISTS",
                                                              "PERMISSION_DENIED",
                                                              "RESOURCE_EXHAUSTED",
                                                              "FAILED_PRECONDITION",
                                                              "ABORTED",
                                                              "OUT_OF_RANGE",
                                                              "UNIMPLEMENTED",
                                                              "INTERNAL",
                                                              "UNAVAILABLE",
                                                              "DATA_LOSS",
                                                              "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : "UNKNOWN";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + message_, hint_);
}

Status Status::with_hint(std::string hint) const {
  if (ok()) return *this;
  return Status(code_, message_, std::move(hint));
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return hint_.empty() ? message_ : message_ + " (" + hint_ + ")";
}

Status invalid_argument(std::string message, std::string hint) {
  return {StatusCode::invalid_argument, std::move(message), std::move(hint)};
}
Status not_found(std::string message, std::string hint) {
  return {StatusCode::not_found, std::move(message), std::move(hint)};
}
Status failed_precondition(std::string message, std::string hint) {
  return {StatusCode::failed_precondition, std::move(message), std::move(hint)};
}
Status resource_exhausted(std::string message, std::string hint) {
  return {StatusCode::resource_exhausted, std::move(message), std::move(hint)};
}
Status unimplemented(std::string message, std::string hint) {
  return {StatusCode::unimplemented, std::move(message), std::move(hint)};
}
Status unavailable(std::string message, std::string hint) {
  return {StatusCode::unavailable, std::move(message), std::move(hint)};
}
Status internal_error(std::string message, std::string hint) {
  return {StatusCode::internal, std::move(message), std::move(hint)};
}
Status data_loss(std::string message, std::string hint) {
  return {StatusCode::data_loss, std::move(message), std::move(hint)};
}
Status cancelled(std::string message, std::string hint) {
  return {StatusCode::cancelled, std::move(message), std::move(hint)};
}
Status deadline_exceeded(std::string message, std::string hint) {
  return {StatusCode::deadline_exceeded, std::move(message), std::move(hint)};
}

Status from_errno(int error, std::string_view what) {
  const StatusCode code = error == ENOENT                      ? StatusCode::not_found
                          : error == EACCES || error == EPERM  ? StatusCode::permission_denied
                          : error == ENOMEM || error == ENOSPC ? StatusCode::resource_exhausted
                                                               : StatusCode::unavailable;
  return Status(code, std::string(what) + ": " + std::generic_category().message(error));
}

}  // namespace strata
