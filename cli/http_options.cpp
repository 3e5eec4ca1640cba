#include "cli/http_options.h"

#include <CLI/CLI.hpp>

#include "cli/text_file.h"
#include "runtime/base/base_name.h"

namespace strata::cli {
namespace {

constexpr size_t kKeysBytesMax = size_t{1} << 20;

}  // namespace

void add_http_options(CLI::App& command, HttpOptions& options) {
  command
      .add_option("--api-keys", options.keys_file,
                  "File of keys, 'KEY' or 'NAME KEY' on a line; clients must show one. Without it "
                  "no key is asked for, and only this machine is served")
      ->type_name("FILE")
      ->group("HTTP");
  command
      .add_option("--alias", options.alias,
                  "What clients call the model (default: its file's name)")
      ->type_name("NAME")
      ->group("HTTP");
  command
      .add_option("--cors", options.cors_origins,
                  "Let pages of this origin use the server, such as https://chat.example; may be "
                  "given again")
      ->type_name("ORIGIN")
      ->allow_extra_args(false)
      ->group("HTTP");
  command
      .add_option("--allow-host", options.hosts,
                  "A name under which clients reach the server, such as that of a proxy before it; "
                  "may be given again")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->group("HTTP");
}

Status check_http_options(const HttpOptions& options) {
  return serve::parse_http_address(options.listen).status();
}

Result<std::unique_ptr<serve::HttpApi>> start_http_api(const HttpOptions& options,
                                                       const std::string& model_path,
                                                       bool insecure_network) {
  serve::HttpApiOptions api;
  api.listen = TRY(serve::parse_http_address(options.listen));
  api.insecure_network = insecure_network;
  api.model_name = options.alias.empty() ? base_name(model_path) : options.alias;
  api.cors_origins = options.cors_origins;
  api.hosts = options.hosts;
  if (!options.keys_file.empty()) {
    const std::string text = TRY(read_text_file(options.keys_file, kKeysBytesMax));
    api.keys = TRY(serve::ApiKeys::parse(text).with_context(options.keys_file));
  }
  return serve::HttpApi::start(std::move(api));
}

}  // namespace strata::cli
