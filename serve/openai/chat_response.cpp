#include "serve/openai/chat_response.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "runtime/base/json_text.h"
#include "runtime/base/random.h"
#include "serve/openai/logprobs.h"

namespace strata::serve {
namespace {

struct Call {
  std::string id;
  std::string name;
  std::string arguments;
};

struct Choice {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  Json logprobs = Json::array();
  std::optional<TokenLogprobs> tokens;
  std::string finish;
  bool is_split = false;
  remote::GenerateFinished finished;
};

class ChatSink final : public AnswerSink {
 public:
  ChatSink(const ChatRequest& request, const Tokenizer& tokenizer, std::shared_ptr<HttpReply> reply)
      : reply_(std::move(reply)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(request.logprobs),
        parallel_calls_(request.parallel_calls),
        head_({{"id", "chatcmpl-" + random_hex(12)},
               {"object", request.stream ? "chat.completion.chunk" : "chat.completion"},
               {"created", unix_time()},
               {"model", request.model},
               {"system_fingerprint", "strata"}}),
        choices_(request.choices) {
    for (Choice& choice : choices_) {
      if (logprobs_) choice.tokens.emplace(tokenizer, -1);
    }
    if (stream_) reply_->open_stream(kEventStreamType);
  }

  void on_started(size_t call, const remote::GenerateStarted& started) override {
    choices_[call].is_split = started.is_split;
  }

  void on_token(size_t call, remote::GenerateToken token) override {
    Choice& choice = choices_[call];
    Json logprobs = Json::array();
    if (choice.tokens) {
      for (const TokenLogprobs::Entry& entry : choice.tokens->push(token)) {
        logprobs.push_back(chat_logprob(*choice.tokens, entry));
      }
    }
    if (!choice.is_split && !token.text.empty()) {
      token.deltas = {{.kind = AnswerDelta::Kind::content, .text = std::move(token.text)}};
    }
    std::vector<Json> deltas;
    for (AnswerDelta& delta : token.deltas) add(choice, std::move(delta), deltas);
    if (!stream_) {
      for (Json& entry : logprobs) choice.logprobs.push_back(std::move(entry));
      return;
    }
    if (deltas.empty() && !logprobs.empty()) deltas.push_back({{"content", ""}});
    for (Json& delta : deltas) {
      write_chunk(call, std::move(delta), nullptr, std::exchange(logprobs, Json::array()));
    }
  }

  void on_finished(size_t call, const remote::GenerateFinished& finished) override {
    Choice& choice = choices_[call];
    choice.finished = finished;
    choice.finish = finished.reason;
    if (stream_) write_chunk(call, Json::object(), choice.finish, Json::array(), &finished);
  }

  void on_done() override {
    if (!stream_) return send_all();
    if (include_usage_) {
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
  // Into the choice, and into what is streamed of it.
  void add(Choice& choice, AnswerDelta delta, std::vector<Json>& deltas) {
    using Kind = AnswerDelta::Kind;
    const auto index = static_cast<size_t>(delta.index);
    if (delta.kind == Kind::content || delta.kind == Kind::reasoning) {
      if (delta.text.empty()) return;
      const bool is_content = delta.kind == Kind::content;
      (is_content ? choice.content : choice.reasoning) += delta.text;
      deltas.push_back({{is_content ? "content" : "reasoning_content", std::move(delta.text)}});
      return;
    }
    if (!parallel_calls_ && index > 0) return;
    Json function = Json::object();
    Json call = {{"index", index}};
    if (delta.kind == Kind::call) {
      choice.calls.resize(std::max(choice.calls.size(), index + 1));
      Call& made = choice.calls[index];
      made.id = "call_" + random_hex(12);
      made.name = delta.text;
      call["id"] = made.id;
      call["type"] = "function";
      call["function"] = {{"name", std::move(delta.text)}, {"arguments", ""}};
    } else {
      if (index >= choice.calls.size()) return;
      choice.calls[index].arguments += delta.text;
      call["function"] = {{"arguments", std::move(delta.text)}};
    }
    deltas.push_back({{"tool_calls", Json::array({std::move(call)})}});
  }

  void write_chunk(size_t index, Json delta, Json finish, Json logprobs,
                   const remote::GenerateFinished* finished = nullptr) {
    if (begun_.size() < choices_.size()) begun_.resize(choices_.size(), false);
    if (!begun_[index]) {
      begun_[index] = true;
      write_chunk(index, {{"role", "assistant"}, {"content", ""}}, nullptr, Json::array());
    }
    Json choice = {{"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}};
    if (!logprobs.empty()) choice["logprobs"] = {{"content", std::move(logprobs)}};
    choice["finish_reason"] = std::move(finish);
    Json chunk = head_;
    chunk["choices"] = Json::array({std::move(choice)});
    if (finished != nullptr) chunk["timings"] = timings_json(*finished);
    reply_->write(sse_event(chunk));
  }

  Json usage() const {
    uint64_t answer = 0;
    for (const Choice& choice : choices_) answer += choice.finished.generated_tokens;
    return usage_json(choices_.front().finished.prompt_tokens, answer);
  }

  void send_all() {
    Json response = head_;
    response["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& made = choices_[i];
      Json message = {{"role", "assistant"}, {"content", made.content}, {"refusal", nullptr}};
      if (made.content.empty() && !made.calls.empty()) message["content"] = nullptr;
      if (!made.reasoning.empty()) message["reasoning_content"] = made.reasoning;
      for (const Call& call : made.calls) {
        message["tool_calls"].push_back(
            {{"id", call.id},
             {"type", "function"},
             {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      Json choice = {{"index", i}, {"message", std::move(message)}, {"logprobs", nullptr}};
      if (logprobs_) choice["logprobs"] = {{"content", std::move(made.logprobs)}};
      choice["finish_reason"] = made.finish;
      response["choices"].push_back(std::move(choice));
    }
    response["usage"] = usage();
    response["timings"] = timings_json(choices_.front().finished);
    reply_->send({.body = dump_json(response)});
  }

  const std::shared_ptr<HttpReply> reply_;
  const bool stream_;
  const bool include_usage_;
  const bool logprobs_;
  const bool parallel_calls_;
  const Json head_;
  std::vector<Choice> choices_;
  std::vector<bool> begun_;
};

}  // namespace

std::unique_ptr<AnswerSink> make_chat_sink(const ChatRequest& request, const Tokenizer& tokenizer,
                                           std::shared_ptr<HttpReply> reply) {
  return std::make_unique<ChatSink>(request, tokenizer, std::move(reply));
}

Json usage_json(uint64_t prompt_tokens, uint64_t answer_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", answer_tokens},
          {"total_tokens", prompt_tokens + answer_tokens},
          {"prompt_tokens_details", {{"cached_tokens", 0}}}};
}

Json timings_json(const remote::GenerateFinished& finished) {
  const auto rate = [](uint32_t tokens, double ms) { return ms > 0 ? tokens * 1000.0 / ms : 0.0; };
  const auto each = [](uint32_t tokens, double ms) { return tokens > 0 ? ms / tokens : 0.0; };
  return {{"cache_n", 0},
          {"prompt_n", finished.prompt_tokens},
          {"prompt_ms", finished.prefill_ms},
          {"prompt_per_token_ms", each(finished.prompt_tokens, finished.prefill_ms)},
          {"prompt_per_second", rate(finished.prompt_tokens, finished.prefill_ms)},
          {"predicted_n", finished.generated_tokens},
          {"predicted_ms", finished.decode_ms},
          {"predicted_per_token_ms", each(finished.generated_tokens, finished.decode_ms)},
          {"predicted_per_second", rate(finished.generated_tokens, finished.decode_ms)}};
}

std::string sse_event(const Json& data) { return "data: " + dump_json(data) + "\n\n"; }

void send_failure(HttpReply& reply, const Status& status, const ErrorContext& context) {
  const HttpResponse response = api_error(status, context);
  if (reply.send(response)) return;
  reply.write("data: " + response.body + "\n\n");
  reply.end_stream();
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace strata::serve
