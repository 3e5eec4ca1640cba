#include "backends/remote/weights_client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <array>

#include "backends/remote/wire.h"
#include "runtime/base/mutex.h"
#include "runtime/gguf/gguf_reader.h"
#include "strata/v1/weights.grpc.pb.h"

namespace strata::remote {
namespace {

// Between two pieces of 2 MiB: 1 Mbit/s needs 17 s for one.
constexpr std::chrono::seconds kPieceTimeout{60};
constexpr std::chrono::seconds kConnectTimeout{10};

// Reads a stream of pieces to its end; every read has a deadline, and a stop request cancels it.
// The next piece is on its way while the caller hashes and stores the one before.
template <typename Piece>
class PieceReader final : public grpc::ClientReadReactor<Piece> {
 public:
  explicit PieceReader(grpc::ClientContext& context) : context_(context) {}

  void start() {
    this->AddHold();
    this->StartCall();
    this->StartRead(&pieces_[arriving_]);
  }

  // True with the next piece in piece(), false after the last or an error.
  bool next(const std::stop_token& stop) {
    const std::stop_callback on_stop(stop, [this] { context_.TryCancel(); });
    {
      MutexLock lock(mutex_);
      const auto deadline = std::chrono::steady_clock::now() + kPieceTimeout;
      while (!have_ && !ended_) {
        if (!changed_.wait_until(mutex_, deadline)) {
          timed_out_ = true;
          context_.TryCancel();
          while (!have_ && !ended_) changed_.wait(mutex_);
        }
      }
      if (!have_) return false;
      have_ = false;
    }
    arriving_ = 1 - arriving_;
    this->StartRead(&pieces_[arriving_]);
    return true;
  }
  const Piece& piece() const { return pieces_[1 - arriving_]; }

  // Ends the call if it has not ended, and waits for its status.
  Status finish(const std::stop_token& stop) {
    bool ended = false;
    {
      MutexLock lock(mutex_);
      ended = ended_;
    }
    if (!ended) context_.TryCancel();
    this->RemoveHold();
    MutexLock lock(mutex_);
    while (!done_) changed_.wait(mutex_);
    if (stop.stop_requested()) return cancelled("the transfer was cancelled");
    if (timed_out_) {
      return deadline_exceeded(fmt::format("no data for {} s", kPieceTimeout.count()));
    }
    return from_grpc(status_);
  }

  void OnReadDone(bool ok) override {
    MutexLock lock(mutex_);
    (ok ? have_ : ended_) = true;
    changed_.notify_all();
  }
  void OnDone(const grpc::Status& status) override {
    MutexLock lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
  }

 private:
  grpc::ClientContext& context_;
  std::array<Piece, 2> pieces_;
  size_t arriving_ = 0;  // the caller's
  Mutex mutex_;
  CondVar changed_;
  bool have_ STRATA_GUARDED_BY(mutex_) = false;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
  bool done_ STRATA_GUARDED_BY(mutex_) = false;
  bool timed_out_ STRATA_GUARDED_BY(mutex_) = false;
  grpc::Status status_ STRATA_GUARDED_BY(mutex_);
};

Result<ManifestTensor> take_entry(const v1::ManifestEntry& in) {
  TRY(check_digest(in.digest()).with_context("manifest"));
  return ManifestTensor{in.name(), in.digest().substr(7), in.size_bytes()};
}

Status take_model_piece(const v1::ModelPiece& piece, ModelHeader& model) {
  if (piece.header_bytes() > kMetadataBytesMax || piece.tensor_count() > kTensorsMax) {
    return invalid_argument(fmt::format("model header of {} bytes with {} tensors is too large",
                                        piece.header_bytes(), piece.tensor_count()));
  }
  model.header += piece.header();
  if (model.header.size() > piece.header_bytes()) {
    return invalid_argument(fmt::format("model header: {} bytes where {} were announced",
                                        model.header.size(), piece.header_bytes()));
  }
  for (const v1::ManifestEntry& entry : piece.tensors()) {
    model.tensors.push_back(TRY(take_entry(entry)));
  }
  if (model.tensors.size() > piece.tensor_count()) {
    return invalid_argument(fmt::format("manifest: {} tensors where {} were announced",
                                        model.tensors.size(), piece.tensor_count()));
  }
  return ok_status();
}

class Client final : public WeightsClient {
 public:
  Client(const Address& coordinator, std::string token, std::string caller)
      : coordinator_(coordinator),
        token_(std::move(token)),
        caller_(std::move(caller)),
        channel_(open_channel(coordinator)),
        stub_(v1::Weights::NewStub(channel_)) {}

  Result<ModelHeader> get_model(const ModelName& model, bool with_tokenizer,
                                std::stop_token stop) override {
    TRY(wait_connected(*channel_, coordinator_, "the coordinator", kConnectTimeout, stop));
    grpc::ClientContext context;
    add_credentials(context, token_, caller_);
    v1::ModelRequest request;
    *request.mutable_model() = to_proto(model);
    request.set_with_tokenizer(with_tokenizer);
    PieceReader<v1::ModelPiece> reader(context);
    stub_->async()->GetModel(&context, &request, &reader);
    reader.start();
    ModelHeader header;
    uint64_t header_bytes = 0;
    uint32_t tensor_count = 0;
    Status taken;
    while (taken.ok() && reader.next(stop)) {
      taken = take_model_piece(reader.piece(), header);
      header_bytes = reader.piece().header_bytes();
      tensor_count = reader.piece().tensor_count();
    }
    const Status ended = reader.finish(stop);
    TRY(std::move(taken));
    TRY(ended.with_context("the coordinator"));
    if (header.header.size() != header_bytes || header.tensors.size() != tensor_count) {
      return data_loss(
          fmt::format("the model's header ended early: {} of {} bytes, {} of {} tensors",
                      header.header.size(), header_bytes, header.tensors.size(), tensor_count));
    }
    return header;
  }

  Status get_tensor(const ModelName& model, const ManifestTensor& tensor, uint64_t offset,
                    const std::function<Status(std::span<const std::byte>)>& take,
                    std::stop_token stop) override {
    TRY(wait_connected(*channel_, coordinator_, "the coordinator", kConnectTimeout, stop));
    grpc::ClientContext context;
    add_credentials(context, token_, caller_);
    v1::TensorsRequest request;
    *request.mutable_model() = to_proto(model);
    v1::TensorRequest* asked = request.add_tensors();
    asked->set_name(tensor.name);
    asked->set_digest("sha256:" + tensor.digest);
    asked->set_offset(offset);
    PieceReader<v1::TensorPiece> reader(context);
    stub_->async()->GetTensors(&context, &request, &reader);
    reader.start();
    Status taken;
    while (taken.ok() && reader.next(stop)) {
      const v1::TensorPiece& piece = reader.piece();
      if (piece.index() != 0 || piece.offset() != offset ||
          piece.data().size() > tensor.size_bytes - offset) {
        taken =
            invalid_argument(fmt::format("tensor {}: a piece of {} bytes at {} where {} belongs",
                                         tensor.name, piece.data().size(), piece.offset(), offset));
        break;
      }
      offset += piece.data().size();
      taken = take(std::as_bytes(std::span(piece.data())));
    }
    const Status ended = reader.finish(stop);
    TRY(std::move(taken));
    TRY(ended.with_context("the coordinator"));
    if (offset == tensor.size_bytes) return ok_status();
    return data_loss(fmt::format("tensor {} ended early: {} of {} bytes", tensor.name, offset,
                                 tensor.size_bytes));
  }

 private:
  const Address coordinator_;
  const std::string token_;
  const std::string caller_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Weights::Stub> stub_;
};

}  // namespace

std::unique_ptr<WeightsClient> WeightsClient::create(const Address& coordinator, std::string token,
                                                     std::string caller) {
  return std::make_unique<Client>(coordinator, std::move(token), std::move(caller));
}

}  // namespace strata::remote
