#include "serve/page/page_routes.h"

#include "serve/cluster_status.h"
#include "serve/page/web_page.h"

namespace strata::serve {
namespace {

HttpResponse page_response(const HttpRequest& request) {
  const WebPage& page = web_page();
  HttpResponse response{.content_type = std::string(kWebPageType), .headers = page.headers};
  if (request.header("if-none-match") == page.etag) {
    response.status = 304;
  } else {
    response.body = page.html;
  }
  return response;
}

remote::ClusterStatus status_of(const ModelService& service) {
  const ModelService::Open* open = service.get();
  if (open != nullptr && open->cluster) return open->cluster();
  remote::ClusterStatus status;
  status.state = open == nullptr ? "loading" : "ready";
  status.model.base_name = service.name();
  return status;
}

}  // namespace

void add_page_routes(Router& router, ModelService& service) {
  router.add(
      "GET", "/",
      [](const auto& request, const auto& reply) { reply->send(page_response(*request)); },
      Router::Access::open);
  router.add("GET", "/cluster", [&service](const auto&, const auto& reply) {
    reply->send({.body = cluster_status_json(status_of(service)),
                 .headers = {{"Cache-Control", "no-store"}}});
  });
}

}  // namespace strata::serve
