#include "backends/remote/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/random.h"

namespace strata::remote {
namespace {

constexpr size_t kTokenBytesMax = 256;
constexpr size_t kRandomTokenBytes = 32;
constexpr const char* kTokenHint = "give the coordinator's token with --token-file or STRATA_TOKEN";

Status permission_denied(std::string message, std::string hint) {
  return {StatusCode::permission_denied, std::move(message), std::move(hint)};
}

// The first line of the file, without white space around it.
Result<std::string> read_token_file(const std::string& path, bool must_be_private) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) {
    return not_found(fmt::format("there is no token file {}", path), kTokenHint);
  }
  if (file.get() < 0) return from_errno(errno, fmt::format("cannot open token file {}", path));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return from_errno(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return invalid_argument(fmt::format("token file {} is not a regular file", path));
  }
  if (must_be_private && ((info.st_mode & 077) != 0 || info.st_uid != ::geteuid())) {
    return permission_denied(
        fmt::format("token file {} can be used by others (mode {:03o}, owner {})", path,
                    info.st_mode & 0777, info.st_uid),
        "chmod 600 it, or remove it and start the coordinator again");
  }
  std::array<char, kTokenBytesMax + 64> buffer;
  size_t size = 0;
  while (size < buffer.size()) {
    const ssize_t got = ::read(file.get(), buffer.data() + size, buffer.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return from_errno(errno, fmt::format("cannot read token file {}", path));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  std::string text(buffer.data(), size);
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  TRY(check_token(text).with_context(fmt::format("token file {}", path)));
  return text;
}

// Writes a new file under another name and links it into place, so that two coordinators that
// start together agree on one token and nobody reads half of one.
Result<std::string> create_token_file(const std::string& folder, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return unavailable(fmt::format("cannot make folder {}: {}", folder, error.message()),
                       "give a token with --token-file or STRATA_TOKEN");
  }
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  const std::string token = random_hex(kRandomTokenBytes);
  const std::string draft = fmt::format("{}.{}", path, ::getpid());
  ::unlink(draft.c_str());
  {
    const FileDescriptor file(
        ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.get() < 0) return from_errno(errno, fmt::format("cannot make {}", draft));
    const std::string line = token + "\n";
    if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      const Status failed = from_errno(errno, fmt::format("cannot write {}", draft));
      ::unlink(draft.c_str());
      return failed;
    }
  }
  const int linked = ::link(draft.c_str(), path.c_str());
  const int link_error = errno;
  ::unlink(draft.c_str());
  if (linked == 0) return token;
  if (link_error == EEXIST) return read_token_file(path, true);
  return from_errno(link_error, fmt::format("cannot make {}", path));
}

}  // namespace

Status check_token(std::string_view token) {
  if (token.empty()) return invalid_argument("the token is empty");
  if (token.size() > kTokenBytesMax) {
    return invalid_argument(fmt::format("the token is longer than {} characters", kTokenBytesMax));
  }
  for (const char c : token) {
    if (c <= 0x20 || c >= 0x7f) {
      return invalid_argument("the token has a space or another character that is not printable");
    }
  }
  return ok_status();
}

bool tokens_equal(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  // Walks over `a`, the caller's guess, whatever `b` is.
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i] ^ other);
  }
  return difference == 0;
}

std::string default_token_folder(std::string_view xdg_runtime_dir, std::string_view xdg_cache_home,
                                 std::string_view home) {
  if (!xdg_runtime_dir.empty()) return std::string(xdg_runtime_dir) + "/strata";
  if (!xdg_cache_home.empty()) return std::string(xdg_cache_home) + "/strata";
  if (!home.empty()) return std::string(home) + "/.cache/strata";
  return {};
}

Result<std::string> load_token(const TokenSource& source, bool create) {
  if (!source.file.empty()) return read_token_file(source.file, false);
  if (!source.environment.empty()) {
    TRY(check_token(source.environment).with_context("STRATA_TOKEN"));
    return source.environment;
  }
  // Nothing that could change while a worker waits, unlike a file that is not there yet.
  if (source.default_folder.empty()) {
    return failed_precondition("there is no token: neither HOME nor XDG_RUNTIME_DIR is set",
                               kTokenHint);
  }
  const std::string path = source.default_folder + "/token";
  Result<std::string> token = read_token_file(path, true);
  if (token.ok() || token.status().code() != StatusCode::not_found) return token;
  if (create) return create_token_file(source.default_folder, path);
  return not_found(fmt::format("there is no token: {} does not exist", path),
                   "start the coordinator first (it makes that file), or give its token with "
                   "--token-file or STRATA_TOKEN");
}

}  // namespace strata::remote
