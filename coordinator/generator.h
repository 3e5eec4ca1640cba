// Generator: from a client's request (text, chat or ids) to the events of its answer.
//
// The one way into the engine for all who speak text: `strata run` in one process, the gRPC service
// and, later, HTTP. Applies the model's chat template, tokenizes, fills in defaults, and turns
// tokens back into text up to the first stop string.
//
// Threads: any. The engine loop must outlive it; events of requests may still come until the loop
// has ended.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backends/remote/client_records.h"
#include "coordinator/chat_format.h"
#include "coordinator/engine/engine_loop.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/text/tokenizer.h"

namespace strata::coordinator {

// An event, or how the answer failed. GenerateFinished or a Status comes last, once.
using AnswerEvent =
    std::variant<remote::GenerateStarted, remote::GenerateToken, remote::GenerateFinished, Status>;
using AnswerListener = std::function<void(AnswerEvent)>;

// How likely the model found a token of the prompt behind those before it.
struct PromptLogprob {
  uint32_t position = 0;  // of the token; the first one has none
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top = {};  // the most likely in its place, best first
};

// What callers in this process may ask for beside a client's request.
struct GenerateExtras {
  uint32_t choice = 0;  // of several answers to one request; each draws its own random numbers
  std::optional<int32_t> penalty_last_n;
  bool no_answer = false;  // computes the prompt, and ends with "length"
  ChatFormat::Extras chat;
  // Told of each token of the prompt but the first, in rising order, before the answer begins. On
  // the engine's thread; must not block. Empty: not computed.
  std::function<void(const PromptLogprob&)> on_prompt;
  int32_t prompt_top = 0;  // PromptLogprob::top
};

class Generator {
 public:
  // `request_timeout`: for answers whose request gives none; 0: no limit. Errors: those of
  // make_tokenizer(). A model without a chat template is fine until somebody wants to chat.
  static Result<std::unique_ptr<Generator>> create(std::shared_ptr<const GgufFile> file,
                                                   EngineLoop& engine,
                                                   Duration request_timeout = {});
  ~Generator();

  // `listener` runs on the engine's thread, or on the caller's for what is refused at once; it must
  // not block. The id is for cancel(): `reserved` if that is not 0 (EngineLoop::reserve_id()), else
  // a new one; 0 if the request was refused.
  // Errors, to the listener: INVALID_ARGUMENT for an empty prompt, a wrong role, tools that are
  // none or stand beside a grammar, sampling numbers out of range, a grammar that does not compile,
  // more than 16 stop strings or an empty one; UNIMPLEMENTED for chat with a model that has no
  // template; those of Engine::submit.
  RequestId start(const remote::GenerateRequest& request, AnswerListener listener,
                  RequestId reserved = 0, const GenerateExtras& extras = {});
  // The listener gets CANCELLED, unless the answer ended before.
  void cancel(RequestId id);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Null if the model has none.
  const ChatFormat* chat_format() const { return chat_.get(); }
  const std::string& model_name() const { return model_name_; }

 private:
  struct Answer;
  // A request for the engine, and how its answer is read.
  struct Translation {
    Request request;
    std::optional<AnswerOptions> split;
    uint32_t tokens_min = 0;  // of a text that was found too long before it became tokens
  };

  Generator(std::shared_ptr<const GgufFile> file, EngineLoop& engine, Duration request_timeout);
  Status translate(const remote::GenerateRequest& request, const GenerateExtras& extras,
                   Translation& result) const;
  // INVALID_ARGUMENT for a text that is too long for the context whatever its tokens are;
  // `tokens_min` is set then.
  Status check_text_size(size_t text_bytes, uint32_t& tokens_min) const;
  Status set_prompt(const remote::GenerateRequest& request, const GenerateExtras& extras,
                    Translation& result) const;
  Status set_chat(const remote::GenerateRequest& request, const remote::ChatPrompt& chat,
                  const ChatFormat::Extras& extras, Translation& result) const;
  Status set_grammar(const GrammarSpec& grammar, Request& result) const;

  std::shared_ptr<const GgufFile> file_;
  EngineLoop& engine_;
  const Duration request_timeout_;
  std::string model_name_;
  std::unique_ptr<Tokenizer> tokenizer_;
  size_t longest_token_bytes_ = 0;  // of a text; 0: a token may stand for any number of bytes
  std::unique_ptr<ChatFormat> chat_;
  Status no_chat_;
  SamplingParams defaults_;
};

// What the model's metadata recommends (general.sampling.*), else temperature 0.7, top-p 0.95.
// Errors: INVALID_ARGUMENT for values of a wrong type or out of range.
Result<SamplingParams> recommended_sampling(const Metadata& metadata);

}  // namespace strata::coordinator
