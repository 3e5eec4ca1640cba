// Models cut into several files: "name-00001-of-00003.gguf" and its siblings.
//
// Each part is a GGUF file of its own; split.no (from 0) and split.count say which one it is,
// split.tensors.count how many tensors all parts hold. The first part has the model's metadata.
// Source: llama.cpp's examples/gguf-split (README), which defined the three keys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/mapped_file.h"
#include "runtime/base/status.h"
#include "runtime/gguf/gguf_reader.h"

namespace strata {

inline constexpr uint32_t kSplitCountMax = 99'999;  // five digits in the name

// What "dir/name-00002-of-00003.gguf" says.
struct SplitName {
  std::string prefix;   // "dir/name"
  uint32_t number = 0;  // from 1
  uint32_t count = 0;

  // The path of part `part`, from 1.
  std::string path_of(uint32_t part) const;
};

// None if the name has not that form or its numbers make no sense.
std::optional<SplitName> parse_split_name(const std::string& path);

// One opened and parsed file of a model.
struct ModelPart {
  std::unique_ptr<MappedFile> file;
  GgufHeader header;
};

// Opens `path` and, where it is a part of a set, all its siblings, in order. Any part may be named.
// Errors: INVALID_ARGUMENT for a file that does not parse or does not belong to the set; NOT_FOUND
// "part 2 of 3 is missing: ...".
Result<std::vector<ModelPart>> open_model_parts(const std::string& path);

}  // namespace strata
