#include "coordinator/generator.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "coordinator/engine/text_session.h"
#include "runtime/base/base_name.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/grammar/grammar.h"

namespace strata::coordinator {
namespace {

constexpr size_t kStopStringsMax = 16;

double milliseconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

template <typename T, typename U>
void set_if(T& target, const std::optional<U>& value) {
  if (value) target = *value;
}

}  // namespace

Result<SamplingParams> recommended_sampling(const Metadata& metadata) {
  SamplingParams params;
  params.temperature = TRY(metadata.get_or<float>("general.sampling.temp", params.temperature));
  params.top_k = TRY(metadata.get_or<int32_t>("general.sampling.top_k", params.top_k));
  params.top_p = TRY(metadata.get_or<float>("general.sampling.top_p", params.top_p));
  params.min_p = TRY(metadata.get_or<float>("general.sampling.min_p", params.min_p));
  params.repetition_penalty =
      TRY(metadata.get_or<float>("general.sampling.penalty_repeat", params.repetition_penalty));
  return params;
}

// One answer under way. Used by the engine's thread only, once started.
struct Generator::Answer {
  Answer(const Tokenizer& tokenizer, int32_t last_prompt_token, std::vector<std::string> stop,
         EngineLoop& engine_loop)
      : text(tokenizer, last_prompt_token, std::move(stop)), engine(engine_loop) {}

  void on_event(const RequestEvent& event) {
    if (const auto* token = std::get_if<RequestToken>(&event)) on_token(*token);
    if (const auto* finish = std::get_if<RequestFinish>(&event)) on_finish(*finish);
  }

  void on_token(const RequestToken& token) {
    if (text.stopped()) return;  // under way when the stop string came
    const TimePoint now = clock.now();
    if (generated++ == 0) first_token = now;
    std::string piece = text.push(token.token);
    listener(remote::GenerateToken{
        .id = token.token, .text = std::move(piece), .logprob = token.logprob, .top = token.top});
    if (text.stopped()) engine.cancel(id.load());
  }

  void on_finish(const RequestFinish& finish) {
    bool by_stop_string = text.stopped();
    if (!by_stop_string && finish.reason == FinishReason::error) {
      listener(finish.status);
      return;
    }
    if (!by_stop_string && finish.reason == FinishReason::cancelled) {
      listener(cancelled("the answer was cancelled"));
      return;
    }
    if (std::string rest = text.flush(); !rest.empty()) {
      listener(remote::GenerateToken{.id = -1, .text = std::move(rest), .logprob = 0, .top = {}});
    }
    by_stop_string = text.stopped();  // what was held back may have completed a stop string
    const TimePoint now = clock.now();
    if (generated == 0) first_token = now;
    listener(remote::GenerateFinished{
        .reason = by_stop_string ? "stop" : finish_reason_name(finish.reason),
        .prompt_tokens = finish.prompt_tokens,
        .generated_tokens = generated,
        .prefill_ms = milliseconds_between(started, first_token),
        .decode_ms = milliseconds_between(first_token, now)});
  }

  TextSession text;
  EngineLoop& engine;
  AnswerListener listener;
  std::atomic<RequestId> id = 0;
  SystemClock clock;
  TimePoint started;
  TimePoint first_token;
  uint32_t generated = 0;
};

Generator::Generator(std::shared_ptr<const GgufFile> file, EngineLoop& engine,
                     Duration request_timeout)
    : file_(std::move(file)), engine_(engine), request_timeout_(request_timeout) {
  model_name_ = base_name(file_->path());
}

Generator::~Generator() = default;

Result<std::unique_ptr<Generator>> Generator::create(std::shared_ptr<const GgufFile> file,
                                                     EngineLoop& engine, Duration request_timeout) {
  std::unique_ptr<Generator> generator(new Generator(std::move(file), engine, request_timeout));
  const Metadata& metadata = generator->file_->metadata();
  generator->tokenizer_ = TRY(make_tokenizer(metadata));
  generator->defaults_ = TRY(recommended_sampling(metadata));
  TRY(validate(generator->defaults_, generator->tokenizer_->vocab().size()));
  auto chat = ChatTemplate::of_model(metadata, generator->tokenizer_->vocab());
  if (chat.ok()) {
    generator->chat_template_ = std::move(chat).value();
    const std::string& warning = generator->chat_template_->warning();
    if (!warning.empty()) log::warn("{}", warning);
  } else {
    generator->no_chat_template_ = chat.status();
  }
  return generator;
}

Result<std::vector<int32_t>> Generator::prompt_ids(const remote::GenerateRequest& request) const {
  if (const auto* ids = std::get_if<remote::TokenPrompt>(&request.prompt)) return *ids;
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    return tokenizer_->encode(*text, {.add_special = true, .single_bos = true});
  }
  if (chat_template_ == nullptr) {
    return no_chat_template_.with_hint("send the prompt as plain text instead (--raw)");
  }
  std::vector<ChatMessage> messages;
  for (const remote::ChatMessage& message : std::get<remote::ChatPrompt>(request.prompt)) {
    messages.push_back({.role = message.role, .content = message.content});
  }
  // An empty list is refused by the template, with the same sentence for all callers.
  const ChatInput input = {.messages = messages_json(messages), .now = local_now()};
  const jinja::MarkedText text = TRY(chat_template_->render(input));
  return encode_chat(*tokenizer_, text);
}

Result<Request> Generator::translate(const remote::GenerateRequest& request) const {
  if (request.stop.size() > kStopStringsMax) {
    return invalid_argument(fmt::format("{} stop strings, at most {} are allowed",
                                        request.stop.size(), kStopStringsMax));
  }
  TRY(StopMatcher::create(request.stop));
  Request result;
  result.prompt = TRY(prompt_ids(request));
  result.sampling = defaults_;
  SamplingParams& sampling = result.sampling;
  set_if(sampling.temperature, request.temperature);
  set_if(sampling.top_k, request.top_k);
  set_if(sampling.top_p, request.top_p);
  set_if(sampling.min_p, request.min_p);
  set_if(sampling.repetition_penalty, request.repetition_penalty);
  set_if(sampling.frequency_penalty, request.frequency_penalty);
  set_if(sampling.presence_penalty, request.presence_penalty);
  sampling.logit_bias = request.logit_bias;
  sampling.logprobs = request.logprobs;
  sampling.top_logprobs = request.top_logprobs;
  sampling.seed = request.seed ? *request.seed : random_u64();
  TRY(set_grammar(request.grammar, result));
  result.max_new_tokens = request.max_tokens == 0 ? UINT32_MAX : request.max_tokens;
  if (!request.ignore_end) {
    const auto ends = tokenizer_->vocab().end_of_generation();
    result.end_ids.assign(ends.begin(), ends.end());
  }
  return result;
}

// Compiled here too, so that a grammar that is none is refused before anything runs.
Status Generator::set_grammar(const GrammarSpec& grammar, Request& result) const {
  if (grammar.kind == GrammarSpec::Kind::none) return ok_status();
  TRY(grammar::compile_grammar(grammar, grammar::Strictness::generation));
  result.sampling.grammar = grammar;
  // The space that a vocabulary puts before a text, and takes off its first token.
  const int32_t last = result.prompt.empty() ? -1 : result.prompt.back();
  const Vocab& vocab = tokenizer_->vocab();
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (vocab.is_control(id) || !tokenizer_->piece(id, id).starts_with(' ')) continue;
    result.sampling.grammar.drops_first_space =
        tokenizer_->piece(id, last) != tokenizer_->piece(id, id);
    break;
  }
  return ok_status();
}

RequestId Generator::start(const remote::GenerateRequest& request, AnswerListener listener,
                           RequestId reserved) {
  Result<Request> translated = translate(request);
  if (!translated.ok()) {
    listener(translated.status());
    return 0;
  }
  Request engine_request = std::move(translated).value();
  const int32_t last = engine_request.prompt.empty() ? -1 : engine_request.prompt.back();
  const auto answer = std::make_shared<Answer>(*tokenizer_, last, request.stop, engine_);
  answer->started = answer->clock.now();
  const Duration timeout = request.timeout_ms > 0
                               ? Duration(std::chrono::milliseconds(request.timeout_ms))
                               : request_timeout_;
  if (timeout > Duration::zero()) engine_request.deadline = answer->started + timeout;
  answer->listener = std::move(listener);
  answer->listener(
      remote::GenerateStarted{.prompt_tokens = static_cast<uint32_t>(engine_request.prompt.size()),
                              .seed = engine_request.sampling.seed,
                              .model = model_name_});
  return engine_.submit(
      std::move(engine_request), [answer](const RequestEvent& event) { answer->on_event(event); },
      &answer->id, reserved);
}

void Generator::cancel(RequestId id) {
  if (id != 0) engine_.cancel(id);
}

}  // namespace strata::coordinator
