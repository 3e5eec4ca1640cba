// Goal: a Status keeps its code, context and hint; TRY hands values and errors on.
#include "runtime/base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace strata {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("odd", "pass an even number");
  return value / 2;
}

Result<int> quarter(int value) {
  const int once = TRY(half(value));
  return TRY(half(once).with_context("second half"));
}

Status only_status(bool good) {
  TRY(good ? ok_status() : unavailable("down"));
  return ok_status();
}

TEST(Status, ContextAndHintAreKept) {
  const Status status = not_found("no such file", "check the path").with_context("loading");
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_EQ(status.message(), "loading: no such file");
  EXPECT_EQ(status.to_string(), "loading: no such file (check the path)");
  EXPECT_EQ(status_code_name(status.code()), "NOT_FOUND");
}

TEST(Status, TryReturnsTheValueOrTheError) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(3).status().message(), "odd");
  EXPECT_EQ(quarter(6).status().message(), "second half: odd");
  EXPECT_EQ(quarter(6).status().hint(), "pass an even number");
  EXPECT_TRUE(only_status(true).ok());
  EXPECT_EQ(only_status(false).code(), StatusCode::unavailable);
}

TEST(Status, ResultCarriesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 5);
}

TEST(StatusDeathTest, TheValueOfAnErrorIsABug) { EXPECT_DEATH(half(1).value(), "odd"); }

}  // namespace
}  // namespace strata
