// What a decode step costs in allocations on its way through a hop: record and frame at the sender,
// pieces and record at the receiver, and the result back. Counts every operator new of the process,
// hence a binary of its own; gRPC's own buffers are not in it.
#include <gtest/gtest.h>

#include "backends/remote/wire.h"
#include "tests/support/counted_allocations.h"

namespace strata::remote {
namespace {

using testing::allocations_of;

// As the stream does it: the pieces' buffers one after the other.
Frame through_pieces(const Frame& frame, FrameAssembler& assembler) {
  const FramePiece piece = cut_piece(frame, 0);
  const std::array<std::span<const std::byte>, 3> message = {piece.header, piece.record,
                                                             piece.rows};
  Result<std::optional<Frame>> whole = assembler.add(message);
  EXPECT_TRUE(whole.ok() && *whole) << whole.status().to_string();
  return std::move(**whole);
}

StepFrame decode_step(uint64_t step) {
  StepFrame frame;
  frame.plan.epoch = 1;
  frame.plan.step_id = step;
  frame.plan.budget_ms = 30'000;
  frame.plan.busy_ns = 2'000'000;
  frame.plan.rows = {{0, 100, 1, StepRow::sample | StepRow::input_from_tail}};
  frame.activations.assign(576, 0.5f);
  return frame;
}

TEST(StepAllocations, AreOneForEachBufferThatTravels) {
  FrameAssembler assembler(FrameKind::step);
  for (uint64_t step = 1; step <= 3; ++step) {
    StepFrame sent = decode_step(step);
    Frame frame;
    StepFrame step_frame;
    const uint64_t at_sender = allocations_of([&] { frame = to_frame(std::move(sent)).value(); });
    const uint64_t at_receiver = allocations_of(
        [&] { step_frame = step_from_frame(through_pieces(frame, assembler)).value(); });
    ASSERT_EQ(step_frame.plan.rows.size(), 1u);
    ASSERT_EQ(step_frame.activations.size(), 576u);
    if (step == 1) continue;             // protobuf prepares itself
    EXPECT_LE(at_sender, 1u) << step;    // the record
    EXPECT_LE(at_receiver, 3u) << step;  // the record, the activations, the plan's rows
  }
}

TEST(StepAllocations, OfAResultAreTheRecords) {
  FrameAssembler assembler(FrameKind::result);
  for (uint64_t step = 1; step <= 3; ++step) {
    StepResult result;
    result.epoch = 1;
    result.step_id = step;
    result.records.resize(1);
    result.records[0].token = 42;
    Frame frame;
    StepResult back;
    const uint64_t at_sender = allocations_of([&] { frame = to_frame(std::move(result)).value(); });
    const uint64_t at_receiver =
        allocations_of([&] { back = result_from_frame(through_pieces(frame, assembler)).value(); });
    ASSERT_EQ(back.records.at(0).token, 42);
    if (step == 1) continue;
    EXPECT_LE(at_sender, 1u) << step;    // the frame's record
    EXPECT_LE(at_receiver, 2u) << step;  // the frame's record, the list of tokens
  }
}

}  // namespace
}  // namespace strata::remote
