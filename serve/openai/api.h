// The HTTP API: which path is answered by what. docs/api.md describes it for its users.
//
// Threads: add_openai_routes by one thread, before the server starts.
#pragma once

#include "serve/http/router.h"
#include "serve/model_service.h"
#include "serve/openai/json_body.h"

namespace strata::serve {

// Both must outlive the router's server.
void add_openai_routes(Router& router, ModelService& service);

// /health, /props, /slots and /metrics, for those who run a server.
void add_operation_routes(Router& router, ModelService& service);

// Runs `work` on the request's body: its JSON, and a place for the field at fault. A failure is
// answered; `work` answers everything else. Without a model: 503.
using JsonWork = std::function<Status(const Json& body, const ModelService::Open& model,
                                      std::shared_ptr<HttpReply> reply, std::string& param)>;
Router::Handler json_handler(ModelService& service, JsonWork work);

}  // namespace strata::serve
