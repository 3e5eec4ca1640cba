// The last part of a path: what people call a file by. Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace strata {

// "model.gguf" for "/models/model.gguf"; the text itself if it holds no '/'.
inline std::string base_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

}  // namespace strata
