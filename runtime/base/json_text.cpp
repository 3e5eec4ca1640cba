#include "runtime/base/json_text.h"

#include <fmt/format.h>

namespace strata {
namespace {

constexpr size_t kNestingMax = 200;

}  // namespace

Status check_no_nul(std::string_view json, std::string_view what) {
  if (const size_t nul = json.find('\0'); nul != std::string_view::npos) {
    return invalid_argument(fmt::format("{}: no JSON at byte {}: a NUL byte", what, nul));
  }
  return ok_status();
}

Status check_nesting(std::string_view json, std::string_view what) {
  TRY(check_no_nul(json, what));
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kNestingMax) {
        return invalid_argument(fmt::format("{} nest deeper than {}", what, kNestingMax));
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return ok_status();
}

}  // namespace strata
