#include "runtime/text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "runtime/text/chat_families.h"
#include "runtime/text/chat_messages.h"

namespace strata {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::string token_text(const Vocab& vocab, int32_t id) {
  return vocab.contains(id) ? std::string(vocab.text(id)) : std::string();
}

// The variables object as names and JSON texts.
Result<std::vector<std::pair<std::string, std::string>>> split_variables(std::string_view text) {
  const nlohmann::ordered_json variables = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!variables.is_object()) {
    return invalid_argument("the template's variables are no JSON object");
  }
  std::vector<std::pair<std::string, std::string>> parts;
  for (const auto& [name, value] : variables.items()) parts.emplace_back(name, value.dump());
  return parts;
}

// "<think>" for "</think>", and the other way round; empty for what is no marker.
std::string twin_of(std::string_view marker) {
  if (marker.size() < 3 || (marker[0] != '<' && marker[0] != '[')) return {};
  if (marker.back() != (marker[0] == '<' ? '>' : ']')) return {};
  std::string twin(marker);
  if (twin[1] == '/') {
    twin.erase(1, 1);
  } else {
    twin.insert(1, 1, '/');
  }
  return twin;
}

// User-defined tokens that the template uses as markers; it may name only one of a pair.
std::vector<int32_t> frame_tokens(std::string_view source, const Vocab& vocab) {
  std::vector<int32_t> tokens;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (!vocab.is_user_defined(id)) continue;
    const std::string_view text = vocab.text(id);
    const std::string twin = twin_of(text);
    const bool is_known = !twin.empty() && (source.find(text) != std::string_view::npos ||
                                            source.find(twin) != std::string_view::npos);
    if (is_known) tokens.push_back(id);
  }
  return tokens;
}

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::of_source(std::string_view source,
                                                              std::string bos, std::string eos,
                                                              const Vocab* vocab) {
  std::unique_ptr<ChatTemplate> result(new ChatTemplate);
  result->compiled_ = TRY(jinja::Template::compile(source).with_context("chat template"));
  result->name_ = "model";
  result->bos_ = std::move(bos);
  result->eos_ = std::move(eos);
  if (vocab != nullptr) result->frame_tokens_ = frame_tokens(source, *vocab);
  result->find_traits();
  return result;
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::of_model(const Metadata& metadata,
                                                             const Vocab& vocab) {
  const std::string bos = token_text(vocab, vocab.special().bos);
  const std::string eos = token_text(vocab, vocab.special().eos);
  const std::string own = TRY(metadata.get_or<std::string>(kTemplateKey, ""));
  if (!own.empty()) {
    return of_source(own, bos, eos, &vocab).with_context(metadata.source());
  }
  const std::string model = TRY(metadata.get_or<std::string>("general.name", ""));
  const ChatFamily* family = chat_family_of(vocab, model);
  if (family == nullptr) {
    return unimplemented(
        fmt::format("{} has no chat template, and its vocabulary the markers of no family that "
                    "Strata knows",
                    metadata.source()),
        "use `strata run` with a plain prompt, or an instruction-tuned model");
  }
  std::unique_ptr<ChatTemplate> result = TRY(of_source(family->source, bos, eos, &vocab));
  result->name_ = family->name;
  result->warning_ = fmt::format("{} has no chat template, the one of the family '{}' is used",
                                 metadata.source(), family->name);
  return result;
}

Result<jinja::MarkedText> ChatTemplate::render_as_given(const ChatInput& input) const {
  return render_with(input, input.messages);
}

Result<jinja::MarkedText> ChatTemplate::render_with(const ChatInput& input,
                                                    std::string messages) const {
  jinja::RenderInput render;
  render.texts = {{"bos_token", bos_}, {"eos_token", eos_}};
  render.json = TRY(split_variables(input.variables));
  render.json.emplace_back("messages", std::move(messages));
  render.json.emplace_back("tools", input.tools.empty() ? "null" : input.tools);
  render.json.emplace_back("add_generation_prompt", input.add_generation_prompt ? "true" : "false");
  render.trusted_key = "role";
  render.trusted_values = known_roles();
  render.now = input.now;
  return compiled_->render(render).with_context("chat template");
}

Result<jinja::MarkedText> ChatTemplate::render(const ChatInput& input) const {
  return render_with(input, TRY(messages_for(traits_, input.messages, compiled_->source())));
}

bool ChatTemplate::renders(std::string_view messages, std::string_view wanted,
                           std::initializer_list<std::string_view> unwanted,
                           std::string_view tools) const {
  ChatInput input;
  input.tools = std::string(tools);
  input.now.tm_year = 125;
  input.now.tm_mday = 1;
  const auto text = render_with(input, std::string(messages));
  if (!text.ok()) return false;
  const std::string& bytes = text.value().bytes;
  return bytes.find(wanted) != std::string::npos &&
         std::all_of(unwanted.begin(), unwanted.end(),
                     [&](std::string_view word) { return bytes.find(word) == std::string::npos; });
}

void ChatTemplate::find_traits() {
  constexpr std::string_view kText = R"([{"role": "user", "content": "QNEEDLEQ"}])";
  constexpr std::string_view kParts =
      R"([{"role": "user", "content": [{"type": "text", "text": "QNEEDLEQ"}]}])";
  constexpr std::string_view kSystem =
      R"([{"role": "system", "content": "QNEEDLEQ"}, {"role": "user", "content": "u"}])";
  const auto call = [](std::string_view content, std::string_view arguments) {
    return fmt::format(
        R"([{{"role": "user", "content": "u"}}, {{"role": "assistant", "content": {}, )"
        R"("tool_calls": [{{"id": "call00001", "type": "function", "function": )"
        R"({{"name": "QNAMEQ", "arguments": {}}}}}]}}, )"
        R"({{"role": "tool", "name": "QNAMEQ", "tool_call_id": "call00001", "content": "r"}}])",
        content, arguments);
  };
  constexpr std::string_view kObject = R"({"QKEYQ": "QNEEDLEQ"})";
  constexpr std::string_view kString = R"("{\"QKEYQ\": \"QNEEDLEQ\"}")";
  constexpr std::string_view kTools =
      R"([{"type": "function", "function": {"name": "QTOOLQ", "description": "d", )"
      R"("parameters": {"type": "object", "properties": {}, "required": []}}}])";
  traits_.takes_text = renders(kText, "QNEEDLEQ");
  // Printed parts would show their keys.
  traits_.takes_parts = renders(kParts, "QNEEDLEQ", {"'text'", "\"text\""});
  traits_.takes_system = renders(kSystem, "QNEEDLEQ") || !traits_.takes_text;
  traits_.takes_tools = renders(kText, "QTOOLQ", {}, kTools);
  const bool objects = renders(call(R"("")", kObject), "QNEEDLEQ", {"'QKEYQ'"});
  const bool strings = renders(call(R"("")", kString), "QNEEDLEQ", {"\\\""});
  traits_.takes_tool_calls = objects || strings;
  traits_.takes_object_arguments = objects || !strings;
  traits_.takes_null = renders(call("null", objects ? kObject : kString), "QNAMEQ", {"None"});
}

std::string messages_json(const std::vector<ChatMessage>& messages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return dump_json(list);
}

std::tm local_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  ::localtime_r(&seconds, &now);
  return now;
}

std::vector<int32_t> ChatTemplate::encode(const Tokenizer& tokenizer,
                                          const jinja::MarkedText& text) const {
  std::vector<UntrustedRange> untrusted;
  for (const jinja::ByteRange& range : text.foreign) untrusted.push_back({range.begin, range.end});
  std::vector<int32_t> ids = tokenizer.encode(
      text.bytes, {.parse_special = true, .untrusted = untrusted, .barred = frame_tokens_});
  const int32_t bos = tokenizer.vocab().special().bos;
  const bool has_bos = !ids.empty() && ids[0] == bos;
  if (tokenizer.vocab().add_bos() && !has_bos) ids.insert(ids.begin(), bos);
  return ids;
}

}  // namespace strata
