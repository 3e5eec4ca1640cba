// Weights by content: from a folder, over a real server on loopback, from the cache; broken off,
// damaged and unknown. The model is a tiny one of tests/data.
#include "worker/weight_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/remote/weights_service.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"
#include "runtime/gguf/digest.h"
#include "tests/support/temp_dir.h"

namespace strata::worker {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kModelPath = STRATA_TEST_DATA "/models/llama.gguf";

// A file system of that size, which only this test's thread and its children see.
class SmallDisk {
 public:
  SmallDisk(std::string path, uint64_t size_bytes) : path_(std::move(path)) {
    fs::create_directories(path_);
    const std::string size = "size=" + std::to_string(size_bytes);
    is_there_ = ::unshare(CLONE_NEWNS) == 0 &&
                ::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr) == 0 &&
                ::mount("none", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (is_there_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool is_there() const { return is_there_; }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  bool is_there_ = false;
};

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

class WeightStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::shared_ptr<const GgufFile> file = GgufFile::open(kModelPath).value();
    digest_ = compute_digest(*file).value();
    model_ = {"llama.gguf", "sha256:" + digest_.model};
    file_ = file;
    service_ = remote::WeightsService::create("secret", model_, file, digest_);
    remote::ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.services = {&service_->service()};
    server_ = remote::RpcServer::start(options).value();
    client_ = remote::WeightsClient::create(server_->address(), "secret", "worker-1");
  }

  WeightStore store(const std::vector<std::string>& folders = {}) const {
    return WeightStore({folders, cache_.path() + "/strata", 1});
  }
  // All of a tensor through a source, in two reads.
  static Result<std::vector<std::byte>> read_all(TensorSource& source, const TensorInfo& tensor) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.size_bytes));
    const std::span<std::byte> whole(bytes);
    const size_t half = bytes.size() / 2;
    TRY(source.read(tensor, 0, whole.first(half), {}));
    TRY(source.read(tensor, half, whole.subspan(half), {}));
    source.release(tensor);
    return bytes;
  }
  void expect_all_equal(const OpenedModel& opened) const {
    for (const TensorInfo& tensor : opened.file->tensors()) {
      const auto bytes = read_all(*opened.source, tensor);
      ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
      const auto wanted = file_->tensor_bytes(*file_->find_tensor(tensor.name));
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), bytes.value().begin())) << tensor.name;
    }
  }
  std::string blob(size_t tensor) const {
    return cache_.path() + "/strata/tensors/" + digest_.tensors[tensor];
  }

  const TensorInfo& largest() const {
    const auto tensors = file_->tensors();
    return *std::max_element(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return a.size_bytes < b.size_bytes;
    });
  }

  test::TempDir cache_;
  ModelDigest digest_;
  remote::ModelName model_;
  std::shared_ptr<const GgufFile> file_;
  std::unique_ptr<remote::WeightsService> service_;
  std::unique_ptr<remote::RpcServer> server_;
  std::unique_ptr<remote::WeightsClient> client_;
};

TEST_F(WeightStoreTest, FindsAFileByNameAndDigestInAFolderBelow) {
  const test::TempDir folder;
  fs::create_directories(folder.path() + "/a/b");
  fs::copy(kModelPath, folder.path() + "/a/b/llama.gguf");
  WeightStore store = this->store({folder.path()});
  const auto opened = store.open(model_, *client_, {});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_TRUE(opened.value().file->has_data());
  EXPECT_EQ(opened.value().source, nullptr);
  EXPECT_EQ(service_->sent_bytes(), 0u);
}

TEST_F(WeightStoreTest, ReceivesJustWhatIsReadAndNothingTheSecondTime) {
  WeightStore store = this->store();
  const auto opened = store.open(model_, *client_, {});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_FALSE(opened.value().file->has_data());
  EXPECT_EQ(service_->sent_bytes(), 0u);
  const TensorInfo& first = opened.value().file->tensors()[0];
  ASSERT_TRUE(read_all(*opened.value().source, first).ok());
  EXPECT_EQ(service_->sent_bytes(), first.size_bytes);
  expect_all_equal(opened.value());
  const uint64_t all = file_->tensor_bytes_total();
  EXPECT_EQ(service_->sent_bytes(), all);
  EXPECT_EQ(store.received_bytes(), all);

  // Another process with the same cache; the server may even be gone.
  server_->shutdown(std::chrono::milliseconds(0));
  WeightStore second = this->store();
  const auto again = second.open(model_, *client_, {});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  expect_all_equal(again.value());
  EXPECT_EQ(second.received_bytes(), 0u);
}

TEST_F(WeightStoreTest, GoesOnWhereATransferEnded) {
  WeightStore store = this->store();
  const auto opened = store.open(model_, *client_, {});
  ASSERT_TRUE(opened.ok());
  const TensorInfo& tensor = opened.value().file->tensors()[0];
  const auto bytes = file_->tensor_bytes(*file_->find_tensor(tensor.name));
  fs::create_directories(cache_.path() + "/strata/tensors");
  std::ofstream(blob(0) + ".part", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), 100);
  ASSERT_TRUE(read_all(*opened.value().source, tensor).ok());
  EXPECT_EQ(service_->sent_bytes(), tensor.size_bytes - 100);
}

TEST_F(WeightStoreTest, RefusesBytesWithoutTheirDigestAndRecovers) {
  WeightStore store = this->store();
  const auto opened = store.open(model_, *client_, {});
  ASSERT_TRUE(opened.ok());
  const TensorInfo& tensor = opened.value().file->tensors()[0];
  fs::create_directories(cache_.path() + "/strata/tensors");
  // What an earlier transfer left is not what the coordinator has.
  std::ofstream(blob(0) + ".part") << "other bytes";
  const auto spoiled = read_all(*opened.value().source, tensor);
  ASSERT_FALSE(spoiled.ok());
  EXPECT_EQ(spoiled.status().code(), StatusCode::data_loss);
  EXPECT_THAT(spoiled.status().message(), HasSubstr(tensor.name));
  ASSERT_TRUE(read_all(*opened.value().source, tensor).ok());
}

void damage(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int old = file.get();
  file.seekp(at);
  file.put(static_cast<char>(old ^ 1));
}

TEST_F(WeightStoreTest, ReceivesADamagedTensorAgain) {
  WeightStore store = this->store();
  const auto opened = store.open(model_, *client_, {});
  ASSERT_TRUE(opened.ok());
  const TensorInfo& tensor = opened.value().file->tensors()[0];
  ASSERT_TRUE(read_all(*opened.value().source, tensor).ok());
  damage(blob(0), 3);
  const auto again = read_all(*opened.value().source, tensor);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  const auto wanted = file_->tensor_bytes(*file_->find_tensor(tensor.name));
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), again.value().begin()));
  EXPECT_EQ(service_->sent_bytes(), 2 * tensor.size_bytes);
  // It is whole in the cache, too.
  ASSERT_TRUE(read_all(*opened.value().source, tensor).ok());
  EXPECT_EQ(service_->sent_bytes(), 2 * tensor.size_bytes);
}

TEST_F(WeightStoreTest, ReceivesADamagedHeaderOrManifestAgain) {
  // What a store has opened must not outlive it.
  WeightStore opener = store();
  const std::string folder = cache_.path() + "/strata/models/" + digest_.model;
  ASSERT_TRUE(opener.open(model_, *client_, {}).ok());
  for (const char* name : {"/header.gguf", "/manifest"}) {
    const std::string path = folder + name;
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (const int64_t at : {int64_t{0}, int64_t{3}, size / 2, size - 2}) {
      damage(path, at);
      const auto opened = opener.open(model_, *client_, {});
      ASSERT_TRUE(opened.ok()) << path << " at " << at << ": " << opened.status().to_string();
      expect_all_equal(opened.value());
    }
    fs::resize_file(path, fs::file_size(path) / 2);
    ASSERT_TRUE(opener.open(model_, *client_, {}).ok());
    fs::remove(path);
    ASSERT_TRUE(opener.open(model_, *client_, {}).ok());
  }
  // All is well again: nothing more is asked for.
  server_->shutdown(std::chrono::milliseconds(0));
  const auto opened = opener.open(model_, *client_, {});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  expect_all_equal(opened.value());
}

// A coordinator that says a model's digest and sends another header: a parameter changed, which
// spoils every answer; a tensor's digest changed, which lets other weights pass.
class FalseCoordinator final : public remote::WeightsClient {
 public:
  FalseCoordinator(remote::WeightsClient& honest, bool in_header)
      : honest_(honest), in_header_(in_header) {}

  Result<remote::ModelHeader> get_model(const remote::ModelName& model, bool with_tokenizer,
                                        std::stop_token stop) override {
    remote::ModelHeader header = TRY(honest_.get_model(model, with_tokenizer, stop));
    if (in_header_) {
      const std::string key = "layer_norm_rms_epsilon";
      header.header[header.header.find(key) + key.size() + 4 + 2] ^= 1;  // behind the value's type
    } else {
      header.tensors[1].digest = std::string(64, 'a');
    }
    return header;
  }
  Status get_tensor(const remote::ModelName& model, const remote::ManifestTensor& tensor,
                    uint64_t offset, const std::function<Status(std::span<const std::byte>)>& take,
                    std::stop_token stop) override {
    return honest_.get_tensor(model, tensor, offset, take, stop);
  }

 private:
  remote::WeightsClient& honest_;
  const bool in_header_;
};

TEST_F(WeightStoreTest, RefusesAHeaderWithoutTheDigestAndStoresNothing) {
  WeightStore store = this->store();
  for (const bool in_header : {true, false}) {
    FalseCoordinator liar(*client_, in_header);
    const auto spoiled = store.open(model_, liar, {});
    ASSERT_FALSE(spoiled.ok());
    EXPECT_EQ(spoiled.status().code(), StatusCode::data_loss) << spoiled.status().to_string();
    EXPECT_THAT(spoiled.status().message(), HasSubstr("is not " + model_.digest));
    EXPECT_THAT(spoiled.status().message(), HasSubstr("llama.gguf is another model: sha256:"));
    EXPECT_FALSE(fs::exists(cache_.path() + "/strata/models"));
  }
  const auto opened = store.open(model_, *client_, {});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  expect_all_equal(opened.value());
}

// What somebody put into the cache, whole in itself, is compared with what is asked for, too.
TEST_F(WeightStoreTest, TakesNoStoredHeaderOfAnotherModel) {
  WeightStore store = this->store();
  ASSERT_TRUE(store.open(model_, *client_, {}).ok());
  remote::ModelName other = model_;
  other.digest = "sha256:" + std::string(64, '0');
  const std::string models = cache_.path() + "/strata/models/";
  fs::rename(models + digest_.model, models + std::string(64, '0'));
  EXPECT_EQ(store.open(other, *client_, {}).status().code(), StatusCode::not_found);
  EXPECT_FALSE(fs::exists(models + std::string(64, '0')));
}

TEST_F(WeightStoreTest, KeepsTheTokenizerOnlyForWhoNeedsIt) {
  WeightStore store = this->store();
  constexpr const char* kTokens = "tokenizer.ggml.tokens";
  for (int round = 0; round < 2; ++round) {  // received, then stored
    const auto with = store.open(model_, *client_, {}, true);
    const auto without = store.open(model_, *client_, {}, false);
    ASSERT_TRUE(with.ok() && without.ok());
    EXPECT_NE(with.value().file->metadata().find(kTokens), nullptr);
    EXPECT_EQ(without.value().file->metadata().find(kTokens), nullptr);
    expect_all_equal(without.value());
  }
}

// A disk that is smaller than the largest tensor, and than all others together: the largest is not
// begun, others are stored as long as there is room, later loads receive only what is not there,
// and there is one warning.
TEST_F(WeightStoreTest, StoresWhatFitsOnAFullDisk) {
  const uint64_t room = largest().size_bytes - (uint64_t{32} << 10);
  const SmallDisk disk(cache_.path() + "/small", room);
  if (!disk.is_there()) GTEST_SKIP() << "only root may mount a small disk";
  const std::string tensors = disk.path() + "/strata/tensors/";
  ASSERT_TRUE(log::configure("", "warn").ok());  // to standard error
  ::testing::internal::CaptureStderr();
  WeightStore store({{}, disk.path() + "/strata", 1});
  uint64_t missing = file_->tensor_bytes_total();
  for (int load = 0; load < 3; ++load) {
    const uint64_t before = store.received_bytes();
    const uint64_t sent = service_->sent_bytes();
    const auto opened = store.open(model_, *client_, {});
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    expect_all_equal(opened.value());
    EXPECT_EQ(store.received_bytes() - before, missing) << load;
    EXPECT_EQ(service_->sent_bytes() - sent, missing) << load;
    uint64_t stored = 0;
    for (size_t i = 0; i < digest_.tensors.size(); ++i) {
      if (fs::exists(tensors + digest_.tensors[i])) stored += file_->tensors()[i].size_bytes;
      EXPECT_FALSE(fs::exists(tensors + digest_.tensors[i] + kPartSuffix));
    }
    EXPECT_GT(stored, room / 2) << load;
    missing = file_->tensor_bytes_total() - stored;
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(log, "cannot store"), 1) << log;
  EXPECT_THAT(log, HasSubstr("the disk is full: "));
}

// Parts that processes left behind go after a day, or when their room is needed; never while one is
// being written.
TEST_F(WeightStoreTest, RemovesPartsThatNobodyWrites) {
  const std::string folder = cache_.path() + "/strata/tensors";
  fs::create_directories(folder);
  const auto part = [&](char name, std::chrono::hours age) {
    const std::string path = folder + "/" + std::string(64, name) + kPartSuffix;
    std::ofstream(path) << "a piece";
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
    return path;
  };
  const std::string old_part = part('a', std::chrono::hours(25));
  const std::string fresh_part = part('b', std::chrono::hours(23));
  const std::string locked_part = part('c', std::chrono::hours(99));
  const std::string whole = folder + "/" + std::string(64, 'd');
  fs::copy(old_part, whole);
  const FileDescriptor writer(::open(locked_part.c_str(), O_RDWR));
  ASSERT_EQ(::flock(writer.get(), LOCK_EX), 0);
  ASSERT_TRUE(store().open(model_, *client_, {}).ok());
  EXPECT_FALSE(fs::exists(old_part));
  for (const std::string& path : {fresh_part, locked_part, whole}) EXPECT_TRUE(fs::exists(path));
  CacheDisk disk(folder);
  const Status refused = disk.take_room(writer.get(), locked_part, 0, uint64_t{1} << 60);
  EXPECT_EQ(refused.code(), StatusCode::resource_exhausted);
  EXPECT_THAT(refused.message(), HasSubstr("1024.0 PiB more are needed"));
  EXPECT_FALSE(fs::exists(fresh_part));
  for (const std::string& path : {locked_part, whole}) EXPECT_TRUE(fs::exists(path));
}

TEST_F(WeightStoreTest, DoesWithoutACacheThatCannotBeWritten) {
  std::ofstream(cache_.path() + "/file") << "no folder";
  for (const std::string& folder : {cache_.path() + "/file/strata", std::string("/proc/strata")}) {
    const uint64_t sent = service_->sent_bytes();
    WeightStore store({{}, folder, 1});
    const auto opened = store.open(model_, *client_, {});
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    expect_all_equal(opened.value());
    EXPECT_EQ(service_->sent_bytes() - sent, file_->tensor_bytes_total());
  }
}

TEST_F(WeightStoreTest, TwoWorkersShareOneCache) {
  WeightStore one = this->store();
  WeightStore two = this->store();
  const auto first = one.open(model_, *client_, {});
  const auto second = two.open(model_, *client_, {});
  ASSERT_TRUE(first.ok() && second.ok());
  std::thread other([&] { expect_all_equal(second.value()); });
  expect_all_equal(first.value());
  other.join();
  EXPECT_EQ(service_->sent_bytes(), file_->tensor_bytes_total());
}

TEST_F(WeightStoreTest, SaysWhenNobodyHasTheModel) {
  WeightStore store = this->store();
  remote::ModelName other = model_;
  other.digest = "sha256:" + std::string(64, '0');
  const auto opened = store.open(other, *client_, {});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::not_found);
  EXPECT_THAT(opened.status().message(), HasSubstr("llama.gguf"));
  const auto thief = remote::WeightsClient::create(server_->address(), "wrong", "worker-1");
  EXPECT_EQ(store.open(model_, *thief, {}).status().code(), StatusCode::unauthenticated);
  for (const char* bad : {"../llama.gguf", "/etc/passwd", ""}) {
    other = model_;
    other.base_name = bad;
    EXPECT_EQ(store.open(other, *client_, {}).status().code(), StatusCode::invalid_argument);
  }
}

TEST_F(WeightStoreTest, AStopRequestEndsATransfer) {
  WeightStore store = this->store();
  const auto opened = store.open(model_, *client_, {});
  ASSERT_TRUE(opened.ok());
  std::stop_source stop;
  stop.request_stop();
  const TensorInfo& tensor = opened.value().file->tensors()[0];
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.size_bytes));
  const Status status = opened.value().source->read(tensor, 0, bytes, stop.get_token());
  EXPECT_EQ(status.code(), StatusCode::cancelled) << status.to_string();
}

}  // namespace
}  // namespace strata::worker
