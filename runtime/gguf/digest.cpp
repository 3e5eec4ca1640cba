#include "runtime/gguf/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <numeric>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/digest.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_start.h"

namespace strata {
namespace {

// Large enough for the disk to stream, small enough for progress and cancellation to be prompt.
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

// The shared state of the threads that hash one model.
class DigestRun {
 public:
  DigestRun(const GgufFile& model, const DigestOptions& options)
      : model_(model),
        options_(options),
        total_(model.tensor_bytes_total()),
        order_(model.tensors().size()),
        digests_(model.tensors().size()) {
    // Largest first, so that no thread is left alone with a large one at the end.
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return model.tensors()[a].size_bytes > model.tensors()[b].size_bytes;
    });
  }

  Result<std::vector<std::string>> run() {
    {
      const HelperThreads helpers(options_.threads - 1, [this] { work(); });
      work();
    }
    const MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    return std::move(digests_);
  }

 private:
  void work() noexcept;
  Result<std::string> hash(const TensorInfo& tensor, std::vector<std::byte>& buffer);

  void report(uint64_t bytes) {
    if (!options_.progress) return;
    const MutexLock lock(mutex_);
    done_ += bytes;
    options_.progress(done_, total_);
  }

  const GgufFile& model_;
  const DigestOptions& options_;
  const uint64_t total_;
  std::vector<size_t> order_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  Mutex mutex_;
  uint64_t done_ STRATA_GUARDED_BY(mutex_) = 0;
  Status status_ STRATA_GUARDED_BY(mutex_);
  std::vector<std::string> digests_ STRATA_GUARDED_BY(mutex_);
};

void DigestRun::work() noexcept {
  std::vector<std::byte> buffer(kChunkBytes);
  while (!failed_.load()) {
    const size_t next = next_.fetch_add(1);
    if (next >= order_.size()) return;
    const size_t index = order_[next];
    Result<std::string> digest = hash(model_.tensors()[index], buffer);
    const MutexLock lock(mutex_);
    if (!digest.ok()) {
      if (status_.ok()) status_ = digest.status();
      failed_.store(true);
      return;
    }
    digests_[index] = std::move(digest).value();
  }
}

Result<std::string> DigestRun::hash(const TensorInfo& tensor, std::vector<std::byte>& buffer) {
  const MappedFile& file = model_.file(tensor.file_index);
  Sha256 sha;
  for (uint64_t done = 0; done < tensor.size_bytes;) {
    if (options_.stop.stop_requested()) return cancelled("computing the digest was cancelled");
    const uint64_t size = std::min(kChunkBytes, tensor.size_bytes - done);
    const std::span<std::byte> chunk(buffer.data(), static_cast<size_t>(size));
    TRY(file.read(tensor.offset + done, chunk));
    sha.update(chunk);
    done += size;
    report(size);
  }
  return sha.finish();
}

Result<std::vector<std::string>> tensor_digests(const GgufFile& model,
                                                const DigestOptions& options) {
  std::vector<FileIdentity> files;
  for (size_t i = 0; i < model.file_count(); ++i) files.push_back(model.file(i).identity());
  if (options.cache != nullptr) {
    TRY(model.check_unchanged());
    std::optional<std::vector<std::string>> kept = options.cache->find(files);
    if (kept && kept->size() == model.tensors().size()) return *std::move(kept);
  }
  std::vector<std::string> digests = TRY(DigestRun(model, options).run());
  if (options.cache != nullptr) options.cache->store(files, digests);
  return digests;
}

}  // namespace

Result<ModelDigest> compute_digest(const GgufFile& model, const DigestOptions& options) {
  if (!model.has_data()) {
    return failed_precondition(fmt::format(
        "{}: only the header is here, so there is no data to compute a digest of", model.path()));
  }
  ModelDigest digest;
  digest.tensors = TRY(tensor_digests(model, options));
  digest.manifest = make_manifest(model, digest.tensors);
  digest.model = model_digest(model, digest.manifest);
  return digest;
}

std::string model_digest(const GgufFile& model, const std::string& manifest) {
  Sha256 sha;
  sha.update(manifest);
  sha.update(canonical_metadata(model.metadata()));
  return sha.finish();
}

std::string make_manifest(const GgufFile& model, const std::vector<std::string>& tensor_digests) {
  STRATA_CHECK(tensor_digests.size() == model.tensors().size(), "one digest per tensor");
  std::vector<size_t> order(tensor_digests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return model.tensors()[a].name < model.tensors()[b].name; });
  std::string manifest;
  for (const size_t i : order) {
    const TensorInfo& tensor = model.tensors()[i];
    manifest += fmt::format("{}\t{}\t{}\t{}\n", tensor.name, dtype_name(tensor.dtype),
                            shape_text(tensor), tensor_digests[i]);
  }
  return manifest;
}

std::string canonical_metadata(const Metadata& metadata) {
  std::vector<const Metadata::Entry*> sorted;
  for (const Metadata::Entry& entry : metadata.entries()) {
    if (entry.key == "general.alignment" || entry.key.starts_with("split.")) continue;
    sorted.push_back(&entry);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->key < b->key; });
  std::string out;
  for (const Metadata::Entry* entry : sorted) append_key_value(out, *entry);
  return out;
}

bool is_digest(std::string_view text) {
  constexpr size_t kDigits = 64;
  return text.size() == kDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace strata
