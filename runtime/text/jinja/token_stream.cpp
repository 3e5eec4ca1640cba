#include "runtime/text/jinja/token_stream.h"

#include <fmt/format.h>

namespace strata::jinja {

Status TokenStream::error(Position position, std::string_view message) const {
  return invalid_argument(at_position(position, message));
}

Status TokenStream::unexpected(std::string_view expected) const {
  return error(fmt::format("found {}, expected {}", describe(current()), expected));
}

Status TokenStream::expect_symbol(std::string_view symbol) {
  if (skip_symbol(symbol)) return ok_status();
  return unexpected(fmt::format("'{}'", symbol));
}

Status TokenStream::expect_name(std::string_view name) {
  if (skip_name(name)) return ok_status();
  return unexpected(fmt::format("'{}'", name));
}

Status TokenStream::expect(TokenKind kind, std::string_view what) {
  if (!is_kind(kind)) return unexpected(what);
  take();
  return ok_status();
}

Result<std::string> TokenStream::expect_identifier(std::string_view what) {
  if (!is_kind(TokenKind::name)) return unexpected(what);
  return take().text;
}

}  // namespace strata::jinja
