#include "runtime/base/digest.h"

#include <openssl/evp.h>

#include <array>

#include "runtime/base/check.h"

namespace strata {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  STRATA_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
               "OpenSSL without SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  STRATA_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1,
               "SHA-256 update failed");
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text))); }

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  STRATA_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1,
               "SHA-256 finish failed");
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += kHex[digest[i] >> 4];
    text += kHex[digest[i] & 15];
  }
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string sha256_hex(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text))); }

}  // namespace strata
