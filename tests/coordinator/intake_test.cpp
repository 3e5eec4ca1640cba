// Requests on their way to the engine: a client that goes away costs nobody anything, what waits is
// bounded, and one long prompt does not stop the others. The work is a gate that the test opens.
#include "coordinator/intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::coordinator {
namespace {

class IntakeTest : public ::testing::Test {
 protected:
  std::unique_ptr<Intake> intake(const IntakeLimits& limits) {
    return std::make_unique<Intake>(
        limits, Intake::Target{.start = [this](const remote::GenerateRequest&,
                                               const AnswerListener&, RequestId id) { work(id); },
                               .cancel =
                                   [this](RequestId id) {
                                     const MutexLock lock(mutex_);
                                     cancelled_.push_back(id);
                                     changed_.notify_all();
                                   }});
  }
  void add(Intake& intake, RequestId id, size_t bytes) {
    remote::GenerateRequest request;
    request.prompt = std::string(bytes, 'a');
    intake.add(id, std::move(request), [this, id](AnswerEvent event) {
      const MutexLock lock(mutex_);
      ended_[id] = std::get<Status>(event);
    });
  }
  // A request of an odd id takes until the gate is open.
  void work(RequestId id) {
    const MutexLock lock(mutex_);
    begun_.push_back(id);
    changed_.notify_all();
    while (id % 2 == 1 && !open_) changed_.wait(mutex_);
  }
  void wait_begun(size_t count) {
    const MutexLock lock(mutex_);
    while (begun_.size() < count) changed_.wait(mutex_);
  }
  void wait_cancelled(size_t count) {
    const MutexLock lock(mutex_);
    while (cancelled_.size() < count) changed_.wait(mutex_);
  }
  void open() {
    const MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<RequestId> begun_;
  std::vector<RequestId> cancelled_;
  std::map<RequestId, Status> ended_;
  bool open_ = false;
};

TEST_F(IntakeTest, WhoGoesAwayIsDroppedBeforeItsTurn) {
  const auto one = intake({.threads = 1});
  add(*one, 1, 10);
  wait_begun(1);
  add(*one, 2, 10);
  add(*one, 4, 10);
  one->cancel(2);  // waits
  EXPECT_EQ(ended_.at(2).code(), StatusCode::cancelled);
  one->cancel(1);  // is worked on: ended once that is done, and this does not wait for it
  EXPECT_TRUE(cancelled_.empty());
  open();
  wait_cancelled(1);
  wait_begun(2);
  one->cancel(6);  // with the engine, if anywhere
  EXPECT_EQ(begun_, (std::vector<RequestId>{1, 4}));
  EXPECT_EQ(cancelled_, (std::vector<RequestId>{1, 6}));
}

TEST_F(IntakeTest, WhatWaitsIsBoundedInBytesAndInNumber) {
  const auto one = intake({.threads = 1, .requests_max = 3, .bytes_max = 1000});
  add(*one, 1, 5000);
  wait_begun(1);
  add(*one, 2, 900);
  add(*one, 4, 101);
  EXPECT_EQ(ended_.at(4).code(), StatusCode::resource_exhausted);
  EXPECT_THAT(ended_.at(4).message(), ::testing::HasSubstr("1 requests of 900 B together wait"));
  add(*one, 6, 100);
  one->cancel(2);
  add(*one, 8, 900);
  add(*one, 10, 0);
  add(*one, 12, 0);
  EXPECT_EQ(ended_.count(6) + ended_.count(8) + ended_.count(10), 0U);
  EXPECT_THAT(ended_.at(12).message(), ::testing::HasSubstr("3 requests wait"));
  open();
}

TEST_F(IntakeTest, OneLongPromptDoesNotStopTheOthers) {
  const auto two = intake({.threads = 2});
  add(*two, 1, 10);
  for (RequestId id = 2; id <= 10; id += 2) add(*two, id, 10);
  wait_begun(6);
  open();
}

}  // namespace
}  // namespace strata::coordinator
