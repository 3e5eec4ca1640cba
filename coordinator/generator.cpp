#include "coordinator/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "coordinator/engine/text_session.h"
#include "runtime/base/base_name.h"
#include "runtime/base/float_scan.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/grammar/grammar.h"
#include "runtime/sampling/sampler.h"

namespace strata::coordinator {
namespace {

constexpr size_t kStopStringsMax = 16;

// The most bytes of a text that one token stands for. The file writes a token's text with as many
// bytes or more; what it does not have becomes one token for each byte, or for each character.
// 0: there is no such number, since unknown words are one token each, or white space is swallowed.
size_t longest_token_bytes(const Vocab& vocab) {
  constexpr size_t kCharacterBytesMax = 4;
  if (vocab.kind() == VocabKind::wordpiece) return 0;
  size_t longest = kCharacterBytesMax;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (vocab.strips_left(id) || vocab.strips_right(id)) return 0;
    longest = std::max(longest, vocab.text(id).size());
  }
  return longest;
}

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
  Answer(TextSession session, EngineLoop& engine_loop)
      : text(std::move(session)), engine(engine_loop) {}

  void on_event(const RequestEvent& event) {
    if (const auto* logits = std::get_if<RequestLogits>(&event)) on_logits(*logits);
    if (const auto* token = std::get_if<RequestToken>(&event)) on_token(*token);
    if (const auto* finish = std::get_if<RequestFinish>(&event)) on_finish(*finish);
  }

  // The logits of a position are about the token behind it.
  void on_logits(const RequestLogits& part) {
    const size_t vocab = part.logits.size() / std::max(part.count, 1U);
    for (size_t i = 0; i < part.count; ++i) {
      const size_t position = part.position + i + 1;
      if (position >= prompt.size()) return;
      const std::span<const float> row = std::span(part.logits).subspan(i * vocab, vocab);
      if (!all_finite(row)) continue;  // sampling says so
      PromptLogprob about{.position = static_cast<uint32_t>(position),
                          .logprob = logprob_of(row, prompt[position])};
      if (prompt_top > 0) {
        for (const TokenLogprob& token : top_logprobs(row, prompt_top)) {
          about.top.emplace_back(token.id, token.logprob);
        }
      }
      on_prompt(about);
    }
  }

  void on_token(const RequestToken& token) {
    if (text.stopped()) return;  // under way when the stop string came
    const TimePoint now = clock.now();
    if (generated++ == 0) first_token = now;
    remote::GenerateToken event{.id = token.token,
                                .text = text.push(token.token),
                                .logprob = token.logprob,
                                .top = token.top};
    if (parser) event.deltas = parser->push(event.text);
    listener(std::move(event));
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
    remote::GenerateToken rest{.id = -1, .text = text.flush(), .logprob = 0, .top = {}};
    if (parser) {
      rest.deltas = parser->push(rest.text);
      for (AnswerDelta& delta : parser->finish()) rest.deltas.push_back(std::move(delta));
    }
    by_stop_string = text.stopped();  // what was held back may have completed a stop string
    if (!rest.text.empty() || !rest.deltas.empty()) listener(std::move(rest));
    const TimePoint now = clock.now();
    if (generated == 0) first_token = now;
    const bool has_calls = parser && parser->ends_with_calls();
    const bool by_model = by_stop_string || finish.reason == FinishReason::end_token;
    listener(remote::GenerateFinished{.reason = !by_model   ? finish_reason_name(finish.reason)
                                                : has_calls ? "tool_calls"
                                                            : "stop",
                                      .prompt_tokens = finish.prompt_tokens,
                                      .generated_tokens = generated,
                                      .prefill_ms = milliseconds_between(started, first_token),
                                      .decode_ms = milliseconds_between(first_token, now)});
  }

  TextSession text;
  std::optional<AnswerParser> parser;  // of an answer that is split
  EngineLoop& engine;
  AnswerListener listener;
  std::function<void(const PromptLogprob&)> on_prompt;
  std::vector<int32_t> prompt;  // for it
  int32_t prompt_top = 0;
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
  generator->longest_token_bytes_ = longest_token_bytes(generator->tokenizer_->vocab());
  generator->defaults_ = TRY(recommended_sampling(metadata));
  TRY(validate(generator->defaults_, generator->tokenizer_->vocab().size()));
  auto chat = ChatFormat::of_model(metadata, *generator->tokenizer_);
  if (chat.ok()) {
    generator->chat_ = std::move(chat).value();
    const std::string& warning = generator->chat_->chat_template().warning();
    if (!warning.empty()) log::warn("{}", warning);
  } else {
    generator->no_chat_ = chat.status();
  }
  return generator;
}

// Turning megabytes into tokens takes seconds, and only to find that there are too many.
Status Generator::check_text_size(size_t text_bytes, uint32_t& tokens_min) const {
  const uint32_t context = engine_.context();
  if (context == 0 || longest_token_bytes_ == 0) return ok_status();
  const size_t tokens = text_bytes / longest_token_bytes_;
  if (tokens <= context) return ok_status();
  tokens_min = static_cast<uint32_t>(std::min<size_t>(tokens, UINT32_MAX));
  return invalid_argument(
      fmt::format(
          "the prompt has {} bytes, which make {} tokens at least, and the context holds {}",
          text_bytes, tokens_min, context),
      "shorten the prompt or start with a larger --ctx");
}

Status Generator::set_prompt(const remote::GenerateRequest& request, const GenerateExtras& extras,
                             Translation& result) const {
  if (const auto* chat = std::get_if<remote::ChatPrompt>(&request.prompt)) {
    return set_chat(request, *chat, extras.chat, result);
  }
  if (const auto* ids = std::get_if<remote::TokenPrompt>(&request.prompt)) {
    result.request.prompt = *ids;
  } else {
    const std::string& text = std::get<std::string>(request.prompt);
    TRY(check_text_size(text.size(), result.tokens_min));
    result.request.prompt = tokenizer_->encode(text, {.add_special = true, .single_bos = true});
  }
  return set_grammar(request.grammar, result.request);
}

Status Generator::set_chat(const remote::GenerateRequest& request, const remote::ChatPrompt& chat,
                           const ChatFormat::Extras& extras, Translation& result) const {
  if (chat_ == nullptr) return no_chat_.with_hint("send the prompt as plain text instead (--raw)");
  const auto check_size = [&](size_t text_bytes) {
    return check_text_size(text_bytes, result.tokens_min);
  };
  ChatFormat::Prompt prompt = TRY(chat_->prepare(chat, extras, check_size));
  result.request.prompt = std::move(prompt.ids);
  // What is held to the client's grammar is that text and nothing else.
  const bool has_grammar = request.grammar.kind != GrammarSpec::Kind::none;
  if (prompt.splits_answer && !has_grammar) result.split = std::move(prompt.answer);
  if (prompt.grammar.empty()) return set_grammar(request.grammar, result.request);
  if (has_grammar) {
    return invalid_argument("an answer cannot be held to a grammar and to tools at once",
                            "leave one of them out, or set tool_choice to none");
  }
  return set_grammar({.kind = GrammarSpec::Kind::composed, .text = std::move(prompt.grammar)},
                     result.request);
}

Status Generator::translate(const remote::GenerateRequest& request, const GenerateExtras& extras,
                            Translation& translation) const {
  if (request.stop.size() > kStopStringsMax) {
    return invalid_argument(fmt::format("{} stop strings, at most {} are allowed",
                                        request.stop.size(), kStopStringsMax));
  }
  TRY(StopMatcher::create(request.stop));
  Request& result = translation.request;
  result.sampling = defaults_;
  TRY(set_prompt(request, extras, translation));
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
  sampling.choice = extras.choice;
  set_if(sampling.penalty_last_n, extras.penalty_last_n);
  result.max_new_tokens = request.max_tokens == 0 ? UINT32_MAX : request.max_tokens;
  if (extras.no_answer) result.max_new_tokens = 0;
  result.want_logits = extras.on_prompt != nullptr;
  if (!request.ignore_end) {
    const auto ends = tokenizer_->vocab().end_of_generation();
    result.end_ids.assign(ends.begin(), ends.end());
  }
  return ok_status();
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
                           RequestId reserved, const GenerateExtras& extras) {
  Translation translated;
  if (const Status status = translate(request, extras, translated); !status.ok()) {
    // As for a prompt that the engine finds too long: clients are told its length first.
    if (translated.tokens_min > 0) {
      listener(remote::GenerateStarted{
          .prompt_tokens = translated.tokens_min, .seed = 0, .model = model_name_});
    }
    listener(status);
    return 0;
  }
  Request engine_request = std::move(translated.request);
  const int32_t last = engine_request.prompt.empty() ? -1 : engine_request.prompt.back();
  const DecodeOptions decoding = {.shown = translated.split ? chat_->shown_tokens()
                                                            : std::span<const int32_t>()};
  const auto answer =
      std::make_shared<Answer>(TextSession(*tokenizer_, last, request.stop, decoding), engine_);
  if (translated.split) answer->parser.emplace(chat_->syntax(), *std::move(translated.split));
  answer->started = answer->clock.now();
  const Duration timeout = request.timeout_ms > 0
                               ? Duration(std::chrono::milliseconds(request.timeout_ms))
                               : request_timeout_;
  if (timeout > Duration::zero()) engine_request.deadline = answer->started + timeout;
  if (extras.on_prompt) {
    answer->on_prompt = extras.on_prompt;
    answer->prompt = engine_request.prompt;
    answer->prompt_top = extras.prompt_top;
  }
  answer->listener = std::move(listener);
  answer->listener(
      remote::GenerateStarted{.prompt_tokens = static_cast<uint32_t>(engine_request.prompt.size()),
                              .seed = engine_request.sampling.seed,
                              .model = model_name_,
                              .is_split = answer->parser.has_value()});
  return engine_.submit(
      std::move(engine_request), [answer](const RequestEvent& event) { answer->on_event(event); },
      &answer->id, reserved);
}

void Generator::cancel(RequestId id) {
  if (id != 0) engine_.cancel(id);
}

}  // namespace strata::coordinator
