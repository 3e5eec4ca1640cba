#include "worker/weight_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "runtime/gguf/digest.h"
#include "runtime/gguf/digest_file_cache.h"
#include "worker/tensor_cache.h"

namespace strata::worker {
namespace {

namespace fs = std::filesystem;

// Folders below a --models folder that are looked into.
constexpr int kFolderDepth = 3;
constexpr size_t kFilesMax = 10'000;

// Files that `wanted` accepts, in the folders and a few levels below, the folders' order kept.
template <typename Wanted>
std::vector<std::string> list_files(const std::vector<std::string>& folders, const Wanted& wanted) {
  std::vector<std::string> files;
  for (const std::string& folder : folders) {
    std::error_code error;
    fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                           error);
    const fs::recursive_directory_iterator end;
    while (!error && entry != end && files.size() < kFilesMax) {
      if (entry.depth() >= kFolderDepth) entry.disable_recursion_pending();
      std::error_code type_error;
      if (entry->is_regular_file(type_error) && wanted(entry->path())) {
        files.push_back(entry->path().string());
      }
      entry.increment(error);
    }
  }
  return files;
}

std::string hex_of(const remote::ModelName& model) { return model.digest.substr(7); }

Status write_file(const std::string& path, std::string_view bytes) {
  const std::string draft = fmt::format("{}.{}", path, ::getpid());
  std::ofstream out(draft, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out || std::rename(draft.c_str(), path.c_str()) != 0) {
    std::remove(draft.c_str());
    return unavailable(fmt::format("cannot write {}", path),
                       "is there space on that disk, and may this user write there?");
  }
  return ok_status();
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return not_found(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// "digest size name" a line; then "header" with the header's digest, and "end" with that of all
// before: what is damaged or cut short shows.
std::string manifest_text(const remote::ModelHeader& model) {
  std::string text;
  for (const remote::ManifestTensor& tensor : model.tensors) {
    text += fmt::format("{} {} {}\n", tensor.digest, tensor.size_bytes, tensor.name);
  }
  text += fmt::format("header {}\n", sha256_hex(model.header));
  return text + fmt::format("end {}\n", sha256_hex(text));
}

// The stored model, if every byte of it is as it was when it was stored.
std::optional<remote::ModelHeader> parse_stored(std::string header, const std::string& manifest) {
  const size_t end = manifest.rfind("end ");
  if (end == std::string::npos) return std::nullopt;
  const std::string body = manifest.substr(0, end);
  if (manifest.substr(end) != fmt::format("end {}\n", sha256_hex(body))) return std::nullopt;
  const std::string header_line = "header " + sha256_hex(header);
  std::istringstream in(body);
  remote::ModelHeader model;
  std::string line;
  while (std::getline(in, line)) {
    if (line == header_line) {
      model.header = std::move(header);
      return model;
    }
    const size_t first = line.find(' ');
    const size_t second = line.find(' ', first + 1);
    if (second == std::string::npos || !is_digest(std::string_view(line).substr(0, first))) break;
    remote::ManifestTensor tensor{line.substr(second + 1), line.substr(0, first), 0};
    std::from_chars(line.data() + first + 1, line.data() + second, tensor.size_bytes);
    model.tensors.push_back(std::move(tensor));
  }
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<const GgufFile>> WeightStore::find_local(const remote::ModelName& model,
                                                                std::stop_token stop) const {
  DigestFileCache cache(options_.cache_folder + "/digests");
  const auto has_name = [&](const fs::path& path) { return path.filename() == model.base_name; };
  for (const std::string& path : list_files(options_.model_folders, has_name)) {
    const auto file = GgufFile::open(path);
    if (!file.ok()) {
      log::warn("{}", file.status().to_string());
      continue;
    }
    DigestOptions options;
    options.threads = options_.threads;
    options.stop = stop;
    options.cache = &cache;
    const ModelDigest digest = TRY(compute_digest(*file.value(), options).with_context(path));
    if ("sha256:" + digest.model == model.digest) {
      return std::shared_ptr<const GgufFile>(file.value());
    }
    log::warn("{} is another model than the coordinator's {}: sha256:{} is not {}", path,
              model.base_name, digest.model, model.digest);
  }
  return not_found(fmt::format("no --models folder has {} with {}", model.base_name, model.digest));
}

// The digest over what came is compared with the one that was asked for, as for a file: else a
// false header would make wrong answers for every cluster that is served from this cache.
Result<WeightStore::Header> WeightStore::check_header(const remote::ModelHeader& received,
                                                      const remote::ModelName& model) {
  Header header;
  const std::shared_ptr<GgufFile> file =
      TRY(GgufFile::from_header(std::as_bytes(std::span(received.header)), model.base_name));
  std::unordered_map<std::string_view, const remote::ManifestTensor*> by_name;
  for (const remote::ManifestTensor& tensor : received.tensors) {
    by_name.emplace(tensor.name, &tensor);
  }
  std::vector<std::string> digests;
  for (const TensorInfo& tensor : file->tensors()) {
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end() || found->second->size_bytes != tensor.size_bytes) {
      return data_loss(fmt::format("the manifest and the header of {} disagree on tensor {}",
                                   model.base_name, tensor.name));
    }
    digests.push_back(found->second->digest);
  }
  const std::string digest = "sha256:" + model_digest(*file, make_manifest(*file, digests));
  if (digest != model.digest) {
    return data_loss(
        fmt::format("what came as {} is another model: {} is not {}", model.base_name, digest,
                    model.digest),
        "nothing of it is kept; check the coordinator's file and that this is your coordinator");
  }
  header.file = file;
  header.tensors = received.tensors;
  return header;
}

Result<WeightStore::Header> WeightStore::get_header(const remote::ModelName& model,
                                                    remote::WeightsClient& client,
                                                    std::stop_token stop) const {
  const std::string folder = options_.cache_folder + "/models/" + hex_of(model);
  const auto manifest = read_file(folder + "/manifest");
  if (manifest.ok()) {
    auto header = read_file(folder + "/header.gguf");
    if (header.ok()) {
      const auto stored = parse_stored(std::move(header).value(), manifest.value());
      if (stored) {
        Result<Header> checked = check_header(*stored, model);
        if (checked.ok()) return checked;
      }
    }
    log::warn("{} is damaged: it is removed and received again", folder);
    std::error_code error;
    fs::remove_all(folder, error);
  }
  // With the tokenizer, whoever needs it: the digest is over all metadata.
  const remote::ModelHeader received = TRY(client.get_model(model, true, stop));
  Header header = TRY(check_header(received, model));
  std::error_code error;
  fs::create_directories(folder, error);
  Status stored = write_file(folder + "/header.gguf", received.header);
  if (stored.ok()) stored = write_file(folder + "/manifest", manifest_text(received));
  if (!stored.ok()) log::warn("{}; the model is used without being stored", stored.to_string());
  return header;
}

Result<OpenedModel> WeightStore::open(const remote::ModelName& model, remote::WeightsClient& client,
                                      std::stop_token stop, bool with_tokenizer) {
  TRY(remote::check_model_name(model));
  auto local = find_local(model, stop);
  if (local.ok()) return OpenedModel{std::move(local).value(), nullptr};
  if (local.status().code() == StatusCode::cancelled) return local.status();
  if (local.status().code() != StatusCode::not_found) {
    log::warn("{}", local.status().to_string());
  }
  const Header header =
      TRY(get_header(model, client, stop)
              .with_context(fmt::format("cannot get {}'s header", model.base_name)));
  disk_.remove_stale_parts();
  OpenedModel opened;
  opened.file = header.file;
  if (!with_tokenizer) {
    const std::string small = serialize_header(*header.file, {.keep_key = keep_without_tokenizer});
    opened.file = TRY(GgufFile::from_header(std::as_bytes(std::span(small)), model.base_name));
  }
  opened.source =
      std::make_unique<TensorCache>(disk_, model, header.tensors, client, received_bytes_);
  return opened;
}

}  // namespace strata::worker
