// The web page: one HTML file with its style and script inside, and the headers to serve it with.
//
// It lives in this folder as page.html, page.css and some scripts, and in the binary as one text.
// Nothing of it comes from elsewhere, and its Content-Security-Policy sees to that: only its own
// style and script run, known by their digests, and it talks to its own origin only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::serve {

struct WebPage {
  std::string_view html;
  std::string etag;  // with its quotes
  // Content-Security-Policy and so on, the ETag too; not the content type.
  std::vector<std::pair<std::string, std::string>> headers;
};

inline constexpr std::string_view kWebPageType = "text/html; charset=utf-8";

// Threads: any; the page is made once.
const WebPage& web_page();

// Of a page whose styles and scripts stand in <style> and <script> elements without attributes.
std::string content_security_policy(std::string_view html);

}  // namespace strata::serve
