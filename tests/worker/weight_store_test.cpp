// Weights by content: from a folder, over a real server on loopback, from the cache; broken off,
// damaged and unknown. The model is a tiny one of tests/data.
#include "worker/weight_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/remote/weights_service.h"
#include "runtime/gguf/digest.h"
#include "tests/support/temp_dir.h"

namespace strata::worker {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kModelPath = STRATA_TEST_DATA "/models/llama.gguf";

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
