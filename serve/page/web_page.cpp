#include "serve/page/web_page.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "runtime/base/check.h"
#include "runtime/base/digest.h"
#include "serve/page/page_text.h"

namespace strata::serve {
namespace {

// "'sha256-...'", as a policy names a text.
std::string policy_source(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const int done =
      EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
  STRATA_CHECK(done == 1, "SHA-256 failed");
  std::array<unsigned char, EVP_MAX_MD_SIZE * 2> base64{};
  const int length = EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(size));
  return fmt::format("'sha256-{}'", std::string_view(reinterpret_cast<const char*>(base64.data()),
                                                     static_cast<size_t>(length)));
}

// The sources of all <tag>...</tag>.
std::string policy_sources(std::string_view html, std::string_view tag) {
  const std::string open = fmt::format("<{}>", tag);
  const std::string close = fmt::format("</{}>", tag);
  std::string sources;
  for (size_t at = html.find(open); at != html.npos; at = html.find(open, at)) {
    at += open.size();
    const size_t end = html.find(close, at);
    if (end == html.npos) break;
    sources += fmt::format(" {}", policy_source(html.substr(at, end - at)));
    at = end;
  }
  return sources.empty() ? " 'none'" : sources;
}

WebPage make_web_page() {
  WebPage page;
  page.html = kPageText;
  page.etag = fmt::format("\"{}\"", sha256_hex(kPageText).substr(0, 32));
  page.headers = {
      {"Content-Security-Policy", content_security_policy(page.html)},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Cache-Control", "no-cache"},  // asked again each time, and answered by the ETag
      {"ETag", page.etag},
  };
  return page;
}

}  // namespace

const WebPage& web_page() {
  static const WebPage page = make_web_page();
  return page;
}

std::string content_security_policy(std::string_view html) {
  return fmt::format(
      "default-src 'none'; script-src{}; style-src{}; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
      "require-trusted-types-for 'script'",
      policy_sources(html, "script"), policy_sources(html, "style"));
}

}  // namespace strata::serve
