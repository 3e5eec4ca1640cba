#include "cli/template.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/json_line.h"
#include "runtime/base/utf8.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/text/chat_template.h"

namespace strata::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct TemplateOptions {
  std::string model;
  std::string template_file;
  std::string messages_file;
  std::string tools_file;
  std::string variables = "{}";
  std::string now;
  bool no_generation_prompt = false;
  bool fit = false;
};

// A file's bytes; "-" is standard input.
Result<std::string> read_file(const std::string& path) {
  if (path == "-") return read_standard_input();
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found(fmt::format("cannot open {}", printable(path)));
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// "2025-01-15T12:30:00", "2025-01-15 12:30" or "2025-01-15", as local time.
Result<std::tm> parse_time(const std::string& text) {
  for (const char* format :
       {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm time{};
    std::istringstream stream(text);
    stream >> std::get_time(&time, format);
    if (stream.fail() || stream.peek() != std::istringstream::traits_type::eof()) continue;
    time.tm_isdst = -1;
    std::mktime(&time);  // fills in the day of the week and of the year
    return time;
  }
  return invalid_argument(fmt::format("--now '{}' is no time", printable(text)),
                          "write it as 2025-01-15T12:30:00");
}

// A file with the messages alone, or an object with messages, tools and the like, as OpenAI's API
// takes it.
void take_request(const std::string& text, ChatInput& input) {
  const OrderedJson request = OrderedJson::parse(text, nullptr, false);
  if (!request.is_object() || !request.contains("messages")) {
    input.messages = text;
    return;
  }
  input.messages = request["messages"].dump();
  if (request.contains("tools")) input.tools = request["tools"].dump();
  if (request.contains("chat_template_kwargs")) {
    input.variables = request["chat_template_kwargs"].dump();
  }
}

struct Opened {
  std::unique_ptr<Tokenizer> tokenizer;  // null without a model
  std::unique_ptr<ChatTemplate> chat;
};

Result<Opened> open(const TemplateOptions& options) {
  if (options.model.empty() && options.template_file.empty()) {
    return invalid_argument("neither a model nor a template is given",
                            "pass -m MODEL, or --template FILE");
  }
  Opened opened;
  std::string bos;
  std::string eos;
  std::shared_ptr<GgufFile> file;
  if (!options.model.empty()) {
    file = TRY(GgufFile::open(options.model));
    opened.tokenizer = TRY(make_tokenizer(file->metadata()));
    const Vocab& vocab = opened.tokenizer->vocab();
    if (vocab.contains(vocab.special().bos)) bos = vocab.text(vocab.special().bos);
    if (vocab.contains(vocab.special().eos)) eos = vocab.text(vocab.special().eos);
  }
  if (options.template_file.empty()) {
    opened.chat = TRY(ChatTemplate::of_model(file->metadata(), opened.tokenizer->vocab()));
  } else {
    const std::string source = TRY(read_file(options.template_file));
    const Vocab* vocab = opened.tokenizer == nullptr ? nullptr : &opened.tokenizer->vocab();
    opened.chat = TRY(ChatTemplate::of_source(source, bos, eos, vocab));
  }
  return opened;
}

std::string to_json(const Opened& opened, const jinja::MarkedText& text) {
  OrderedJson object = {{"text", text.bytes}, {"template", opened.chat->name()}};
  if (!opened.chat->warning().empty()) object["warning"] = opened.chat->warning();
  OrderedJson spans = OrderedJson::array();
  for (const jinja::ByteRange& range : text.foreign) {
    spans.push_back({{"begin", range.begin}, {"end", range.end}});
  }
  object["from_input"] = spans;
  if (opened.tokenizer != nullptr) object["tokens"] = opened.chat->encode(*opened.tokenizer, text);
  return json_line(object);
}

Status run_template(const TemplateOptions& options, bool as_json) {
  ChatInput input;
  input.add_generation_prompt = !options.no_generation_prompt;
  input.now = options.now.empty() ? local_now() : TRY(parse_time(options.now));
  const std::string messages = TRY(read_file(options.messages_file));
  take_request(messages, input);
  if (options.variables != "{}") input.variables = options.variables;
  if (!options.tools_file.empty()) input.tools = TRY(read_file(options.tools_file));
  const Opened opened = TRY(open(options));
  const jinja::MarkedText text =
      TRY(options.fit ? opened.chat->render(input) : opened.chat->render_as_given(input));
  if (as_json) {
    fmt::print("{}", to_json(opened, text));
    return ok_status();
  }
  if (!opened.chat->warning().empty()) {
    fmt::print(stderr, "warning: {}\n", opened.chat->warning());
  }
  fmt::print("{}", text.bytes);
  return ok_status();
}

}  // namespace

void add_template_command(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<TemplateOptions>();
  CLI::App* command =
      app.add_subcommand("template", "Show the text that a conversation becomes for a model");
  command->add_option("-m,--model", options->model, "GGUF file; one without tensors will do")
      ->type_name("FILE")
      ->group("Model");
  const auto add = [&](const char* name, auto& target, const char* type, const char* text) {
    return command->add_option(name, target, text)->type_name(type)->group("Conversation");
  };
  add("--template", options->template_file, "FILE",
      "Jinja file in place of the model's template; - is standard input");
  add("--messages", options->messages_file, "FILE",
      "JSON file: a list of messages, or a request with one; - is standard input")
      ->required();
  add("--tools", options->tools_file, "FILE", "JSON file: the list of tools");
  add("--vars", options->variables, "JSON",
      "More variables of the template as a JSON object, such as '{\"enable_thinking\": false}'");
  add("--now", options->now, "TIME",
      "The time that the template sees, such as 2025-01-15T12:30:00 (default: now)");
  command
      ->add_flag("--no-generation-prompt", options->no_generation_prompt,
                 "End with the last message instead of the assistant's next turn")
      ->group("Conversation");
  command
      ->add_flag(
          "--fit", options->fit,
          "First put the messages into the form that the template takes, as run and chat do; "
          "else they are given to it as they are")
      ->group("Conversation");
  add_json_option(*command, context, "Print one JSON object");
  add_example(*command,
              "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | strata template -m model.gguf "
              "--messages -");
  command->callback([options, &context] {
    context.run = [options, &context] { return run_template(*options, context.json); };
  });
}

}  // namespace strata::cli
