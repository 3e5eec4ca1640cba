// An HTTP request and the way back to its client, without any word of the library behind them.
//
// Threads: HttpRequest and HttpResponse are plain values; HttpReply may be used from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::serve {

struct HttpRequest {
  std::string method;
  std::string path;   // as it was sent, without the query
  std::string query;  // without '?'
  std::string body;
  std::string id;    // x-request-id of the response
  std::string peer;  // "127.0.0.1"
  std::string version;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case

  // The first one of that name; empty if there is none.
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
};

inline constexpr std::string_view kJsonType = "application/json; charset=utf-8";
inline constexpr std::string_view kEventStreamType = "text/event-stream; charset=utf-8";

struct HttpResponse {
  int status = 200;
  std::string content_type = std::string(kJsonType);
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The response under way. What comes after its end, or after the client has gone, is dropped.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // The whole response. False if a stream's first piece has been sent already.
  virtual bool send(HttpResponse response) = 0;
  // From now on the response is a stream: its head goes with the first piece, or with the first
  // ping if nothing comes for a while (event streams only).
  virtual void open_stream(std::string_view content_type) = 0;
  // A piece of the stream. False if nobody takes it any more: the client has gone, or has let more
  // than a mebibyte wait.
  virtual bool write(std::string piece) = 0;
  virtual void end_stream() = 0;
  // `handler` runs once if the client goes before the end; at once if it has gone. It must not
  // block.
  virtual void on_gone(std::function<void()> handler) = 0;
};

// The reason that stands beside a status number.
std::string_view http_reason(int status);

// The body of an error in the shape of OpenAI's API. `code` and `param`: null if empty.
std::string error_body(std::string_view message, std::string_view type, std::string_view code = {},
                       std::string_view param = {});
// A response with that body, of the type that goes with the status.
HttpResponse error_response(int status, std::string_view message, std::string_view code = {},
                            std::string_view param = {});
// "invalid_request_error" for 400 and so on.
std::string_view error_type(int status);

}  // namespace strata::serve
