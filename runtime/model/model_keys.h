// ModelKeys: an architecture's metadata keys ("llama.block_count"), checked as they are read.
//
// Names are given without the architecture: "block_count". Errors name the key, what was wanted
// and what was found, with the file and the offset. Threads: any; refers to the metadata.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/gguf/metadata.h"

namespace strata {

class ModelKeys {
 public:
  ModelKeys(const Metadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  struct Range {
    int64_t min;
    int64_t max;
  };

  const Metadata& metadata() const { return metadata_; }
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }
  bool contains(std::string_view name) const { return metadata_.contains(full_name(name)); }

  // An integer in [range.min, range.max]; without the key, NOT_FOUND or the fallback.
  Result<int32_t> count(std::string_view name, Range range) const;
  Result<int32_t> count_or(std::string_view name, Range range, int32_t fallback) const;
  // The same where a file may give one number for each of `layers` layers, all equal.
  Result<int32_t> layer_count_or(std::string_view name, Range range, int32_t layers,
                                 int32_t fallback) const;
  // Finite and above 0 (or not below it); without the key, NOT_FOUND or the fallback.
  Result<float> positive(std::string_view name) const;
  Result<float> positive_or(std::string_view name, float fallback) const;
  Result<float> non_negative_or(std::string_view name, float fallback) const;
  Result<std::string> text_or(std::string_view name, std::string fallback) const;
  Result<bool> flag_or(std::string_view name, bool fallback) const;

  // INVALID_ARGUMENT "<file>: key '<key>' <reason> at offset N".
  Status error(std::string_view name, std::string_view reason) const {
    return metadata_.error(full_name(name), reason);
  }

 private:
  const Metadata& metadata_;
  std::string prefix_;
};

}  // namespace strata
