#include "cli/tokenize.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/human.h"
#include "runtime/base/utf8.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/text/unicode.h"

namespace strata::cli {
namespace {

using nlohmann::json;

// Longer pieces are shortened in the table.
constexpr size_t kPieceShownBytes = 60;

Result<json> parse_list(std::string_view input, std::string_view of_what) {
  json list;
  try {
    list = json::parse(input);
  } catch (const json::parse_error& error) {
    // Without the library's own tag: "[json.exception.parse_error.101] parse error at line ...".
    std::string_view reason = error.what();
    reason.remove_prefix(std::min(reason.find("] ") + 2, reason.size()));
    return invalid_argument(fmt::format("standard input is no JSON: {}", printable(reason)),
                            fmt::format("pass a JSON list of {}", of_what));
  }
  if (!list.is_array()) {
    return invalid_argument(fmt::format("standard input is a JSON {}, must be a list of {}",
                                        list.type_name(), of_what));
  }
  return list;
}

Result<std::vector<int32_t>> ids_of(const json& list, size_t index, const Vocab& vocab) {
  const auto wrong = [index](const std::string& what) {
    return invalid_argument(fmt::format("input[{}]{}", index, what));
  };
  if (!list.is_array()) {
    return wrong(fmt::format(" is a {}, must be a list of token ids", list.type_name()));
  }
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const json& id : list) {
    if (!id.is_number_integer()) {
      return wrong(fmt::format("[{}] is a {}, must be a token id", ids.size(), id.type_name()));
    }
    // Above 2^63 the library holds an unsigned number, which would wrap.
    const bool huge = id.is_number_unsigned() && id.get<uint64_t>() > uint64_t{INT32_MAX};
    const int64_t value = huge ? int64_t{INT32_MAX} + 1 : id.get<int64_t>();
    if (value < 0 || value >= vocab.size()) {
      return wrong(fmt::format("[{}] is {}, token ids are 0 to {}", ids.size(), id.dump(),
                               vocab.size() - 1));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

Result<std::vector<int32_t>> ids_of_words(std::string_view input, const Vocab& vocab) {
  constexpr std::string_view kSeparators = " \t\r\n,[]";
  std::vector<int32_t> ids;
  for (size_t begin = input.find_first_not_of(kSeparators); begin != std::string_view::npos;) {
    const size_t end = std::min(input.find_first_of(kSeparators, begin), input.size());
    const std::string_view word = input.substr(begin, end - begin);
    int32_t id = -1;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || rest != word.data() + word.size() || !vocab.contains(id)) {
      return invalid_argument(
          fmt::format("'{}' is no token id, they are 0 to {}", printable(word), vocab.size() - 1));
    }
    ids.push_back(id);
    begin = input.find_first_not_of(kSeparators, end);
  }
  return ids;
}

EncodeOptions encode_options(const TokenizeOptions& options) {
  return {.parse_special = options.special, .add_special = options.add};
}

Status run_tokenize(const std::string& model, const std::optional<std::string>& text,
                    const TokenizeOptions& options, bool as_json) {
  const std::shared_ptr<GgufFile> file = TRY(GgufFile::open(model));
  const std::unique_ptr<Tokenizer> tokenizer = TRY(make_tokenizer(file->metadata()));
  const std::string input = text ? *text : read_standard_input();
  if (as_json) {
    const json output = TRY(tokenize_json(*tokenizer, input, options));
    fmt::print("{}\n", output.dump());
  } else {
    const std::string output = TRY(tokenize_text(*tokenizer, input, options));
    fmt::print("{}", output);
  }
  return ok_status();
}

}  // namespace

Result<json> tokenize_json(const Tokenizer& tokenizer, std::string_view input,
                           const TokenizeOptions& options) {
  const std::string_view wanted = options.detokenize ? "token id lists" : "strings";
  const json list = TRY(parse_list(input, wanted));
  json output = json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    if (options.detokenize) {
      const std::vector<int32_t> ids = TRY(ids_of(list[i], i, tokenizer.vocab()));
      output.push_back(replace_invalid_utf8(tokenizer.decode(ids, {.special = options.special})));
    } else if (list[i].is_string()) {
      output.push_back(
          tokenizer.encode(list[i].get_ref<const std::string&>(), encode_options(options)));
    } else {
      return invalid_argument(
          fmt::format("input[{}] is a {}, must be a string", i, list[i].type_name()));
    }
  }
  return output;
}

Result<std::string> tokenize_text(const Tokenizer& tokenizer, std::string_view input,
                                  const TokenizeOptions& options) {
  if (options.detokenize) {
    const std::vector<int32_t> ids = TRY(ids_of_words(input, tokenizer.vocab()));
    return replace_invalid_utf8(tokenizer.decode(ids, {.special = options.special})) + "\n";
  }
  const std::vector<int32_t> ids = tokenizer.encode(input, encode_options(options));
  std::string table = fmt::format("{:>8}  piece\n", "id");
  int32_t previous = -1;
  for (const int32_t id : ids) {
    const std::string piece = tokenizer.piece(id, previous, {.special = true});
    table += fmt::format("{:>8}  \"{}\"\n", id, printable(piece, kPieceShownBytes));
    previous = id;
  }
  table += fmt::format("{} token{} for {} bytes\n", human_count(ids.size()),
                       ids.size() == 1 ? "" : "s", human_count(input.size()));
  return table;
}

void add_tokenize_command(CLI::App& app, CommandContext& context) {
  struct Arguments {
    std::string model;
    std::optional<std::string> text;
    TokenizeOptions options;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Show how a model splits text into tokens");
  command->add_option("-m,--model", arguments->model, "GGUF file; one without tensors will do")
      ->required()
      ->type_name("FILE")
      ->group("Model");
  command
      ->add_option("TEXT", arguments->text,
                   "The text, or with --detokenize the ids; standard input if left out. With "
                   "--json: a JSON list of texts, or of lists of ids")
      ->group("Text");
  command
      ->add_flag("--special", arguments->options.special,
                 "Read special tokens such as <|im_end|> in the text; show them in decoded text")
      ->group("Text");
  command
      ->add_flag("--add", arguments->options.add,
                 "Add the beginning and end tokens that the model wants")
      ->group("Text");
  command
      ->add_flag("--detokenize", arguments->options.detokenize,
                 "Turn token ids into text; with --json a list of id lists")
      ->group("Text");
  add_json_option(*command, context, "Print a JSON list of id lists, or of texts");
  add_example(*command, "echo '[\"Hello world\"]' | strata tokenize -m smollm2.gguf --json");
  command->callback([arguments, &context] {
    context.run = [arguments, &context] {
      return run_tokenize(arguments->model, arguments->text, arguments->options, context.json);
    };
  });
}

}  // namespace strata::cli
