// Which tokens may come next: one bit for each id of the vocabulary.
//
// Threads: plain value.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace strata {

class TokenMask {
 public:
  // Nothing is allowed.
  explicit TokenMask(int32_t n_vocab = 0)
      : size_(n_vocab), words_((static_cast<size_t>(n_vocab) + 63) / 64) {}

  int32_t size() const { return size_; }
  // Requires for all of these: 0 <= id < size().
  bool allows(int32_t id) const {
    const auto bit = static_cast<size_t>(id);
    return ((words_[bit / 64] >> (bit % 64)) & 1) != 0;
  }
  void allow(int32_t id) {
    const auto bit = static_cast<size_t>(id);
    words_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  void forbid(int32_t id) {
    const auto bit = static_cast<size_t>(id);
    words_[bit / 64] &= ~(uint64_t{1} << (bit % 64));
  }
  void clear() { words_.assign(words_.size(), 0); }

  size_t count() const {
    size_t total = 0;
    for (const uint64_t word : words_) total += static_cast<size_t>(std::popcount(word));
    return total;
  }
  // The lowest id that is allowed, -1 if none is.
  int32_t first() const {
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] != 0) return static_cast<int32_t>(i * 64 + std::countr_zero(words_[i]));
    }
    return -1;
  }
  // Bans what is not allowed. Scores beyond size() (a model's padded rows) are banned too.
  void apply(std::span<double> scores) const {
    constexpr double kBanned = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < scores.size(); ++i) {
      const bool inside = i < static_cast<size_t>(size_);
      if (!inside || ((words_[i / 64] >> (i % 64)) & 1) == 0) scores[i] = kBanned;
    }
  }

  // {(size + 63) / 64}, ids from the low bit up. The bits beyond size() are 0.
  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }

 private:
  int32_t size_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace strata
