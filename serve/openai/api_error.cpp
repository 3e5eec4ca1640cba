#include "serve/openai/api_error.h"

#include <nlohmann/json.hpp>

#include "runtime/base/ascii.h"
#include "runtime/base/json_text.h"

namespace strata::serve {
namespace {

// Messages about a field begin with its name: "messages[0].role is 'x', must be ...".
std::string leading_field(const std::string& message) {
  const size_t end = message.find(' ');
  const std::string word = message.substr(0, end == std::string::npos ? 0 : end);
  bool marked = false;  // as no plain word is
  for (const char c : word) {
    if (c == '_' || c == '[' || c == '.') marked = true;
    if (!is_ascii_letter(c) && !is_ascii_digit(c) &&
        std::string_view("_.[]").find(c) == std::string_view::npos) {
      return {};
    }
  }
  if (marked || word == "messages" || word == "tools" || word == "temperature") return word;
  return {};
}

}  // namespace

int http_status(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return 200;
    case StatusCode::invalid_argument:
    case StatusCode::out_of_range:
    case StatusCode::failed_precondition:
      return 400;
    case StatusCode::unauthenticated:
      return 401;
    case StatusCode::permission_denied:
      return 403;
    case StatusCode::not_found:
      return 404;
    case StatusCode::resource_exhausted:
      return 429;
    case StatusCode::unimplemented:
      return 501;
    case StatusCode::unavailable:
    case StatusCode::cancelled:  // by the server: its clients' own cancellations are never answered
      return 503;
    case StatusCode::deadline_exceeded:
      return 504;
    default:
      return 500;
  }
}

HttpResponse api_error(const Status& status, const ErrorContext& context) {
  HttpResponse response;
  response.status = http_status(status.code());
  const bool is_client_fault = response.status == 400;
  const bool overflows = is_client_fault && context.context > 0 &&
                         context.prompt_tokens + (context.wants_answer ? 1 : 0) > context.context;
  nlohmann::ordered_json error = {{"message", status.to_string()},
                                  {"type", error_type(response.status)},
                                  {"param", nullptr},
                                  {"code", response.status}};
  const std::string param =
      context.param.empty() && is_client_fault ? leading_field(status.message()) : context.param;
  if (!param.empty()) error["param"] = param;
  if (overflows) {
    error["code"] = "context_length_exceeded";
    error["n_prompt_tokens"] = context.prompt_tokens;
    error["n_ctx"] = context.context;
  }
  response.body = dump_json(nlohmann::ordered_json{{"error", error}});
  if (response.status == 429 || response.status == 503) {
    response.headers.emplace_back("retry-after", response.status == 429 ? "1" : "2");
  }
  return response;
}

}  // namespace strata::serve
