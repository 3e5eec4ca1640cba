// Addresses, tokens and names as people type them, and servers that cannot listen.
#include "backends/remote/channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "backends/remote/activation_stream.h"
#include "backends/remote/cluster_records.h"
#include "backends/remote/token.h"
#include "tests/support/temp_dir.h"

namespace strata::remote {
namespace {

using testing::HasSubstr;

std::string parsed(const std::string& text, AddressUse use = AddressUse::dial) {
  const Result<Address> address = parse_address(text, use);
  return address.ok() ? address.value().text() : address.status().message();
}

TEST(Address, ReadsWhatPeopleWrite) {
  EXPECT_EQ(parsed("127.0.0.1:50051"), "127.0.0.1:50051");
  EXPECT_EQ(parsed("[::1]:50051"), "[::1]:50051");
  EXPECT_EQ(parsed("::1"), "[::1]:50051");
  EXPECT_EQ(parsed("[fe80::1%lo]:50051"), "[fe80::1%lo]:50051");
  EXPECT_EQ(parsed(":7000"), "127.0.0.1:7000");
  EXPECT_EQ(parsed("node-7.lab"), "node-7.lab:50051");
  EXPECT_EQ(parsed("127.0.0.1:0", AddressUse::listen), "127.0.0.1:0");
  // A port that is left out is the same one to dial and to listen on.
  EXPECT_EQ(parsed("localhost"), "localhost:50051");
  EXPECT_EQ(parsed("localhost", AddressUse::listen), "localhost:50051");
  EXPECT_EQ(parsed("0.0.0.0", AddressUse::listen), "0.0.0.0:50051");
  EXPECT_EQ(parsed("0.0.0.0:7", AddressUse::listening), "0.0.0.0:7");
  EXPECT_EQ(parsed("fe80::1%lo"), "[fe80::1%lo]:50051");
}

TEST(Address, SaysWhatIsWrong) {
  EXPECT_THAT(parsed(""), HasSubstr("empty"));
  EXPECT_THAT(parsed("host:"), HasSubstr("port after ':' is missing"));
  EXPECT_THAT(parsed("host:99999"), HasSubstr("99999 is beyond 65535"));
  EXPECT_THAT(parsed("host:99999999999999999999"), HasSubstr("beyond 65535"));
  EXPECT_THAT(parsed("host:0"), HasSubstr("port 0"));
  EXPECT_THAT(parsed("host:-1"), HasSubstr("not a number"));
  EXPECT_THAT(parsed("host:5x"), HasSubstr("not a number"));
  EXPECT_THAT(parsed(" host:50051 "), HasSubstr("space"));
  EXPECT_THAT(parsed("a:1,b:2"), HasSubstr("comma"));
  EXPECT_THAT(parsed("a:1,"), HasSubstr("comma"));
  EXPECT_THAT(parsed("http://host:1"), HasSubstr("URL"));
  EXPECT_THAT(parsed("a:b:c"), HasSubstr("more than one ':'"));
  EXPECT_THAT(parsed("[::1"), HasSubstr("']' is missing"));
  EXPECT_THAT(parsed(std::string("::1\0x", 5)), HasSubstr("character that no address has"));
  EXPECT_THAT(parsed("[::1%a b]:1"), HasSubstr("space"));
  EXPECT_THAT(parsed("::1%a]:1"), HasSubstr("more than one ':'"));
  EXPECT_THAT(parsed("[::1]50051"), HasSubstr("':' must follow"));
  EXPECT_THAT(parsed("[host]:1"), HasSubstr("IPv6"));
  EXPECT_THAT(parsed("300.1.1.1:5"), HasSubstr("not an IPv4"));
  EXPECT_THAT(parsed("ho/st:5"), HasSubstr("characters"));
  EXPECT_THAT(parsed("0.0.0.0:0", AddressUse::listening), HasSubstr("port 0"));
  for (const char* all : {"0.0.0.0:1", "[::]:1", "[0:0:0:0:0:0:0:0]:1"}) {
    EXPECT_THAT(parsed(all), HasSubstr("all addresses of a host"));
  }
}

TEST(Address, AListenerOnAllAddressesIsShownByOneThatCanBeDialled) {
  for (const char* text : {"0.0.0.0:7000", "[::]:7000"}) {
    const Address listening = parse_address(text, AddressUse::listen).value();
    const Address shown = reachable_address(listening);
    EXPECT_FALSE(shown.is_wildcard()) << shown.text();
    EXPECT_EQ(shown.port, 7000);
    EXPECT_TRUE(parse_address(shown.text(), AddressUse::dial).ok()) << shown.text();
  }
  const Address one{"10.1.1.1", 5};
  EXPECT_EQ(reachable_address(one), one);
}

TEST(Address, BeyondLoopbackNeedsAWord) {
  for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1",
                           "[0:0:0:0:0:0:0:1]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(check_exposure(parse_address(text, AddressUse::dial).value(), false).ok()) << text;
  }
  for (const char* text :
       {"0.0.0.0:1", "10.0.0.2:1", "[::]:1", "node:1", "[fe80::1%lo]:1", "[::ffff:10.0.0.1]:1"}) {
    const Address address = parse_address(text, AddressUse::listen).value();
    const Status refused = check_exposure(address, false);
    EXPECT_EQ(refused.code(), StatusCode::permission_denied) << text;
    EXPECT_THAT(refused.hint(), HasSubstr("--insecure-network"));
    EXPECT_TRUE(check_exposure(address, true).ok());
  }
}

TEST(Address, AWildcardIsReachedWhereItsOwnerComesFrom) {
  const Address any{"0.0.0.0", 7000};
  EXPECT_EQ(advertised_address(any, "ipv4:10.0.0.2:4711").value().text(), "10.0.0.2:7000");
  EXPECT_EQ(advertised_address(any, "ipv6:[::1]:4711").value().text(), "[::1]:7000");
  EXPECT_EQ(advertised_address(any, "ipv6:%5Bfe80::1%25lo%5D:4711").value().text(),
            "[fe80::1%lo]:7000");
  EXPECT_EQ(advertised_address({"10.1.1.1", 5}, "ipv4:10.0.0.2:1").value().text(), "10.1.1.1:5");
  EXPECT_FALSE(advertised_address(any, "unix:x").ok());
  const Address loopback{"127.0.0.1", 5};
  EXPECT_EQ(advertised_address(loopback, "ipv4:127.0.0.1:9").value(), loopback);
  const Status unreachable = advertised_address(loopback, "ipv4:10.0.0.2:9").status();
  EXPECT_THAT(unreachable.message(), HasSubstr("comes from 10.0.0.2 but listens on 127.0.0.1:5"));
  EXPECT_THAT(unreachable.hint(), HasSubstr("--listen"));
}

class NoStreams final : public StreamHandler {
 public:
  Status on_open(const StreamCaller&) override { return ok_status(); }
  Status on_first_piece(const StreamCaller&, uint64_t, uint64_t) override { return ok_status(); }
  Status on_frame(const StreamCaller&, Frame) override { return ok_status(); }
  void on_closed(const StreamCaller&, const Status&) override {}
};

TEST(RpcServer, SaysThatAPortIsTaken) {
  NoStreams handler;
  const auto acceptor = StreamAcceptor::create("token", handler);
  const auto other_acceptor = StreamAcceptor::create("token", handler);
  ServerOptions options;
  options.streams = acceptor.get();
  options.listen = {"127.0.0.1", 0};
  const auto first = RpcServer::start(options);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  options.listen = first.value()->address();
  options.streams = other_acceptor.get();
  const auto second = RpcServer::start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::already_exists);
  EXPECT_THAT(second.status().message(), HasSubstr("the port is taken"));
  options.listen = {"192.0.2.1", 5000};
  options.insecure_network = true;
  const auto third_acceptor = StreamAcceptor::create("token", handler);
  options.streams = third_acceptor.get();
  EXPECT_THAT(RpcServer::start(options).status().message(), HasSubstr("not an address of this"));
}

TEST(NodeName, HasOneRule) {
  for (const char* good : {"a", "worker-1", "Node_7.lab", "0"}) {
    EXPECT_TRUE(check_node_name(good).ok()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a/b"), std::string("-a"),
        std::string("\"a\""), std::string("名"), std::string(300, 'a'), std::string("..")}) {
    const Status refused = check_node_name(bad);
    EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << bad;
    EXPECT_THAT(refused.hint(), HasSubstr("1 to 63 letters"));
  }
}

TEST(ModelName, RefusesPathsAndFalseDigests) {
  const std::string digest = "sha256:" + std::string(64, 'a');
  EXPECT_TRUE(check_model_name({"smollm2.gguf", digest}).ok());
  for (const char* bad : {"", "..", "/etc/passwd", "a/b", "..\\x", "a\nb"}) {
    EXPECT_FALSE(check_model_name({bad, digest}).ok()) << bad;
  }
  for (const std::string& bad :
       {std::string("sha256:../../x"), "sha256:" + std::string(63, 'a'),
        "sha256:" + std::string(64, 'A'), std::string(64, 'a'), "md5:" + std::string(64, 'a')}) {
    EXPECT_FALSE(check_digest(bad).ok()) << bad;
  }
}

TEST(Versions, NameWhoMustUpgrade) {
  const Version two{2, 0, 0, 1};
  const Version one{1, 4, 0, 1};
  EXPECT_EQ(check_versions(two, one).message(), "coordinator 2.x, worker 1.4: upgrade worker");
  EXPECT_EQ(check_versions(one, two).message(), "coordinator 1.x, worker 2.0: upgrade coordinator");
  EXPECT_TRUE(check_versions({1, 3, 0, 1}, one).ok());
  EXPECT_THAT(check_versions({1, 4, 0, 2}, one).message(), HasSubstr("bits would differ"));
}

TEST(Token, ComparesEveryLength) {
  EXPECT_TRUE(tokens_equal("abc", "abc"));
  EXPECT_FALSE(tokens_equal("abc", "abd"));
  EXPECT_FALSE(tokens_equal("abc", "abcabc"));
  EXPECT_FALSE(tokens_equal("", "abc"));
  EXPECT_FALSE(tokens_equal("abc", ""));
}

// What is in the way of a connection, each with what to do about it. In order: a name of no host, a
// port that nobody listens on, a network that this machine has no way to.
TEST(Unreachable, ObstaclesAreToldApart) {
  const Status name = why_unreachable({"no-such-host.invalid", 50051}, "the coordinator");
  EXPECT_EQ(name.code(), StatusCode::unavailable);
  EXPECT_THAT(name.message(),
              HasSubstr("cannot reach the coordinator at no-such-host.invalid:50051: "));
  // Without a DNS server that answers, the system cannot know that there is none.
  EXPECT_THAT(name.message(), testing::AnyOf(HasSubstr("there is no host of that name"),
                                             HasSubstr("the name cannot be looked up")));
  EXPECT_THAT(name.hint(), HasSubstr("DNS"));
  const Status port = why_unreachable({"127.0.0.1", 1}, "worker b");
  EXPECT_EQ(
      port.message(),
      "cannot reach worker b at 127.0.0.1:1: connection refused, nothing listens on that port");
  EXPECT_THAT(port.hint(), HasSubstr("is it running"));
  const Status multicast = why_unreachable({"ff02::1", 9}, "worker c");
  EXPECT_THAT(multicast.message(), HasSubstr("there is no route to that host"));
}

TEST(Token, SaysWhichFileIsMissingAndWhereItCannotEvenLook) {
  TokenSource source;
  source.file = "/no/such/token";
  EXPECT_EQ(load_token(source, false).status().message(), "there is no token file /no/such/token");
  EXPECT_THAT(load_token(source, false).status().hint(), HasSubstr("--token-file"));
  const Status nowhere = load_token({}, false).status();
  EXPECT_EQ(nowhere.code(), StatusCode::failed_precondition) << "a worker must not wait for it";
  EXPECT_THAT(nowhere.message(), HasSubstr("neither HOME nor XDG_RUNTIME_DIR is set"));
}

TEST(Token, CoordinatorMakesItAndOthersFindIt) {
  const test::TempDir folder;
  TokenSource source;
  source.default_folder = folder.path() + "/new/strata";
  const auto missing = load_token(source, false);
  EXPECT_EQ(missing.status().code(), StatusCode::not_found);
  EXPECT_THAT(missing.status().hint(), HasSubstr("start the coordinator first"));
  const auto made = load_token(source, true);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made.value().size(), 64u);
  EXPECT_EQ(load_token(source, false).value(), made.value());
  EXPECT_EQ(load_token(source, true).value(), made.value());
  struct stat info {};
  ASSERT_EQ(::stat((source.default_folder + "/token").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::chmod((source.default_folder + "/token").c_str(), 0644), 0);
  EXPECT_EQ(load_token(source, true).status().code(), StatusCode::permission_denied);
}

TEST(Token, FileGoesBeforeEnvironmentGoesBeforeDefault) {
  const test::TempDir folder;
  TokenSource source;
  source.default_folder = folder.path();
  source.environment = "from-environment";
  EXPECT_EQ(load_token(source, false).value(), "from-environment");
  std::ofstream(folder.path() + "/t") << "  from-file\n";
  source.file = folder.path() + "/t";
  EXPECT_EQ(load_token(source, false).value(), "from-file");
  std::ofstream(folder.path() + "/t") << "two words\n";
  EXPECT_THAT(load_token(source, false).status().message(), HasSubstr("not printable"));
  std::ofstream(folder.path() + "/t") << std::string(5000, 'x');
  EXPECT_THAT(load_token(source, false).status().message(), HasSubstr("longer than"));
  source.file = folder.path();
  EXPECT_FALSE(load_token(source, false).ok());
  EXPECT_EQ(default_token_folder("/run/user/1", "/c", "/h"), "/run/user/1/strata");
  EXPECT_EQ(default_token_folder("", "", "/h"), "/h/.cache/strata");
}

// Too few files to open is a sentence before the library begins, which would end the process.
TEST(RpcThreads, TooFewDescriptorsAreASentence) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 8;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const Status refused = check_rpc_threads();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused.code(), StatusCode::resource_exhausted);
  EXPECT_THAT(refused.message(), HasSubstr("more files and connections, it needs 12"));
  EXPECT_THAT(refused.hint(), HasSubstr("ulimit -n"));
  EXPECT_TRUE(check_rpc_threads().ok());
}

}  // namespace
}  // namespace strata::remote
