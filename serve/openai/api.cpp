#include "serve/openai/api.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"
#include "serve/openai/chat_response.h"
#include "serve/openai/completion_response.h"

namespace strata::serve {
namespace {

void send_json(HttpReply& reply, const Json& body) { reply.send({.body = dump_json(body)}); }

Json model_json(const ModelService& service) {
  Json model = {{"id", service.name()},
                {"object", "model"},
                {"created", service.created()},
                {"owned_by", "strata"}};
  if (const ModelService::Open* open = service.get()) {
    const ModelFacts& facts = open->facts;
    model["meta"] = {{"architecture", facts.architecture},
                     {"n_vocab", facts.vocab_size},
                     {"n_ctx", facts.context},
                     {"n_ctx_train", facts.trained_context},
                     {"n_embd", facts.embedding_length},
                     {"n_params", facts.parameters},
                     {"size", facts.file_bytes}};
    Json capabilities = Json::array({"completion"});
    if (open->generator.chat_format() != nullptr) {
      capabilities.push_back("chat");
      capabilities.push_back("tools");
    }
    model["capabilities"] = std::move(capabilities);
  }
  return model;
}

void add_model_routes(Router& router, ModelService& service) {
  router.add("GET", "/v1/models", [&service](const auto&, const auto& reply) {
    send_json(*reply, {{"object", "list"}, {"data", Json::array({model_json(service)})}});
  });
  router.add("GET", "/v1/models/", [&service](const auto& request, const auto& reply) {
    const std::string name = request->path.substr(request->path.rfind('/') + 1);
    if (name != service.name()) {
      reply->send(error_response(404, fmt::format("there is no model '{}'", printable(name)),
                                 "model_not_found", "model"));
      return;
    }
    send_json(*reply, model_json(service));
  });
}

Status tokenize(const Json& body, const Tokenizer& tokenizer, HttpReply& reply,
                std::string& param) {
  const Fields fields(body, param);
  const std::string content = TRY(fields.text("content")).value_or("");
  const bool parse_special = TRY(fields.boolean("parse_special")).value_or(true);
  const bool add_special = TRY(fields.boolean("add_special")).value_or(false);
  const bool with_pieces = TRY(fields.boolean("with_pieces")).value_or(false);
  const std::vector<int32_t> ids =
      tokenizer.encode(content, {.parse_special = parse_special, .add_special = add_special});
  Json tokens = Json::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!with_pieces) {
      tokens.push_back(ids[i]);
      continue;
    }
    const std::string piece = tokenizer.piece(ids[i], i == 0 ? -1 : ids[i - 1], {.special = true});
    Json shown = piece;
    if (!is_utf8(piece)) {
      shown = Json::array();
      for (const char c : piece) shown.push_back(static_cast<unsigned char>(c));
    }
    tokens.push_back({{"id", ids[i]}, {"piece", std::move(shown)}});
  }
  send_json(reply, {{"tokens", std::move(tokens)}});
  return ok_status();
}

Status detokenize(const Json& body, const Tokenizer& tokenizer, HttpReply& reply,
                  std::string& param) {
  const Fields fields(body, param);
  const Json* tokens = TRY(fields.array("tokens"));
  if (tokens == nullptr) return fields.wrong("tokens", "is missing");
  const std::vector<int32_t> ids =
      TRY(read_token_ids(fields, "tokens", *tokens, tokenizer.vocab()));
  send_json(reply, {{"content", tokenizer.decode(ids, {.special = true})}});
  return ok_status();
}

Status apply_template(const Json& body, const coordinator::Generator& generator, HttpReply& reply,
                      std::string& param) {
  AnswerCall call;
  TRY(read_conversation(Fields(body, param), call));
  if (generator.chat_format() == nullptr) {
    return unimplemented("the model has no chat template", "use /v1/completions");
  }
  const auto& chat = std::get<remote::ChatPrompt>(call.request.prompt);
  const auto prompt = TRY(generator.chat_format()->prepare(chat, call.extras.chat));
  send_json(reply, {{"prompt", prompt.text}});
  return ok_status();
}

void add_text_routes(Router& router, ModelService& service) {
  using Open = ModelService::Open;
  using Reply = std::shared_ptr<HttpReply>;
  router.add("POST", "/v1/tokenize",
             json_handler(service, [](const Json& body, const Open& model, const Reply& reply,
                                      std::string& param) {
               return tokenize(body, model.generator.tokenizer(), *reply, param);
             }));
  router.add("POST", "/v1/detokenize",
             json_handler(service, [](const Json& body, const Open& model, const Reply& reply,
                                      std::string& param) {
               return detokenize(body, model.generator.tokenizer(), *reply, param);
             }));
  router.add("POST", "/v1/apply-template",
             json_handler(service, [](const Json& body, const Open& model, const Reply& reply,
                                      std::string& param) {
               return apply_template(body, model.generator, *reply, param);
             }));
}

void add_missing_routes(Router& router) {
  const auto refuse = [&router](const char* method, const char* path, const char* what) {
    router.add(method, path, [what](const auto&, const auto& reply) {
      reply->send(error_response(501, fmt::format("{} not supported yet", what)));
    });
  };
  refuse("POST", "/v1/embeddings", "embeddings are");
  refuse("POST", "/embedding", "embeddings are");
  refuse("POST", "/v1/rerank", "reranking is");
  refuse("POST", "/v1/reranking", "reranking is");
  refuse("POST", "/infill", "filling in the middle is");
  refuse("POST", "/v1/fim/completions", "filling in the middle is");
  refuse("POST", "/completion", "llama.cpp's own completion shape (use /v1/completions) is");
  refuse("GET", "/lora-adapters", "adapters are");
  refuse("POST", "/lora-adapters", "adapters are");
}

}  // namespace

Router::Handler json_handler(ModelService& service, JsonWork work) {
  return [&service, work = std::move(work)](const std::shared_ptr<const HttpRequest>& request,
                                            std::shared_ptr<HttpReply> reply) {
    const ModelService::Open* model = service.get();
    if (model == nullptr) {
      reply->send(api_error(service.health()));
      return;
    }
    std::string param;
    const auto answer = [&]() -> Status {
      const Json body = TRY(parse_json_object(request->body));
      return work(body, *model, reply, param);
    };
    const Status status = answer();
    if (!status.ok()) reply->send(api_error(status, {.param = param}));
  };
}

void add_openai_routes(Router& router, ModelService& service) {
  using Open = ModelService::Open;
  using Reply = std::shared_ptr<HttpReply>;
  add_model_routes(router, service);
  add_text_routes(router, service);
  add_missing_routes(router);
  router.add("POST", "/v1/chat/completions",
             json_handler(service,
                          [&service](const Json& body, const Open& model, const Reply& reply,
                                     std::string& param) -> Status {
                            const Tokenizer& tokenizer = model.generator.tokenizer();
                            ChatRequest request =
                                TRY(read_chat_request(body, service, tokenizer, param));
                            run_answers(service, calls_for(request.call, request.choices),
                                        make_chat_sink(request, tokenizer, reply), reply);
                            return ok_status();
                          }));
  router.add("POST", "/v1/completions",
             json_handler(service,
                          [&service](const Json& body, const Open& model, const Reply& reply,
                                     std::string& param) -> Status {
                            const Tokenizer& tokenizer = model.generator.tokenizer();
                            CompletionRequest request =
                                TRY(read_completion_request(body, service, tokenizer, param));
                            std::vector<AnswerCall> calls = request.calls;
                            run_answers(service, std::move(calls),
                                        make_completion_sink(std::move(request), tokenizer, reply),
                                        reply);
                            return ok_status();
                          }));
}

}  // namespace strata::serve
