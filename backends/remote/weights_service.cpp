#include "backends/remote/weights_service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <unordered_map>

#include "backends/remote/channel.h"
#include "backends/remote/raw_messages.h"
#include "backends/remote/wire.h"
#include "backends/remote/wire_fields.h"
#include "runtime/base/mutex.h"
#include "runtime/base/work_thread.h"
#include "strata/v1/weights.grpc.pb.h"

namespace strata::remote {
namespace {

// Manifest entries in one piece: about 150 bytes each.
constexpr size_t kEntriesPerPiece = 4096;
constexpr int kTensorsPerRequestMax = 65'536;
// Pieces that wait to be read from the file: one for each transfer.
constexpr size_t kReadsWaitingMax = 1024;

// A tensor that was asked for.
struct Wanted {
  const TensorInfo* tensor = nullptr;
  uint64_t offset = 0;
};

// What all calls read; immutable but for the counter and the thread.
struct Source {
  std::string token;
  ModelName name;
  std::shared_ptr<const GgufFile> file;
  ModelDigest digest;
  std::string header;                             // without the tokenizer's arrays
  std::string tokenizer_header;                   // with them
  std::unordered_map<std::string, size_t> index;  // by tensor name
  std::atomic<uint64_t> sent_bytes = 0;
  // Reads the file, so that gRPC's threads do not wait for a disk.
  WorkThread reader{kReadsWaitingMax};
};

Status check_model(const Source& source, const v1::ModelName& asked) {
  const ModelName model = TRY(from_proto(asked));
  if (model.digest == source.name.digest) return ok_status();
  return not_found(fmt::format("model {} ({}) is not here: this node has {} ({})",
                               peer_text(model.base_name), model.digest, source.name.base_name,
                               source.name.digest));
}

// Requests come as bytes, so that those that are no message get an answer in words.
using RawWeights = v1::Weights::WithRawCallbackMethod_GetModel<
    v1::Weights::WithRawCallbackMethod_GetTensors<v1::Weights::Service>>;
using RawWriter = grpc::ServerWriteReactor<grpc::ByteBuffer>;

// Writes pieces one after another as gRPC takes them, and reads the next one from the file while
// the last is under way. Deletes itself when the call is done, which it is not before Finish(), so
// that a job of the reader always finds it.
template <typename Piece>
class PieceWriter : public RawWriter {
 public:
  explicit PieceWriter(WorkThread& reader) : reader_(reader) {}

  void OnWriteDone(bool ok) override {
    if (ok) {
      write_next();
    } else {
      { const MutexLock lock(mutex_); }  // the next piece is ready: nobody works here any more
      this->Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the worker takes no more"));
    }
  }
  void OnDone() override { delete this; }

 protected:
  // Fills the next piece. False after the last.
  virtual Result<bool> fill(Piece& piece) = 0;

  void write_next() {
    if (reader_.post([this] { write_prepared(); })) return;
    this->Finish(to_grpc(
        resource_exhausted("too many workers load their weights at once", "try again later")));
  }

 private:
  void write_prepared() {
    grpc::Status ended;
    bool is_over = false;
    {
      // A write may be done before the next piece is ready.
      const MutexLock lock(mutex_);
      if (!is_prepared_) prepare();
      is_over = is_over_;
      ended = ended_;
      if (!is_over) {
        this->StartWrite(&pieces_[next_]);
        next_ = 1 - next_;
        prepare();
      }
    }
    // The last thing: the object may be gone before this returns.
    if (is_over) this->Finish(ended);
  }

  void prepare() STRATA_REQUIRES(mutex_) {
    is_prepared_ = true;
    Piece piece;
    const Result<bool> more = fill(piece);
    is_over_ = !more.ok() || !more.value();
    if (!is_over_) pieces_[next_] = serialize_message(piece);
    if (!more.ok()) ended_ = to_grpc(more.status());
  }

  WorkThread& reader_;
  Mutex mutex_;
  std::array<grpc::ByteBuffer, 2> pieces_ STRATA_GUARDED_BY(mutex_);
  size_t next_ STRATA_GUARDED_BY(mutex_) = 0;
  bool is_prepared_ STRATA_GUARDED_BY(mutex_) = false;
  bool is_over_ STRATA_GUARDED_BY(mutex_) = false;
  grpc::Status ended_ STRATA_GUARDED_BY(mutex_);
};

class Refusal final : public RawWriter {
 public:
  explicit Refusal(const Status& why) { Finish(to_grpc(why)); }
  void OnDone() override { delete this; }
};

class ModelWriter final : public PieceWriter<v1::ModelPiece> {
 public:
  ModelWriter(Source& source, bool with_tokenizer)
      : PieceWriter(source.reader),
        source_(source),
        header_(with_tokenizer ? source.tokenizer_header : source.header) {
    write_next();
  }

 private:
  Result<bool> fill(v1::ModelPiece& piece) override {
    piece.set_header_bytes(header_.size());
    const auto tensors = source_.file->tensors();
    piece.set_tensor_count(static_cast<uint32_t>(tensors.size()));
    if (header_sent_ < header_.size()) {
      const size_t size = std::min(kPieceBytesMax, header_.size() - header_sent_);
      piece.set_header(header_.substr(header_sent_, size));
      header_sent_ += size;
      return true;
    }
    if (next_tensor_ == tensors.size()) return false;
    const size_t end = std::min(tensors.size(), next_tensor_ + kEntriesPerPiece);
    for (; next_tensor_ < end; ++next_tensor_) {
      const TensorInfo& tensor = tensors[next_tensor_];
      v1::ManifestEntry* entry = piece.add_tensors();
      entry->set_name(tensor.name);
      entry->set_digest("sha256:" + source_.digest.tensors[next_tensor_]);
      entry->set_size_bytes(tensor.size_bytes);
    }
    return true;
  }

  const Source& source_;
  const std::string& header_;
  size_t header_sent_ = 0;
  size_t next_tensor_ = 0;
};

class TensorWriter final : public PieceWriter<v1::TensorPiece> {
 public:
  TensorWriter(Source& source, std::vector<Wanted> wanted)
      : PieceWriter(source.reader), source_(source), wanted_(std::move(wanted)) {
    write_next();
  }

 private:
  Result<bool> fill(v1::TensorPiece& piece) override {
    while (next_ < wanted_.size() && wanted_[next_].offset == wanted_[next_].tensor->size_bytes) {
      ++next_;
    }
    if (next_ == wanted_.size()) return false;
    Wanted& wanted = wanted_[next_];
    const size_t size = static_cast<size_t>(
        std::min<uint64_t>(kPieceBytesMax, wanted.tensor->size_bytes - wanted.offset));
    std::string& data = *piece.mutable_data();
    data.resize(size);
    TRY(source_.file->file(wanted.tensor->file_index)
            .read(wanted.tensor->offset + wanted.offset, std::as_writable_bytes(std::span(data)))
            .with_context(wanted.tensor->name));
    piece.set_index(static_cast<uint32_t>(next_));
    piece.set_offset(wanted.offset);
    wanted.offset += size;
    source_.sent_bytes += size;
    return true;
  }

  Source& source_;
  std::vector<Wanted> wanted_;
  size_t next_ = 0;
};

// Whether the tokenizer is asked for with the model.
Result<bool> read_model_request(const Source& source, const grpc::ByteBuffer& bytes) {
  const v1::ModelRequest request = TRY(parse_message<v1::ModelRequest>(bytes));
  TRY(check_model(source, request.model()));
  return request.with_tokenizer();
}

Result<std::vector<Wanted>> find_tensors(const Source& source, const grpc::ByteBuffer& bytes) {
  const v1::TensorsRequest request = TRY(parse_message<v1::TensorsRequest>(bytes));
  TRY(check_model(source, request.model()));
  if (request.tensors_size() > kTensorsPerRequestMax) {
    return invalid_argument(fmt::format("{} tensors in one request are more than {}",
                                        request.tensors_size(), kTensorsPerRequestMax));
  }
  std::vector<Wanted> wanted;
  for (const v1::TensorRequest& asked : request.tensors()) {
    const auto found = source.index.find(asked.name());
    if (found == source.index.end()) {
      return not_found(
          fmt::format("{} has no tensor '{}'", source.name.base_name, peer_text(asked.name())));
    }
    TRY(check_digest(asked.digest()));
    const TensorInfo& tensor = source.file->tensors()[found->second];
    if (asked.digest() != "sha256:" + source.digest.tensors[found->second]) {
      return not_found(fmt::format("tensor {} has another digest here", tensor.name));
    }
    if (asked.offset() > tensor.size_bytes) {
      return invalid_argument(fmt::format("tensor {}: offset {} is past its end ({} bytes)",
                                          tensor.name, asked.offset(), tensor.size_bytes));
    }
    wanted.push_back({&tensor, asked.offset()});
  }
  return wanted;
}

class Service final : public WeightsService, private RawWeights {
 public:
  Service(std::string token, ModelName name, std::shared_ptr<const GgufFile> file,
          ModelDigest digest) {
    source_.token = std::move(token);
    source_.name = std::move(name);
    source_.file = std::move(file);
    source_.digest = std::move(digest);
    source_.tokenizer_header = serialize_header(*source_.file, SerializeOptions());
    SerializeOptions options;
    options.keep_key = keep_without_tokenizer;
    source_.header = serialize_header(*source_.file, options);
    for (size_t i = 0; i < source_.file->tensors().size(); ++i) {
      source_.index.emplace(source_.file->tensors()[i].name, i);
    }
  }

  grpc::Service& service() override { return *this; }
  uint64_t sent_bytes() const override { return source_.sent_bytes; }

 private:
  RawWriter* GetModel(grpc::CallbackServerContext* context,
                      const grpc::ByteBuffer* request) override {
    if (const Status status = check_caller(*context, source_.token); !status.ok()) {
      return new Refusal(status);
    }
    const Result<bool> with_tokenizer = read_model_request(source_, *request);
    if (!with_tokenizer.ok()) return new Refusal(with_tokenizer.status());
    return new ModelWriter(source_, *with_tokenizer);
  }

  RawWriter* GetTensors(grpc::CallbackServerContext* context,
                        const grpc::ByteBuffer* request) override {
    if (const Status status = check_caller(*context, source_.token); !status.ok()) {
      return new Refusal(status);
    }
    Result<std::vector<Wanted>> wanted = find_tensors(source_, *request);
    if (!wanted.ok()) return new Refusal(wanted.status());
    return new TensorWriter(source_, std::move(wanted).value());
  }

  Source source_;
};

}  // namespace

std::unique_ptr<WeightsService> WeightsService::create(std::string token, ModelName name,
                                                       std::shared_ptr<const GgufFile> file,
                                                       ModelDigest digest) {
  return std::make_unique<Service>(std::move(token), std::move(name), std::move(file),
                                   std::move(digest));
}

}  // namespace strata::remote
