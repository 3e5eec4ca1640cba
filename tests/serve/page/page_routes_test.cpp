// Goal: the server gives the page with its policy to everybody, and what the page asks for, also
// before there is a model. Method: a server without a model on a free port, asked over a plain
// socket.
#include "serve/page/page_routes.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "runtime/base/file_descriptor.h"
#include "serve/http_api.h"
#include "serve/page/web_page.h"

namespace strata::serve {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class PageRoutes : public ::testing::Test {
 protected:
  void SetUp() override {
    HttpApiOptions options;
    options.listen = {.host = "127.0.0.1", .port = 0};
    options.model_name = "tiny";
    auto started = HttpApi::start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    api_ = std::move(started).value();
  }

  // Head and body of the answer.
  std::string get(const std::string& path, const std::string& header = "") {
    const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(api_->address().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string request =
        "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + header + "\r\n";
    EXPECT_EQ(::send(socket.get(), request.data(), request.size(), 0),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    std::array<char, 4096> part{};
    for (ssize_t count = 1; count > 0;) {
      count = ::recv(socket.get(), part.data(), part.size(), 0);
      if (count > 0) answer.append(part.data(), static_cast<size_t>(count));
    }
    return answer;
  }

  std::unique_ptr<HttpApi> api_;
};

TEST_F(PageRoutes, GivesThePageWithItsPolicy) {
  const std::string answer = get("/");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("text/html; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr(content_security_policy(web_page().html)));
  EXPECT_THAT(answer, testing::EndsWith(web_page().html));
}

TEST_F(PageRoutes, GivesNothingToWhoHasItAlready) {
  const std::string answer = get("/", "If-None-Match: " + web_page().etag + "\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 304 "));
  EXPECT_THAT(answer, Not(HasSubstr("<!DOCTYPE")));
}

TEST_F(PageRoutes, TellsOfAModelThatIsBeingLoaded) {
  const std::string answer = get("/cluster");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  const auto status = nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  EXPECT_EQ(status["state"], "loading");
  EXPECT_EQ(status["model"], "tiny");
}

}  // namespace
}  // namespace strata::serve
