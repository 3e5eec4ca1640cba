#include "serve/openai/completion_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "runtime/base/json_text.h"
#include "runtime/base/random.h"
#include "runtime/base/utf8.h"
#include "serve/openai/chat_response.h"
#include "serve/openai/logprobs.h"

namespace strata::serve {
namespace {

struct Answer {
  std::string text;
  std::optional<TokenLogprobs> tokens;
  std::vector<TokenLogprobs::Entry> entries;
  std::vector<coordinator::PromptLogprob> prompt;
  double logprob_sum = 0;
  bool begun = false;
  remote::GenerateFinished finished;
};

class CompletionSink final : public AnswerSink {
 public:
  CompletionSink(CompletionRequest request, const Tokenizer& tokenizer,
                 std::shared_ptr<HttpReply> reply)
      : request_(std::move(request)),
        tokenizer_(tokenizer),
        reply_(std::move(reply)),
        head_({{"id", "cmpl-" + random_hex(12)},
               {"object", "text_completion"},
               {"created", unix_time()},
               {"model", request_.model},
               {"system_fingerprint", "strata"}}),
        answers_(request_.calls.size()) {
    for (size_t i = 0; i < answers_.size(); ++i) {
      answers_[i].tokens.emplace(tokenizer,
                                 prompt_of(i).ids.empty() ? -1 : prompt_of(i).ids.back());
    }
    if (request_.stream) reply_->open_stream(kEventStreamType);
  }

  void on_started(size_t, const remote::GenerateStarted&) override {}

  void on_prompt(size_t call, const coordinator::PromptLogprob& about) override {
    answers_[call].prompt.push_back(about);
  }

  void on_token(size_t call, remote::GenerateToken token) override {
    Answer& answer = answers_[call];
    answer.logprob_sum += static_cast<double>(token.logprob);
    std::vector<TokenLogprobs::Entry> ready;
    if (request_.logprobs) ready = answer.tokens->push(token);
    if (!request_.stream) {
      answer.text += token.text;
      for (TokenLogprobs::Entry& entry : ready) answer.entries.push_back(std::move(entry));
      return;
    }
    if (token.text.empty() && ready.empty()) return;
    begin(call);
    Json logprobs = request_.logprobs ? shape() : Json();
    for (const TokenLogprobs::Entry& entry : ready) append(logprobs, answer, entry, call);
    write_chunk(call, token.text, std::move(logprobs), nullptr);
  }

  void on_finished(size_t call, const remote::GenerateFinished& finished) override {
    answers_[call].finished = finished;
    if (!request_.stream) return;
    begin(call);
    write_chunk(call, "", nullptr, finished.reason);
  }

  void on_done() override {
    if (!request_.stream) return send_all();
    if (request_.include_usage) {
      Json chunk = head_;
      chunk["choices"] = Json::array();
      chunk["usage"] = usage();
      reply_->write(sse_event(chunk));
    }
    reply_->write("data: [DONE]\n\n");
    reply_->end_stream();
  }

  void on_failed(const Status& status, const ErrorContext& context) override {
    send_failure(*reply_, status, context);
  }

 private:
  const CompletionRequest::Prompt& prompt_of(size_t call) const {
    return request_.prompts[call / request_.generated];
  }

  static Json shape() {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }

  // Offsets count bytes of UTF-8, from the beginning of what is given out.
  void append_token(Json& shape, const TokenLogprobs& tokens, const std::string& piece,
                    std::optional<float> logprob, const std::vector<std::pair<int32_t, float>>& top,
                    size_t offset) const {
    shape["tokens"].push_back(piece);
    shape["token_logprobs"].push_back(logprob ? Json(*logprob) : Json());
    shape["text_offset"].push_back(offset);
    if (!logprob || *request_.logprobs == 0) {
      shape["top_logprobs"].push_back(nullptr);
      return;
    }
    Json alternatives = Json::object();
    for (const auto& [id, value] : top) {
      const std::string name = is_utf8(tokens.piece(id))
                                   ? tokens.piece(id)
                                   : fmt::format("bytes:{}", printable(tokens.piece(id)));
      if (!alternatives.contains(name)) alternatives[name] = value;
    }
    if (!alternatives.contains(piece)) alternatives[piece] = *logprob;
    shape["top_logprobs"].push_back(std::move(alternatives));
  }

  void append(Json& shape, const Answer& answer, const TokenLogprobs::Entry& entry,
              size_t call) const {
    const size_t before = request_.echo ? prompt_of(call).text.size() : 0;
    append_token(shape, *answer.tokens, entry.piece, entry.logprob, entry.top,
                 before + entry.begin);
  }

  // One entry for each token of the prompt; the first one has no probability.
  void append_prompt(Json& shape, const Answer& answer, size_t call) const {
    const CompletionRequest::Prompt& prompt = prompt_of(call);
    size_t offset = 0;
    size_t next = 0;
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      const int32_t previous = i == 0 ? -1 : prompt.ids[i - 1];
      const std::string piece = tokenizer_.piece(prompt.ids[i], previous, {.special = true});
      const bool is_known = next < answer.prompt.size() && answer.prompt[next].position == i;
      static const std::vector<std::pair<int32_t, float>> kNone;
      append_token(shape, *answer.tokens, piece,
                   is_known ? std::optional(answer.prompt[next].logprob) : std::nullopt,
                   is_known ? answer.prompt[next].top : kNone, offset);
      if (is_known) ++next;
      offset += tokenizer_.piece(prompt.ids[i], previous).size();
    }
  }

  // The prompt, before an answer's first piece.
  void begin(size_t call) {
    if (std::exchange(answers_[call].begun, true) || !request_.echo) return;
    Json logprobs = request_.logprobs ? shape() : Json();
    if (request_.logprobs) append_prompt(logprobs, answers_[call], call);
    write_chunk(call, prompt_of(call).text, std::move(logprobs), nullptr);
  }

  void write_chunk(size_t index, std::string_view text, Json logprobs, Json finish) {
    Json chunk = head_;
    chunk["choices"] = Json::array({{{"index", index},
                                     {"text", text},
                                     {"logprobs", std::move(logprobs)},
                                     {"finish_reason", std::move(finish)}}});
    reply_->write(sse_event(chunk));
  }

  Json usage() const {
    uint64_t prompts = 0;
    uint64_t tokens = 0;
    for (const CompletionRequest::Prompt& prompt : request_.prompts) prompts += prompt.ids.size();
    for (const Answer& answer : answers_) tokens += answer.finished.generated_tokens;
    return usage_json(prompts, tokens);
  }

  // The calls of a prompt whose answers are given out: the most likely, token by token.
  std::vector<size_t> best_of(size_t prompt) const {
    std::vector<size_t> calls(request_.generated);
    std::iota(calls.begin(), calls.end(), prompt * request_.generated);
    if (request_.generated > request_.choices) {
      const auto score = [this](size_t call) {
        const Answer& answer = answers_[call];
        return answer.logprob_sum / std::max(answer.finished.generated_tokens, 1U);
      };
      std::stable_sort(calls.begin(), calls.end(),
                       [&](size_t a, size_t b) { return score(a) > score(b); });
      calls.resize(request_.choices);
    }
    return calls;
  }

  void send_all() {
    Json response = head_;
    response["choices"] = Json::array();
    for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
      for (const size_t call : best_of(prompt)) {
        const Answer& answer = answers_[call];
        Json logprobs;
        if (request_.logprobs) {
          logprobs = shape();
          if (request_.echo) append_prompt(logprobs, answer, call);
          for (const TokenLogprobs::Entry& entry : answer.entries) {
            append(logprobs, answer, entry, call);
          }
        }
        const std::string text = request_.echo ? prompt_of(call).text + answer.text : answer.text;
        response["choices"].push_back({{"index", response["choices"].size()},
                                       {"text", text},
                                       {"logprobs", std::move(logprobs)},
                                       {"finish_reason", answer.finished.reason}});
      }
    }
    response["usage"] = usage();
    response["timings"] = timings_json(answers_.front().finished);
    reply_->send({.body = dump_json(response)});
  }

  const CompletionRequest request_;
  const Tokenizer& tokenizer_;
  const std::shared_ptr<HttpReply> reply_;
  const Json head_;
  std::vector<Answer> answers_;
};

}  // namespace

std::unique_ptr<AnswerSink> make_completion_sink(CompletionRequest request,
                                                 const Tokenizer& tokenizer,
                                                 std::shared_ptr<HttpReply> reply) {
  return std::make_unique<CompletionSink>(std::move(request), tokenizer, std::move(reply));
}

}  // namespace strata::serve
