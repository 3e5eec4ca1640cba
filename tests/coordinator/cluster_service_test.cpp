// The gRPC edge of the coordinator against clients that behave badly: one that reads nothing, one
// that goes away, one without the token.
#include "coordinator/cluster_service.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backends/remote/channel.h"
#include "runtime/base/mutex.h"
#include "strata/v1/cluster.grpc.pb.h"

namespace strata::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Keeps the listener of the last request, and counts.
class Handler final : public ClusterHandler {
 public:
  void on_hello(MemberId, remote::Hello, const std::string&) override { ++hellos; }
  void on_message(MemberId, remote::FromWorker) override {}
  void on_stream_end(MemberId, const Status&) override { ++stream_ends; }
  RequestId on_generate(remote::GenerateRequest, AnswerListener listener) override {
    const MutexLock lock(mutex_);
    listener_ = std::move(listener);
    changed_.notify_all();
    return 7;
  }
  void on_cancel(RequestId id) override {
    const MutexLock lock(mutex_);
    if (id == 7) ++cancels_;
    changed_.notify_all();
  }
  remote::ClusterStatus on_status() override { return {}; }
  void on_replan(ReplanListener listener) override { listener("epoch 7 is being loaded"); }

  AnswerListener listener() {
    const MutexLock lock(mutex_);
    while (!listener_) changed_.wait(mutex_);
    return listener_;
  }
  bool wait_cancelled(Duration patience) {
    const TimePoint deadline = SystemClock().now() + patience;
    const MutexLock lock(mutex_);
    while (cancels_ == 0) {
      if (!changed_.wait_until(mutex_, deadline)) return false;
    }
    return true;
  }

  std::atomic<int> hellos = 0;
  std::atomic<int> stream_ends = 0;

 private:
  Mutex mutex_;
  CondVar changed_;
  AnswerListener listener_ STRATA_GUARDED_BY(mutex_);
  int cancels_ STRATA_GUARDED_BY(mutex_) = 0;
};

class ClusterServiceTest : public testing::Test {
 protected:
  ClusterServiceTest() : service_(ClusterService::create("secret", handler_)) {
    remote::ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.services = {&service_->service()};
    server_ = remote::RpcServer::start(options).value();
    grpc::ChannelArguments arguments;
    // A window of the smallest kind, so that little is on its way.
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 16);
    stub_ = v1::Cluster::NewStub(grpc::CreateCustomChannel(
        server_->address().text(), grpc::InsecureChannelCredentials(), arguments));
    remote::add_credentials(context_, "secret", "client");
    request_.set_text("hello");
  }
  ~ClusterServiceTest() override {
    service_->end_all(unavailable("the test is over"));
    server_->shutdown(milliseconds(100));
  }
  // So many tokens that no buffer on the way holds them, slowly enough that the way fills up first.
  static void flood(const AnswerListener& listener) {
    for (int i = 0; i < 20'000; ++i) {
      listener(
          remote::GenerateToken{.id = i, .text = std::string(2000, 'x'), .logprob = 0, .top = {}});
      if (i < 4000 && i % 500 == 0) std::this_thread::sleep_for(milliseconds(50));
    }
  }

  Handler handler_;
  std::unique_ptr<ClusterService> service_;
  std::unique_ptr<remote::RpcServer> server_;
  std::unique_ptr<v1::Cluster::Stub> stub_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
};

TEST_F(ClusterServiceTest, ASlowReaderThatReadsOnLearnsWhyItLostItsAnswer) {
  const auto reader = stub_->Generate(&context_, request_);
  flood(handler_.listener());
  EXPECT_TRUE(handler_.wait_cancelled(seconds(5))) << "the sequence ends at once";
  v1::GenerateEvent event;
  int events = 0;
  while (reader->Read(&event)) ++events;
  EXPECT_GT(events, 0);
  EXPECT_LT(events, 20'000);
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), testing::HasSubstr("too slowly"));
}

TEST_F(ClusterServiceTest, AReaderThatReadsNothingIsCutOff) {
  const auto reader = stub_->Generate(&context_, request_);
  const AnswerListener listener = handler_.listener();
  flood(listener);
  EXPECT_TRUE(handler_.wait_cancelled(seconds(5)));
  // The server ends the call by itself: what the client reads afterwards is what had arrived.
  std::this_thread::sleep_for(seconds(6));
  listener(remote::GenerateToken{});  // into nothing
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::CANCELLED) << status.error_message();
}

TEST_F(ClusterServiceTest, AClientThatGoesAwayEndsItsAnswer) {
  {
    const auto reader = stub_->Generate(&context_, request_);
    const AnswerListener listener = handler_.listener();
    listener(remote::GenerateStarted{});
    v1::GenerateEvent event;
    ASSERT_TRUE(reader->Read(&event));
    context_.TryCancel();
    EXPECT_TRUE(handler_.wait_cancelled(seconds(5)));
    listener(remote::GenerateToken{});
    reader->Finish();
  }
}

TEST_F(ClusterServiceTest, ReplanAnswersWhatIsDone) {
  v1::ReplanReply reply;
  EXPECT_TRUE(stub_->Replan(&context_, v1::ReplanRequest(), &reply).ok());
  EXPECT_EQ(reply.text(), "epoch 7 is being loaded");
  grpc::ClientContext stranger;
  remote::add_credentials(stranger, "guess", "client");
  EXPECT_EQ(stub_->Replan(&stranger, v1::ReplanRequest(), &reply).error_code(),
            grpc::UNAUTHENTICATED);
}

// Bytes that are no protobuf get an answer in words: a cut number, a length past the end.
TEST_F(ClusterServiceTest, MessagesThatCannotBeReadAreSaidToBe) {
  grpc::GenericStub stub(
      grpc::CreateChannel(server_->address().text(), grpc::InsecureChannelCredentials()));
  for (const std::string& bytes : {std::string("\x20\xff"), std::string("\x0a\xff\x07"
                                                                        "abc")}) {
    for (const char* method : {"Generate", "Status", "Ping", "Join"}) {
      grpc::ClientContext context;
      remote::add_credentials(context, "secret", "client");
      context.set_deadline(std::chrono::system_clock::now() + seconds(10));
      grpc::CompletionQueue events;
      const grpc::Slice slice(bytes);
      const auto call = stub.PrepareUnaryCall(&context, std::string("/strata.v1.Cluster/") + method,
                                              grpc::ByteBuffer(&slice, 1), &events);
      call->StartCall();
      grpc::ByteBuffer answer;
      grpc::Status status;
      call->Finish(&answer, &status, nullptr);
      void* tag = nullptr;
      bool ok = false;
      events.Next(&tag, &ok);
      EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << method;
      EXPECT_THAT(status.error_message(), testing::HasSubstr("cannot be read as strata.v1."));
    }
  }
  EXPECT_EQ(handler_.hellos, 0);
}

TEST_F(ClusterServiceTest, PingAnswersThoseWithTheToken) {
  v1::PingReply reply;
  EXPECT_TRUE(stub_->Ping(&context_, v1::PingRequest(), &reply).ok());
  grpc::ClientContext stranger;
  remote::add_credentials(stranger, "guess", "client");
  EXPECT_EQ(stub_->Ping(&stranger, v1::PingRequest(), &reply).error_code(), grpc::UNAUTHENTICATED);
}

TEST_F(ClusterServiceTest, AWorkerThatSaysNoHelloIsRefused) {
  const auto stream = stub_->Join(&context_);
  v1::FromWorker message;
  message.mutable_heartbeat()->set_epoch(1);
  stream->Write(message);
  v1::ToWorker answer;
  EXPECT_FALSE(stream->Read(&answer));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("hello"));
  EXPECT_EQ(handler_.hellos, 0);
  EXPECT_EQ(handler_.stream_ends, 0);
}

}  // namespace
}  // namespace strata::coordinator
