#include "tests/support/temp_dir.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "runtime/base/check.h"

namespace strata::test {

TempDir::TempDir() {
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  STRATA_CHECK(!error, "a folder for temporary files");
  std::string name = (base / "strata-test-XXXXXX").string();
  STRATA_CHECK(mkdtemp(name.data()) != nullptr, name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::write(std::string_view name, std::string_view bytes) const {
  std::string path = path_ + "/" + std::string(name);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  STRATA_CHECK(out.good(), path);
  return path;
}

}  // namespace strata::test
