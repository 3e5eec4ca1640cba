#include "backends/remote/cluster_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace strata::remote {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_lower_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// `text` as it may stand in a message: cut short, control characters replaced.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 80));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > 80 ? out + "..." : out;
}

}  // namespace

Status check_versions(const Version& coordinator, const Version& worker) {
  if (coordinator.major != worker.major) {
    const bool worker_is_old = worker.major < coordinator.major;
    return {StatusCode::failed_precondition,
            fmt::format("coordinator {}.x, worker {}.{}: upgrade {}", coordinator.major,
                        worker.major, worker.minor, worker_is_old ? "worker" : "coordinator"),
            "both sides need the same major version of strata"};
  }
  if (coordinator.numerics_version != worker.numerics_version) {
    return {StatusCode::failed_precondition,
            fmt::format("coordinator computes by numerics version {}, worker by {}: their bits "
                        "would differ",
                        coordinator.numerics_version, worker.numerics_version),
            "run the same release of strata on both sides"};
  }
  return ok_status();
}

Status check_digest(const std::string& digest) {
  static constexpr std::string_view kPrefix = "sha256:";
  const std::string_view view = digest;
  const bool good = view.size() == kPrefix.size() + 64 && view.starts_with(kPrefix) &&
                    std::all_of(view.begin() + kPrefix.size(), view.end(), is_lower_hex);
  if (good) return ok_status();
  return invalid_argument(
      fmt::format("digest '{}' is not \"sha256:\" and 64 lower-case hex digits", shown(digest)));
}

Status check_model_name(const ModelName& model) {
  const std::string& name = model.base_name;
  const bool printable = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (name.empty() || name.size() > 255 || name == "." || name == ".." || !printable ||
      name.find_first_of("/\\") != std::string::npos) {
    return invalid_argument(
        fmt::format("model name '{}' is not a file's name without folders", shown(name)));
  }
  return check_digest(model.digest);
}

Status check_node_name(const std::string& name) {
  const bool good = !name.empty() && name.size() <= 63 && is_letter_or_digit(name.front()) &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
                    });
  if (good) return ok_status();
  const std::string length = name.size() > 63 ? fmt::format(" ({} bytes)", name.size()) : "";
  return invalid_argument(fmt::format("worker name '{}'{} is not allowed", shown(name), length),
                          "use 1 to 63 letters, digits, '.', '_' or '-', the first a letter or "
                          "digit");
}

}  // namespace strata::remote
