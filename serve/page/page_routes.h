// The page's routes: `GET /`, the page itself, open to everybody, and `GET /cluster`, what it shows
// of the nodes, for those who have a key where keys are wanted.
//
// Threads: add_page_routes by one thread, before the server starts.
#pragma once

#include "serve/http/router.h"
#include "serve/model_service.h"

namespace strata::serve {

// Both must outlive the router's server.
void add_page_routes(Router& router, ModelService& service);

}  // namespace strata::serve
