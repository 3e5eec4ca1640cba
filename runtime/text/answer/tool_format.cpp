#include "runtime/text/answer/tool_format.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"

namespace strata {
namespace {

bool has(std::string_view source, std::string_view part) {
  return source.find(part) != std::string_view::npos;
}

void find_reasoning(std::string_view source, ToolFormat& format) {
  struct Pair {
    std::string_view begin;
    std::string_view end;
  };
  constexpr std::array<Pair, 4> kPairs = {{{"<think>", "</think>"},
                                           {"[THINK]", "[/THINK]"},
                                           {"<seed:think>", "</seed:think>"},
                                           {"<|START_THINKING|>", "<|END_THINKING|>"}}};
  for (const Pair& pair : kPairs) {
    // Some templates name the end only, since the beginning is the model's to write.
    if (!has(source, pair.begin) && !has(source, pair.end)) continue;
    format.think_begin = pair.begin;
    format.think_end = pair.end;
    return;
  }
}

}  // namespace

ToolFormat tool_format_of(std::string_view source, bool takes_tools) {
  ToolFormat format;
  format.template_writes_tools = takes_tools;
  find_reasoning(source, format);
  if (has(source, "<|channel|>") && has(source, "<|message|>")) {
    format.syntax = CallSyntax::channels;
  } else if (has(source, "<｜tool▁calls▁begin｜>")) {
    format.syntax = CallSyntax::deepseek;
    format.begin = "<｜tool▁calls▁begin｜>";
    format.end = "<｜tool▁calls▁end｜>";
    const bool is_fenced = has(source, "```json");
    format.name_begin =
        is_fenced ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" : "<｜tool▁call▁begin｜>";
    format.name_end = is_fenced ? "\n```json\n" : "<｜tool▁sep｜>";
    format.arguments_end = is_fenced ? "\n```<｜tool▁call▁end｜>" : "<｜tool▁call▁end｜>";
  } else if (has(source, "[TOOL_CALLS]")) {
    format.syntax = CallSyntax::mistral;
    format.begin = "[TOOL_CALLS]";
    if (has(source, "[ARGS]")) format.name_end = "[ARGS]";
  } else if (has(source, "<tool_call>")) {
    format.syntax = has(source, "<function=") ? CallSyntax::xml : CallSyntax::json_marked;
    format.begin = "<tool_call>";
    format.end = "</tool_call>";
  } else if (has(source, "<|tool_call|>")) {
    format.syntax = CallSyntax::json_marked;
    format.begin = "<|tool_call|>";
    if (has(source, "<|/tool_call|>")) format.end = "<|/tool_call|>";
  } else {
    format.begin = has(source, "<|python_tag|>") ? "<|python_tag|>" : "";
  }
  return format;
}

ToolFormat tool_format_of(const ChatTemplate& chat) {
  return tool_format_of(chat.source(), chat.traits().takes_tools);
}

std::vector<std::string> ToolFormat::markers() const {
  std::vector<std::string> all;
  for (const std::string& text : {begin, end, think_begin, think_end}) {
    if (!text.empty()) all.push_back(text);
  }
  if (syntax == CallSyntax::deepseek) {
    for (const char* text : {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"}) {
      all.emplace_back(text);
    }
  }
  if (syntax == CallSyntax::mistral) {
    for (const char* text : {"[ARGS]", "[CALL_ID]"}) all.emplace_back(text);
  }
  if (syntax == CallSyntax::channels) {
    for (const char* text : {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>",
                             "<|call|>", "<|return|>"}) {
      all.emplace_back(text);
    }
  }
  return all;
}

bool prompt_opens_reasoning(const ToolFormat& format, std::string_view prompt) {
  if (format.think_begin.empty()) return false;
  const size_t begin = prompt.rfind(format.think_begin);
  if (begin == std::string_view::npos) return false;
  const std::string_view behind = prompt.substr(begin + format.think_begin.size());
  return behind.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string tool_prompt(std::string_view tools_json) {
  std::string text =
      "You can call functions. To call one, answer with nothing but a JSON object of this form: "
      "{\"name\": the function's name, \"arguments\": an object with its arguments}. To call "
      "several, answer with a JSON list of such objects. Call a function only when it helps; "
      "otherwise answer in words. These are the functions:\n";
  const auto tools = nlohmann::ordered_json::parse(tools_json, nullptr, false);
  if (!tools.is_array()) return text;
  for (const auto& tool : tools) {
    const auto& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    text += dump_json(function);
    text += '\n';
  }
  return text;
}

}  // namespace strata
