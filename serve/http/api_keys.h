// The keys that clients of the HTTP server show, kept as digests only.
//
// Threads: immutable once read; any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "serve/http/message.h"

namespace strata::serve {

class ApiKeys {
 public:
  // Lines "KEY" or "NAME KEY"; empty ones and those that begin with '#' say nothing. Errors:
  // INVALID_ARGUMENT naming the line for more than two words or a key of less than 8 characters,
  // and for a text without a key.
  static Result<ApiKeys> parse(std::string_view text);

  // Without keys every request is welcome.
  bool empty() const { return digests_.empty(); }
  // Whether the request shows a key: Authorization: Bearer, x-api-key or api-key. Takes the same
  // time for every wrong key.
  bool allows(const HttpRequest& request) const;

 private:
  std::vector<std::string> digests_;  // SHA-256, hexadecimal
};

}  // namespace strata::serve
