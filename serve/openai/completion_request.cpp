#include "serve/openai/completion_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"
#include "serve/openai/chat_request.h"

namespace strata::serve {
namespace {

constexpr size_t kPromptsMax = 512;
constexpr int64_t kLogprobsMax = 100;
constexpr uint32_t kDefaultTokens = 16;  // as OpenAI has it

Status add_text(const Tokenizer& tokenizer, const std::string& text, CompletionRequest& result) {
  result.prompts.push_back(
      {.ids = tokenizer.encode(text, {.add_special = true, .single_bos = true}), .text = text});
  return ok_status();
}

Status add_ids(const Fields& fields, const Tokenizer& tokenizer, const Json& list,
               CompletionRequest& result) {
  std::vector<int32_t> ids = TRY(read_token_ids(fields, "prompt", list, tokenizer.vocab()));
  if (ids.empty()) return fields.wrong("prompt", "has an empty list of tokens");
  std::string text = tokenizer.decode(ids);
  result.prompts.push_back({.ids = std::move(ids), .text = std::move(text)});
  return ok_status();
}

Status read_prompts(const Fields& fields, const Tokenizer& tokenizer, CompletionRequest& result) {
  constexpr std::string_view kWanted =
      "a string, a list of strings, a list of token ids or a list of such lists";
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.wrong("prompt", "is missing");
  if (prompt->is_string()) return add_text(tokenizer, prompt->get<std::string>(), result);
  if (!prompt->is_array() || prompt->empty()) return fields.wrong_type("prompt", kWanted);
  if (prompt->front().is_number()) return add_ids(fields, tokenizer, *prompt, result);
  if (prompt->size() > kPromptsMax) {
    return fields.wrong("prompt", fmt::format("has {} prompts, at most {} are allowed",
                                              prompt->size(), kPromptsMax));
  }
  for (const Json& entry : *prompt) {
    if (entry.is_string()) {
      TRY(add_text(tokenizer, entry.get<std::string>(), result));
    } else if (entry.is_array()) {
      TRY(add_ids(fields, tokenizer, entry, result));
    } else {
      return fields.wrong_type("prompt", kWanted);
    }
  }
  return ok_status();
}

Status read_choices(const Fields& fields, CompletionRequest& result) {
  result.choices = static_cast<uint32_t>(TRY(fields.integer("n", 1, kChoicesMax)).value_or(1));
  result.generated = static_cast<uint32_t>(
      TRY(fields.integer("best_of", result.choices, kChoicesMax)).value_or(result.choices));
  if (result.generated > result.choices && result.stream) {
    return fields.wrong("best_of", "cannot be streamed",
                        "the best answers are known only when all are there");
  }
  const uint64_t all = uint64_t{result.generated} * result.prompts.size();
  if (all > kPromptsMax) {
    return fields.wrong("n", fmt::format("makes {} answers of {} prompts, at most {} are allowed",
                                         all, result.prompts.size(), kPromptsMax));
  }
  return ok_status();
}

// How the tokens' probabilities are asked for.
void ask_logprobs(const CompletionRequest& result, int32_t vocab_size, AnswerCall& call) {
  remote::GenerateRequest& request = call.request;
  request.logprobs = result.logprobs.has_value() || result.generated > result.choices;
  request.top_logprobs = std::min(result.logprobs.value_or(0), vocab_size);
  if (!result.echo || !result.logprobs) return;
  call.extras.prompt_top = request.top_logprobs;
  call.extras.on_prompt = [](const coordinator::PromptLogprob&) {};
  // Whoever measures a prompt this way counts on one token behind it, also if it is the end.
  if (request.max_tokens == 1) request.ignore_end = true;
}

}  // namespace

Result<std::vector<int32_t>> read_token_ids(const Fields& fields, std::string_view name,
                                            const Json& list, const Vocab& vocab) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& entry = list[i];
    const bool is_id =
        entry.is_number_integer() && entry.get<double>() >= 0 && entry.get<double>() < vocab.size();
    if (!is_id) {
      return fields.wrong(name, fmt::format("has {} at place {}, must be a token id from 0 to {}",
                                            printable(dump_json(entry), 40), i, vocab.size() - 1));
    }
    ids.push_back(entry.get<int32_t>());
  }
  return ids;
}

Result<CompletionRequest> read_completion_request(const Json& body, const ModelService& service,
                                                  const Tokenizer& tokenizer, std::string& param) {
  const Fields fields(body, param);
  CompletionRequest result;
  result.model = TRY(read_model_name(fields, service));
  if (const auto suffix = TRY(fields.text("suffix")); suffix && !suffix->empty()) {
    return fields.unsupported("suffix");
  }
  AnswerCall call;
  call.request.max_tokens = kDefaultTokens;
  TRY(read_common_fields(fields, 0, tokenizer, call));
  TRY(read_stream(fields, result.stream, result.include_usage));
  result.echo = TRY(fields.boolean("echo")).value_or(false);
  if (const auto top = TRY(fields.integer("logprobs", 0, kLogprobsMax))) {
    result.logprobs = static_cast<int32_t>(*top);
  }
  TRY(read_prompts(fields, tokenizer, result));
  TRY(read_choices(fields, result));
  ask_logprobs(result, tokenizer.vocab().size(), call);
  for (const CompletionRequest::Prompt& prompt : result.prompts) {
    call.request.prompt = prompt.ids;
    for (AnswerCall& each : calls_for(call, result.generated)) {
      result.calls.push_back(std::move(each));
    }
  }
  return result;
}

}  // namespace strata::serve
