// Request: what a client asks of the engine, and the events it gets back.
//
// Whatever happens, each request gets exactly one RequestFinish, after its last token. Token ids
// only: text and stop strings are the business of text_session.h.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/sampling/sampling_params.h"

namespace strata::coordinator {

using RequestId = uint64_t;

struct Request {
  std::vector<int32_t> prompt = {};
  SamplingParams sampling = {};
  // Cut to what the context leaves after the prompt. 0: only evaluate the prompt.
  uint32_t max_new_tokens = 0;
  std::vector<int32_t> end_ids = {};  // sampling one of these ends the answer; it is not reported
  bool want_logits = false;           // report the logits of all prompt positions
  bool want_progress = false;         // report how far the prompt is computed
  uint32_t step_border = 0;           // a step ends after so many prompt tokens, for measuring
  std::optional<TimePoint> deadline = {};
};

struct RequestToken {
  int32_t token = -1;
  uint32_t position = 0;
  float logprob = 0;                                // 0 unless asked for
  std::vector<std::pair<int32_t, float>> top = {};  // as asked for, best first
};

// F32 {n_vocab, count} for the prompt positions [position, position + count), in rising order.
struct RequestLogits {
  uint32_t position = 0;
  std::vector<float> logits = {};
  uint32_t count = 0;
};

// The prompt's positions [0, computed) are computed. Rises from event to event, also if the
// sequence is pushed out and begins anew; the first token tells of the end.
struct RequestProgress {
  uint32_t computed = 0;
};

enum class FinishReason : uint8_t { end_token, length, cancelled, error };
// "stop", "length", "cancelled", "error": the words of the command line and of JSON.
const char* finish_reason_name(FinishReason reason);

struct RequestFinish {
  FinishReason reason = FinishReason::error;
  Status status = {};  // not ok exactly if reason is error
  uint32_t prompt_tokens = 0;
  uint32_t new_tokens = 0;
};

using RequestEvent = std::variant<RequestToken, RequestLogits, RequestProgress, RequestFinish>;
// Called by the engine's thread; must not block or call the engine in a way that waits.
using RequestListener = std::function<void(const RequestEvent&)>;

}  // namespace strata::coordinator
