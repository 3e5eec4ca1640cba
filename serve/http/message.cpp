#include "serve/http/message.h"

#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"

namespace strata::serve {

std::string_view http_reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Internal Server Error";
  }
}

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return "invalid_request_error";
  }
}

std::string error_body(std::string_view message, std::string_view type, std::string_view code,
                       std::string_view param) {
  nlohmann::ordered_json error = {{"message", message}, {"type", type}};
  error["param"] = nullptr;
  error["code"] = nullptr;
  if (!param.empty()) error["param"] = param;
  if (!code.empty()) error["code"] = code;
  return dump_json(nlohmann::ordered_json{{"error", error}});
}

HttpResponse error_response(int status, std::string_view message, std::string_view code,
                            std::string_view param) {
  HttpResponse response;
  response.status = status;
  const std::string number = std::to_string(status);
  response.body = error_body(message, error_type(status),
                             code.empty() ? std::string_view(number) : code, param);
  return response;
}

}  // namespace strata::serve
