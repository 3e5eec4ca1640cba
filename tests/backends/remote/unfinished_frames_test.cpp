// Frames that are begun and not ended: one limit for all streams of a node, and a time for the next
// piece. The sender writes raw pieces, as anybody could.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <array>

#include "backends/remote/activation_stream.h"
#include "tests/backends/remote/inbox.h"

namespace strata::remote {
namespace {

// A handler for streams without a pipeline, with limits of its own.
class Frames final : public StreamHandler {
 public:
  explicit Frames(const StreamLimits& limits)
      : acceptor_(StreamAcceptor::create("secret", *this, limits)) {
    ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.streams = acceptor_.get();
    server_ = RpcServer::start(options).value();
  }
  ~Frames() override { server_->shutdown(std::chrono::milliseconds(0)); }
  Status on_open(const StreamCaller&) override { return ok_status(); }
  Status on_first_piece(const StreamCaller&, uint64_t, uint64_t step) override {
    return step < 1000 ? ok_status() : failed_precondition("such a step is not due");
  }
  Status on_frame(const StreamCaller&, Frame frame) override {
    whole.put(std::move(frame));
    return ok_status();
  }
  void on_closed(const StreamCaller& caller, const Status& why) override {
    closed.put({caller.name, why});
  }
  // A stream of pieces of `bytes`, which stand for a frame of `parts`, and nothing after them.
  void send_pieces(const std::string& name, uint64_t step, uint32_t count, uint32_t parts) {
    calls_.push_back(std::make_unique<Call>(server_->address(), name));
    Frame frame;
    frame.step = step;
    frame.n_tokens = parts;
    frame.n_embd = kPieceBytesMax / sizeof(float);
    frame.rows.resize(uint64_t{parts} * frame.n_embd);
    for (uint32_t part = 0; part < count; ++part) calls_.back()->write(frame, part);
  }

  Inbox<Frame> whole;
  Inbox<std::pair<std::string, Status>> closed;

 private:
  struct Call {
    Call(const Address& address, const std::string& name)
        : stub(grpc::CreateChannel(address.text(), grpc::InsecureChannelCredentials())) {
      add_credentials(context, "secret", name);
      stream = stub.PrepareCall(&context, "/strata.v1.Stage/Steps", &events);
      stream->StartCall(nullptr);
      wait();
    }
    ~Call() {
      context.TryCancel();
      grpc::Status status;
      stream->Finish(&status, nullptr);
      wait();
      events.Shutdown();
    }
    void wait() {
      void* tag = nullptr;
      bool ok = false;
      events.Next(&tag, &ok);
    }
    void write(const Frame& frame, uint32_t part) {
      const FramePiece piece = cut_piece(frame, part);
      const std::array<grpc::Slice, 2> slices = {
          grpc::Slice(piece.header.data(), piece.header.size()),
          grpc::Slice(piece.rows.data(), piece.rows.size())};
      stream->Write(grpc::ByteBuffer(slices.data(), slices.size()), nullptr);
      wait();
    }
    grpc::GenericStub stub;
    grpc::ClientContext context;
    grpc::CompletionQueue events;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  };

  std::unique_ptr<StreamAcceptor> acceptor_;
  std::unique_ptr<RpcServer> server_;
  std::vector<std::unique_ptr<Call>> calls_;
};

TEST(UnfinishedFrames, ShareOneLimitAndLeaveRoomForOthersWhenTheyEnd) {
  Frames node({.unfinished_bytes_max = uint64_t{20} << 20,
               .piece_timeout = std::chrono::milliseconds(60'000)});
  node.send_pieces("a", 1, 1, 8);  // 16 MiB are announced, and reserved
  node.send_pieces("b", 1, 1, 8);
  const auto refused = node.closed.take();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->first, "b");
  EXPECT_EQ(refused->second.code(), StatusCode::resource_exhausted);
  EXPECT_THAT(refused->second.message(),
              ::testing::HasSubstr("of which all streams hold 16777216 of"));
  node.send_pieces("c", 1, 1, 1);
  EXPECT_TRUE(node.whole.take().has_value()) << "a frame of one piece needs no room";
  EXPECT_FALSE(node.closed.take(std::chrono::milliseconds(50)).has_value());
}

TEST(UnfinishedFrames, EndAfterATimeAndByAStepThatIsNotDue) {
  Frames node({.piece_timeout = std::chrono::milliseconds(200)});
  node.send_pieces("slow", 1, 2, 3);
  const auto late = node.closed.take();
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->second.code(), StatusCode::deadline_exceeded);
  EXPECT_THAT(late->second.message(),
              ::testing::HasSubstr("step 1: part 2 has not come within 200 ms"));
  node.send_pieces("far", 1000, 1, 3);
  const auto far = node.closed.take();
  ASSERT_TRUE(far.has_value());
  EXPECT_EQ(far->second.message(), "such a step is not due");
  node.send_pieces("whole", 7, 3, 3);
  EXPECT_TRUE(node.whole.take().has_value());
  EXPECT_FALSE(node.closed.take(std::chrono::milliseconds(500)).has_value());
}

}  // namespace
}  // namespace strata::remote
