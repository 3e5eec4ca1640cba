#include "serve/http/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include "runtime/base/digest.h"

namespace strata::serve {
namespace {

constexpr size_t kKeyBytesMin = 8;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
}

std::string_view shown_key(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  std::string_view value = request.header("authorization");
  if (value.size() > kBearer.size()) {
    bool is_bearer = true;
    for (size_t i = 0; i < kBearer.size(); ++i) {
      if ((value[i] | 0x20) != kBearer[i]) is_bearer = false;
    }
    if (is_bearer) {
      value.remove_prefix(kBearer.size());
      return value.substr(std::min(value.find_first_not_of(' '), value.size()));
    }
  }
  for (const std::string_view name : {"x-api-key", "api-key"}) {
    if (!request.header(name).empty()) return request.header(name);
  }
  return {};
}

}  // namespace

Result<ApiKeys> ApiKeys::parse(std::string_view text) {
  ApiKeys keys;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    if (words.size() > 2) {
      return invalid_argument(
          fmt::format("line {} has {} words, must be KEY or NAME KEY", number, words.size()));
    }
    if (words.back().size() < kKeyBytesMin) {
      return invalid_argument(fmt::format("the key in line {} has {} characters, must have {}",
                                          number, words.back().size(), kKeyBytesMin));
    }
    keys.digests_.push_back(sha256_hex(words.back()));
  }
  if (keys.empty()) return invalid_argument("there is no key in it");
  return keys;
}

bool ApiKeys::allows(const HttpRequest& request) const {
  if (empty()) return true;
  const std::string digest = sha256_hex(shown_key(request));
  bool found = false;
  for (const std::string& known : digests_) {
    if (CRYPTO_memcmp(known.data(), digest.data(), known.size()) == 0) found = true;
  }
  return found;
}

}  // namespace strata::serve
