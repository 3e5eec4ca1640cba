// A folder for one test's files, gone when the object is.
#pragma once

#include <string>
#include <string_view>

namespace strata::test {

// Threads: externally synchronised.
class TempDir {
 public:
  TempDir();  // below $TMPDIR or /tmp; aborts the test program if it cannot
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // Writes (or replaces) a file in it and gives its path.
  std::string write(std::string_view name, std::string_view bytes) const;

 private:
  std::string path_;
};

}  // namespace strata::test
