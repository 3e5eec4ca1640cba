// Goal: the page that is served holds all that it needs, its policy lets its own style and script
// run and nothing else, and no code in it makes HTML of text. Method: the text itself, and a policy
// whose digest openssl has computed.
#include "serve/page/web_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

namespace strata::serve {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern, std::regex::icase);
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), regex);
       at != std::sregex_iterator(); ++at) {
    found.push_back(at->str());
  }
  return found;
}

// The page without what stands in its style and script.
std::string markup() {
  std::string text(web_page().html);
  for (const char* tag : {"style", "script"}) {
    const size_t from = text.find("<" + std::string(tag) + ">");
    const size_t to = text.find("</" + std::string(tag) + ">");
    text.erase(from, to - from);
  }
  return text;
}

std::string header(std::string_view name) {
  for (const auto& [key, value] : web_page().headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(WebPage, PolicyNamesStylesAndScriptsByTheirDigests) {
  // printf '%s' 'let a = 1;' | openssl dgst -sha256 -binary | base64, and so on.
  const std::string policy = content_security_policy(
      "<p>1</p><style>b{}</style><script>let a = 1;</script><script>\n</script>");
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-xY6QKfH9PRsQnLz56nj6MBwiK5oHg+im1Jkpdp1x/Ck=' "
                                "'sha256-AbpHGcgLb+kRsJGnwFEktk7uzpZOCcBY74+YBdrKVGs=';"));
  EXPECT_THAT(policy,
              HasSubstr("style-src 'sha256-7yqHVAesot11p6HczDsgKRipvI5UPgs97z80zNXlans=';"));
  EXPECT_THAT(policy, HasSubstr("default-src 'none';"));
  EXPECT_THAT(policy, HasSubstr("connect-src 'self';"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
}

TEST(WebPage, PolicyOfAPageWithoutScriptsAllowsNone) {
  EXPECT_THAT(content_security_policy("<p></p>"),
              HasSubstr("script-src 'none'; style-src 'none';"));
}

TEST(WebPage, ServesThePolicyOfItsOwnText) {
  EXPECT_EQ(header("Content-Security-Policy"), content_security_policy(web_page().html));
  EXPECT_EQ(header("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(header("Referrer-Policy"), "no-referrer");
  EXPECT_EQ(header("ETag"), web_page().etag);
  EXPECT_EQ(web_page().etag.size(), 34u);
}

TEST(WebPage, HoldsAllItsPartsInOneText) {
  const std::string_view html = web_page().html;
  EXPECT_EQ(html.substr(0, 15), "<!DOCTYPE html>");
  // An element with attributes would not be covered by the policy's digests.
  EXPECT_EQ(count_of(html, "<style>"), 1u);
  EXPECT_EQ(count_of(html, "<script>"), 1u);
  EXPECT_EQ(count_of(html, "</style"), 1u);
  EXPECT_EQ(count_of(html, "</script"), 1u);
  EXPECT_EQ(count_of(html, "/* page.css */"), 0u) << "the build has not put the style in";
  EXPECT_EQ(count_of(html, "/* scripts */"), 0u) << "the build has not put the scripts in";
  EXPECT_THAT(html, HasSubstr("app.start();"));
  EXPECT_THAT(
      matches(markup(),
              "<(script|style|link|img|iframe|object|embed|base|form)\\s[^>]*(src|action)="),
      IsEmpty());
  EXPECT_THAT(matches(markup(), "\\s(style|on[a-z]+)="), IsEmpty()) << "the policy forbids these";
}

TEST(WebPage, NamesNoAddressOutside) {
  const std::string text(web_page().html);
  for (const std::string& url : matches(text, "(https?:|[\"'=(])//[a-z0-9][^\\s'\"`)]*")) {
    // The name of a language, which the picture in the tab needs; no browser asks for it.
    EXPECT_EQ(url, "http://www.w3.org/2000/svg");
  }
  EXPECT_THAT(matches(text, "@import|: *url\\(|importScripts|sendBeacon|WebSocket|EventSource"),
              IsEmpty());
}

TEST(WebPage, MakesNoHtmlOfText) {
  EXPECT_THAT(
      matches(std::string(web_page().html),
              "innerHTML|outerHTML|insertAdjacentHTML|document\\.write|createContextualFragment|"
              "DOMParser|srcdoc|setHTML|\\beval\\s*\\(|new Function"),
      IsEmpty());
}

}  // namespace
}  // namespace strata::serve
