#include "runtime/gguf/digest_file_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "runtime/base/digest.h"

namespace strata {
namespace {

// Version 1 had no digest of its own.
constexpr const char* kFirstLine = "strata tensor digests 2";

std::string text_of(const std::vector<std::string>& tensor_digests) {
  std::string text = std::string(kFirstLine) + "\n";
  for (const std::string& digest : tensor_digests) text += digest + "\n";
  return text;
}

// What was cut short or damaged has another last line.
std::string last_line(const std::vector<std::string>& tensor_digests) {
  return "end " + sha256_hex(text_of(tensor_digests));
}

}  // namespace

std::string DigestFileCache::path_of(std::span<const FileIdentity> files) const {
  Sha256 sha;
  for (const FileIdentity& file : files) {
    sha.update(fmt::format("{} {} {} {}\n", file.device, file.inode, file.size, file.mtime_ns));
  }
  return folder_ + "/" + sha.finish() + ".digests";
}

std::optional<std::vector<std::string>> DigestFileCache::find(std::span<const FileIdentity> files) {
  std::ifstream in(path_of(files));
  std::string line;
  if (!std::getline(in, line) || line != kFirstLine) return std::nullopt;
  std::vector<std::string> digests;
  while (std::getline(in, line) && is_digest(line)) digests.push_back(line);
  if (line != last_line(digests)) return std::nullopt;
  return digests;
}

void DigestFileCache::store(std::span<const FileIdentity> files,
                            const std::vector<std::string>& tensor_digests) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string path = path_of(files);
  const std::string draft = fmt::format("{}.{}", path, ::getpid());
  {
    std::ofstream out(draft);
    out << text_of(tensor_digests) << last_line(tensor_digests) << '\n';
    out.flush();
    if (!out) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(draft, path, error);
  if (error) std::remove(draft.c_str());
}

}  // namespace strata
