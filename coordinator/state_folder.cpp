#include "coordinator/state_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/base/random.h"

namespace strata::coordinator {
namespace {

constexpr size_t kClusterIdBytes = 16;

using Json = nlohmann::json;

bool is_cluster_id(const std::string& text) {
  return text.size() == 2 * kClusterIdBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// What is missing or of another kind is nothing worth an error: the next coordinator waits for all.
StateFolder::Pipeline pipeline_of(const Json& json) {
  StateFolder::Pipeline pipeline;
  const auto found = json.find("pipeline");
  if (found == json.end() || !found->is_object()) return pipeline;
  const Json digest = found->value("model_digest", Json());
  const Json workers = found->value("workers", Json());
  const Json nodes = found->value("nodes", Json());
  if (!digest.is_string() || !workers.is_number_unsigned() || !nodes.is_array()) return pipeline;
  for (const Json& node : nodes) {
    if (!node.is_string()) return pipeline;
  }
  return {.model_digest = digest.get<std::string>(),
          .workers = workers.get<uint32_t>(),
          .nodes = nodes.get<std::vector<std::string>>()};
}

// The whole text on the disk, or an error.
Status write_synced(const std::string& path, const std::string& text) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.is_open()) return from_errno(errno, "cannot write " + path);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  const bool good = written == static_cast<ssize_t>(text.size()) && ::fsync(file.get()) == 0;
  return good ? ok_status() : from_errno(errno, "cannot write " + path);
}

}  // namespace

std::string random_cluster_id() { return random_hex(kClusterIdBytes); }

Result<std::unique_ptr<StateFolder>> StateFolder::open(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return from_errno(error.value(), "cannot make the state folder " + path);
  std::unique_ptr<StateFolder> folder(new StateFolder(path));
  TRY(folder->lock());
  TRY(folder->read());
  return folder;
}

Status StateFolder::lock() {
  const std::string file = path_ + "/lock";
  lock_ = FileDescriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.is_open()) return from_errno(errno, "cannot open " + file);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return ok_status();
  return {StatusCode::already_exists,
          fmt::format("another coordinator uses the state folder {}", path_),
          "stop that one, or give this one its own --state FOLDER"};
}

Status StateFolder::read() {
  const std::string file = path_ + "/cluster.json";
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    cluster_id_ = random_cluster_id();
    return write();
  }
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const Json json = Json::parse(text, nullptr, false);
  const bool good = json.is_object() && json.contains("cluster_id") &&
                    json["cluster_id"].is_string() && json.contains("epoch") &&
                    json["epoch"].is_number_unsigned() &&
                    is_cluster_id(json["cluster_id"].get<std::string>());
  if (!good) {
    return data_loss(fmt::format("{} is not what a coordinator has written", file),
                     "delete it to begin a new cluster; its workers must then be started anew");
  }
  cluster_id_ = json["cluster_id"].get<std::string>();
  epoch_ = json["epoch"].get<uint64_t>();
  pipeline_ = pipeline_of(json);
  return ok_status();
}

Status StateFolder::write() const {
  const std::string file = path_ + "/cluster.json";
  const Json json = {{"cluster_id", cluster_id_},
                     {"epoch", epoch_},
                     {"pipeline",
                      {{"model_digest", pipeline_.model_digest},
                       {"workers", pipeline_.workers},
                       {"nodes", pipeline_.nodes}}}};
  TRY(write_synced(file + ".new", json.dump() + "\n"));
  if (std::rename((file + ".new").c_str(), file.c_str()) != 0) {
    return from_errno(errno, "cannot write " + file);
  }
  return ok_status();
}

Status StateFolder::save_epoch(uint64_t epoch) {
  epoch_ = epoch;
  return write();
}

Status StateFolder::save_pipeline(Pipeline pipeline) {
  pipeline_ = std::move(pipeline);
  return write();
}

}  // namespace strata::coordinator
