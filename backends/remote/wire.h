// Proto messages to the project's own types and back, and Status to grpc::Status: the only file
// that does so. Every field that comes from a peer is checked here for what can be checked without
// context: names, digests, enums, ranges, counts that must agree. Errors are INVALID_ARGUMENT and
// name the field, its value and the rule.
//
// Included where gRPC calls are served or made, and nowhere else. Threads: any.
#pragma once

#include <grpcpp/support/status.h>

#include "backends/remote/client_records.h"
#include "backends/remote/cluster_records.h"
#include "backends/remote/frame.h"
#include "runtime/base/status.h"
#include "runtime/model/step.h"
#include "strata/v1/cluster.pb.h"
#include "strata/v1/stage.pb.h"
#include "strata/v1/types.pb.h"

namespace strata::remote {

// The hint travels as the error's details.
grpc::Status to_grpc(const Status& status);
Status from_grpc(const grpc::Status& status);

v1::FromWorker to_proto(const FromWorker& record);
Result<FromWorker> from_proto(const v1::FromWorker& message);
v1::ToWorker to_proto(const ToWorker& record);
Result<ToWorker> from_proto(const v1::ToWorker& message);

v1::GenerateRequest to_proto(const GenerateRequest& record);
Result<GenerateRequest> from_proto(const v1::GenerateRequest& message);
v1::GenerateEvent to_proto(const GenerateEvent& record);
Result<GenerateEvent> from_proto(const v1::GenerateEvent& message);
v1::ClusterStatus to_proto(const ClusterStatus& record);
Result<ClusterStatus> from_proto(const v1::ClusterStatus& message);

v1::ModelName to_proto(const ModelName& record);
Result<ModelName> from_proto(const v1::ModelName& message);

// A step with its activations, moved into the frame, and a result with its logits.
Result<Frame> to_frame(StepFrame step);
Result<StepFrame> step_from_frame(Frame frame);
Result<Frame> to_frame(StepResult result);
Result<StepResult> result_from_frame(Frame frame);

}  // namespace strata::remote
