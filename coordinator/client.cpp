#include "coordinator/client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "backends/remote/wire.h"
#include "strata/v1/cluster.grpc.pb.h"

namespace strata::coordinator {
namespace {

constexpr const char* kCaller = "client";
constexpr auto kStatusTimeout = std::chrono::seconds(5);
constexpr auto kReplanTimeout = std::chrono::seconds(15);  // a plan over many workers takes a while

Status interrupted() { return cancelled("interrupted"); }

class ClientImpl final : public Client {
 public:
  ClientImpl(std::shared_ptr<grpc::Channel> channel, std::string address, std::string token)
      : channel_(std::move(channel)),
        stub_(v1::Cluster::NewStub(channel_)),
        address_(std::move(address)),
        token_(std::move(token)) {}

  Status generate(const remote::GenerateRequest& request,
                  const std::function<void(const remote::GenerateEvent&)>& event,
                  std::stop_token stop) override {
    grpc::ClientContext context;
    remote::add_credentials(context, token_, kCaller);
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    const Status status = read_events(context, request, event);
    return stop.stop_requested() && !status.ok() ? interrupted() : status;
  }

  Result<remote::ClusterStatus> status(std::stop_token stop) override {
    v1::ClusterStatus response;
    TRY(call(&v1::Cluster::Stub::Status, v1::StatusRequest(), response, kStatusTimeout, stop));
    return remote::from_proto(response);
  }

  Result<std::string> replan(std::stop_token stop) override {
    v1::ReplanReply reply;
    TRY(call(&v1::Cluster::Stub::Replan, v1::ReplanRequest(), reply, kReplanTimeout, stop));
    return reply.text();
  }

 private:
  template <typename Method, typename Request, typename Reply>
  Status call(Method method, const Request& request, Reply& reply, std::chrono::seconds timeout,
              const std::stop_token& stop) {
    grpc::ClientContext context;
    remote::add_credentials(context, token_, kCaller);
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    const grpc::Status status = ((*stub_).*method)(&context, request, &reply);
    if (!status.ok() && stop.stop_requested()) return interrupted();
    return explain(context, status, "try again; is that process frozen, or its host cut off?");
  }

  Status read_events(grpc::ClientContext& context, const remote::GenerateRequest& request,
                     const std::function<void(const remote::GenerateEvent&)>& event) {
    const v1::GenerateRequest proto = remote::to_proto(request);
    const auto reader = stub_->Generate(&context, proto);
    v1::GenerateEvent message;
    Status broken;
    while (reader->Read(&message)) {
      Result<remote::GenerateEvent> record = remote::from_proto(message);
      if (!record.ok()) {
        broken = record.status();
        context.TryCancel();
        break;
      }
      event(*record);
    }
    const grpc::Status status = reader->Finish();
    if (!broken.ok()) return broken;
    return explain(context, status,
                   "the answer is not complete; try again once the coordinator is back");
  }

  // gRPC's own words for a broken connection ("Socket closed", "keepalive watchdog timeout") name
  // nothing. The channel's state would not tell whose they are: it may be connected again, or
  // still.
  Status explain(const grpc::ClientContext& context, const grpc::Status& status,
                 const char* hint) const {
    const Status plain = remote::from_grpc(status);
    if (plain.ok() || remote::is_answer(context)) return plain;
    switch (plain.code()) {
      case StatusCode::unavailable:
      case StatusCode::cancelled:
      case StatusCode::unknown:
      case StatusCode::internal:
      case StatusCode::deadline_exceeded:
        return unavailable(fmt::format("lost the coordinator at {}: {}", address_, plain.message()),
                           hint);
      default:
        return plain;  // such as an answer that is too large, or another service's refusal
    }
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Cluster::Stub> stub_;
  const std::string address_;
  const std::string token_;
};

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(const remote::Address& address,
                                                const std::string& token,
                                                std::chrono::milliseconds timeout,
                                                std::stop_token stop) {
  TRY(remote::check_rpc_threads());
  std::shared_ptr<grpc::Channel> channel = remote::open_channel(address);
  const Status connected =
      remote::wait_connected(*channel, address, "the coordinator", timeout, stop);
  if (!connected.ok()) return stop.stop_requested() ? interrupted() : connected;
  return std::unique_ptr<Client>(
      std::make_unique<ClientImpl>(std::move(channel), address.text(), token));
}

}  // namespace strata::coordinator
