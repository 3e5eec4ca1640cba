#include "runtime/gguf/split_files.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/base/human.h"

namespace strata {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr size_t kDigits = 5;

std::optional<uint32_t> five_digits(std::string_view text) {
  uint32_t value = 0;
  if (text.size() != kDigits || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Result<ModelPart> open_part(const std::string& path) {
  ModelPart part;
  part.file = TRY(MappedFile::open(path));
  const std::span<const std::byte> bytes = part.file->bytes();
  if (bytes.empty() && part.file->size() > 0) {
    return resource_exhausted(
        fmt::format("no address space for '{}' ({})", path, human_bytes(part.file->size())),
        "is this process limited (ulimit -v)?");
  }
  Result<GgufHeader> header = parse_header(bytes, path);
  // What was cut off meanwhile was read as zeros.
  TRY(part.file->check_unchanged());
  part.file->unmap();
  part.header = TRY(std::move(header));
  return part;
}

// What a part says of itself; count 1 for a file that is no part of a set.
struct SplitKeys {
  uint32_t number = 0;  // from 0
  uint32_t count = 1;
};

Result<SplitKeys> split_keys(const Metadata& metadata) {
  SplitKeys keys;
  keys.count = TRY(metadata.get_or<uint32_t>("split.count", 1));
  if (keys.count == 0 || keys.count > kSplitCountMax) {
    return metadata.error("split.count",
                          fmt::format("is {}, must be from 1 to {}", keys.count, kSplitCountMax));
  }
  if (keys.count == 1) return keys;
  keys.number = TRY(metadata.get<uint32_t>("split.no"));
  if (keys.number >= keys.count) {
    return metadata.error(
        "split.no", fmt::format("is {}, must be below split.count, {}", keys.number, keys.count));
  }
  return keys;
}

// `part` is the file that the set's names promise to be number `number` (from 0) of `count`.
Status check_belongs(const ModelPart& part, uint32_t number, uint32_t count) {
  const Metadata& metadata = part.header.metadata;
  const SplitKeys keys = TRY(split_keys(metadata));
  if (keys.count != count) {
    return metadata.error("split.count",
                          fmt::format("is {}, but the set has {} parts", keys.count, count));
  }
  if (keys.number != number) {
    return metadata.error("split.no",
                          fmt::format("is {} (from 0), but the file's name says part {} of {}",
                                      keys.number, number + 1, count));
  }
  return ok_status();
}

Status check_tensor_count(const std::vector<ModelPart>& parts) {
  const Metadata& metadata = parts.front().header.metadata;
  if (!metadata.contains("split.tensors.count")) return ok_status();
  const auto wanted = TRY(metadata.get<uint64_t>("split.tensors.count"));
  uint64_t found = 0;
  for (const ModelPart& part : parts) found += part.header.tensors.size();
  if (found == wanted) return ok_status();
  return metadata.error(
      "split.tensors.count",
      fmt::format("is {}, but the {} parts hold {} tensors", wanted, parts.size(), found));
}

}  // namespace

std::string SplitName::path_of(uint32_t part) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, part, count);
}

std::optional<SplitName> parse_split_name(const std::string& path) {
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits + kSuffix.size();
  if (path.size() <= kTail || !path.ends_with(kSuffix)) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const std::optional<uint32_t> number = five_digits(tail.substr(1, kDigits));
  const std::optional<uint32_t> count = five_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (!number || !count || *number == 0 || *number > *count) return std::nullopt;
  return SplitName{
      .prefix = path.substr(0, path.size() - kTail), .number = *number, .count = *count};
}

Result<std::vector<ModelPart>> open_model_parts(const std::string& path) {
  ModelPart named = TRY(open_part(path));
  const SplitKeys keys = TRY(split_keys(named.header.metadata));
  std::vector<ModelPart> parts;
  if (keys.count == 1) {
    parts.push_back(std::move(named));
    return parts;
  }
  const std::optional<SplitName> name = parse_split_name(path);
  if (!name) {
    return named.header.metadata
        .error("split.count",
               fmt::format("is {}, so the file's name must end in -{:05}-of-{:05}.gguf", keys.count,
                           keys.number + 1, keys.count))
        .with_hint("give the parts the names that they were made with");
  }
  TRY(check_belongs(named, name->number - 1, name->count));
  for (uint32_t number = 1; number <= name->count; ++number) {
    if (number == name->number) {
      parts.push_back(std::move(named));
      continue;
    }
    const std::string part_path = name->path_of(number);
    Result<ModelPart> part = open_part(part_path);
    if (part.status().code() == StatusCode::not_found) {
      return not_found(fmt::format("{}: part {} of {} is missing: there is no '{}'", path, number,
                                   name->count, part_path),
                       "all parts of a model must lie in one folder");
    }
    parts.push_back(TRY(std::move(part)));
    TRY(check_belongs(parts.back(), number - 1, name->count));
  }
  TRY(check_tensor_count(parts));
  return parts;
}

}  // namespace strata
