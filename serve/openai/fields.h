// Fields: a request's members, read with their types and ranges.
//
// null counts as absent, an unknown member is nobody's business. Each error names the field, says
// what stands there and what may, and leaves the field's name in `param`.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "serve/openai/json_body.h"

namespace strata::serve {

class Fields {
 public:
  // `prefix`: before the names in errors, such as "stream_options.".
  Fields(const Json& object, std::string& param, std::string prefix = {})
      : object_(object), param_(param), prefix_(std::move(prefix)) {}

  // Null if the member is absent or null.
  const Json* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  Result<std::optional<bool>> boolean(std::string_view name) const;
  Result<std::optional<double>> number(std::string_view name, double low, double high) const;
  // A number without a fraction; 5.0 is one.
  Result<std::optional<int64_t>> integer(std::string_view name, int64_t low, int64_t high) const;
  Result<std::optional<std::string>> text(std::string_view name) const;
  // One of the words.
  Result<std::optional<std::string>> word(std::string_view name,
                                          std::initializer_list<std::string_view> words) const;
  // An object; null if absent.
  Result<const Json*> object(std::string_view name) const;
  Result<const Json*> array(std::string_view name) const;

  // The member is there and means something that is not built: "NAME is not supported yet".
  Status unsupported(std::string_view name, std::string_view hint = {}) const;
  // Errors unless the member is absent or one of these: what they would do is not built.
  Status only(std::string_view name, std::initializer_list<double> neutral) const;

  Status wrong(std::string_view name, std::string_view what, std::string_view hint = {}) const;
  Status wrong_type(std::string_view name, std::string_view wanted) const;
  std::string& param() const { return param_; }

 private:
  const Json& object_;
  std::string& param_;
  const std::string prefix_;
};

}  // namespace strata::serve
