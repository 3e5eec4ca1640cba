#include "serve/openai/chat_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"
#include "runtime/sampling/sampling_params.h"
#include "serve/openai/image_address.h"

namespace strata::serve {
namespace {

constexpr int64_t kChatTopLogprobsMax = 20;
constexpr size_t kMessagesMax = 10'000;

Status check_part(const Json& part, size_t message, size_t index) {
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) return ok_status();
  const std::string type = part["type"];
  const std::string where = fmt::format("messages[{}].content[{}]", message, index);
  if (type == "image_url") {
    const Json image = part.value("image_url", Json());
    const Json address = image.is_object() ? image.value("url", Json()) : image;
    if (!address.is_string()) return invalid_argument(where + ".image_url has no url");
    TRY(check_image_address(address.get<std::string>()).with_context(where + ".image_url"));
    return unimplemented(where + ": images are not supported yet", "send text parts only");
  }
  if (type == "input_audio" || type == "file") {
    return unimplemented(fmt::format("{}: parts of type {} are not supported yet", where, type),
                         "send text parts only");
  }
  return ok_status();
}

Status check_messages(const Fields& fields, const Json& messages) {
  if (messages.empty()) {
    return fields.wrong("messages", "is empty, a conversation needs at least one");
  }
  if (messages.size() > kMessagesMax) {
    return fields.wrong("messages", fmt::format("has {} messages, at most {} are supported",
                                                messages.size(), kMessagesMax));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object() || !messages[i].contains("content")) continue;
    const Json& content = messages[i]["content"];
    if (!content.is_array()) continue;
    for (size_t part = 0; part < content.size(); ++part) {
      TRY(check_part(content[part], i, part));
    }
  }
  return ok_status();
}

// Variables of the template; what it gets of the request itself is not the client's to set.
Status read_template_variables(const Fields& fields, AnswerCall& call) {
  Json variables = Json::object();
  if (const auto effort = TRY(fields.text("reasoning_effort"))) {
    variables["reasoning_effort"] = *effort;
    if (*effort == "none") variables["enable_thinking"] = false;
  }
  TRY(fields.only("thinking_budget_tokens", {-1}));
  if (const Json* given = TRY(fields.object("chat_template_kwargs"))) {
    for (const auto& [name, value] : given->items()) {
      if (value.is_structured()) {
        return fields.wrong(
            "chat_template_kwargs",
            fmt::format("has '{}', which is no text, number, true or false", printable(name)));
      }
      for (const std::string_view own :
           {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
        if (name == own) {
          return fields.wrong("chat_template_kwargs",
                              fmt::format("sets '{}', which is the request's own", name));
        }
      }
      variables[name] = value;
    }
  }
  if (!variables.empty()) call.extras.chat.variables = dump_json(variables);
  return ok_status();
}

}  // namespace

Result<std::string> read_model_name(const Fields& fields, const ModelService& service) {
  const std::string name = TRY(fields.text("model")).value_or("");
  const bool is_path = name.find("..") != std::string::npos || name.starts_with('/') ||
                       name.find('\\') != std::string::npos || has_control_character(name);
  if (is_path && name != service.name()) {
    fields.param() = "model";
    return not_found(fmt::format("there is no model '{}'", printable(name)),
                     "GET /v1/models lists what there is");
  }
  return name.empty() ? service.name() : name;
}

Status read_stream(const Fields& fields, bool& stream, bool& include_usage) {
  stream = TRY(fields.boolean("stream")).value_or(false);
  const Json* options = TRY(fields.object("stream_options"));
  if (options == nullptr) return ok_status();
  if (!stream) return fields.wrong("stream_options", "is only allowed together with stream");
  const Fields inner(*options, fields.param(), "stream_options.");
  include_usage = TRY(inner.boolean("include_usage")).value_or(false);
  return ok_status();
}

std::vector<AnswerCall> calls_for(const AnswerCall& call, uint32_t choices) {
  std::vector<AnswerCall> calls(choices, call);
  for (uint32_t i = 0; i < choices; ++i) calls[i].extras.choice = i;
  return calls;
}

Status read_conversation(const Fields& fields, AnswerCall& call) {
  const Json* messages = TRY(fields.array("messages"));
  if (messages == nullptr) return fields.wrong("messages", "is missing");
  TRY(check_messages(fields, *messages));
  remote::ChatPrompt chat{.messages = dump_json(*messages)};
  if (const Json* tools = TRY(fields.array("tools")); tools != nullptr && !tools->empty()) {
    chat.tools = dump_json(*tools);
  }
  if (const Json* choice = fields.find("tool_choice")) {
    if (!choice->is_string() && !choice->is_object()) {
      return fields.wrong_type("tool_choice", "\"none\", \"auto\", \"required\" or an object");
    }
    chat.tool_choice = dump_json(*choice);
  }
  call.request.prompt = std::move(chat);
  if (fields.has("chat_template")) {
    return fields.wrong("chat_template", "cannot be set by a request",
                        "the model's own is used; chat_template_kwargs gives it values");
  }
  for (const std::string_view name : {"functions", "function_call"}) {
    if (fields.has(name)) return fields.unsupported(name, "use tools and tool_choice");
  }
  TRY(read_template_variables(fields, call));
  coordinator::ChatFormat::Extras& extras = call.extras.chat;
  extras.continue_last = TRY(fields.boolean("continue_final_message")).value_or(true);
  extras.add_generation_prompt = TRY(fields.boolean("add_generation_prompt")).value_or(true);
  const auto format =
      TRY(fields.word("reasoning_format", {"auto", "none", "deepseek", "deepseek-legacy"}));
  extras.split_answer = format.value_or("auto") != "none";
  return ok_status();
}

Result<ChatRequest> read_chat_request(const Json& body, const ModelService& service,
                                      const Tokenizer& tokenizer, std::string& param) {
  const Fields fields(body, param);
  ChatRequest result;
  result.model = TRY(read_model_name(fields, service));
  TRY(read_conversation(fields, result.call));
  TRY(read_common_fields(fields, 1, tokenizer, result.call));
  TRY(read_stream(fields, result.stream, result.include_usage));
  result.choices = static_cast<uint32_t>(TRY(fields.integer("n", 1, kChoicesMax)).value_or(1));
  result.parallel_calls = TRY(fields.boolean("parallel_tool_calls")).value_or(true);
  result.logprobs = TRY(fields.boolean("logprobs")).value_or(false);
  const auto top = TRY(fields.integer("top_logprobs", 0, kChatTopLogprobsMax));
  if (top.value_or(0) > 0 && !result.logprobs) {
    return fields.wrong("top_logprobs", "needs logprobs to be true");
  }
  result.call.request.logprobs = result.logprobs;
  result.call.request.top_logprobs =
      static_cast<int32_t>(std::min<int64_t>(top.value_or(0), tokenizer.vocab().size()));
  if (const Json* modalities = TRY(fields.array("modalities"))) {
    if (std::any_of(modalities->begin(), modalities->end(),
                    [](const Json& kind) { return kind != "text"; })) {
      return fields.unsupported("modalities", "only \"text\" is");
    }
  }
  if (fields.has("audio")) return fields.unsupported("audio");
  return result;
}

}  // namespace strata::serve
