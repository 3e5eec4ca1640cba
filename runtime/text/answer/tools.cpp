#include "runtime/text/answer/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"
#include "runtime/text/answer/parameter_schema.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

// Each is compared with the others, and named to the model.
constexpr size_t kToolsMax = 1000;

bool is_absent(std::string_view text) { return text.empty() || text == "null"; }

Result<Tool> parse_tool(const Json& entry, size_t index) {
  const auto wrong = [index](std::string_view what) {
    return invalid_argument(fmt::format("tools[{}]{}", index, what));
  };
  if (!entry.is_object()) return wrong(" is no object");
  const Json& function = entry.contains("function") ? entry["function"] : entry;
  if (!function.is_object()) return wrong(".function is no object");
  if (!function.contains("name") || !function["name"].is_string() ||
      function["name"].get_ref<const std::string&>().empty()) {
    return wrong(" has no name");
  }
  Tool tool{.name = function["name"], .description = "", .parameters = "{}"};
  if (function.contains("description") && function["description"].is_string()) {
    tool.description = function["description"];
  }
  if (function.contains("parameters") && !function["parameters"].is_null()) {
    if (!function["parameters"].is_object()) return wrong(".parameters is no JSON Schema object");
    tool.parameters = dump_json(function["parameters"]);
  }
  return tool;
}

}  // namespace

Result<std::vector<Tool>> parse_tools(std::string_view tools_json) {
  std::vector<Tool> tools;
  if (is_absent(tools_json)) return tools;
  TRY(check_nesting(tools_json, "tools"));
  const Json list = Json::parse(tools_json, nullptr, false);
  if (!list.is_array()) return invalid_argument("tools is no JSON list");
  if (list.size() > kToolsMax) {
    return invalid_argument(
        fmt::format("{} tools, at most {} are supported", list.size(), kToolsMax));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    Tool tool = TRY(parse_tool(list[i], i));
    const bool doubled = std::any_of(tools.begin(), tools.end(),
                                     [&](const Tool& other) { return other.name == tool.name; });
    if (doubled) {
      return invalid_argument(
          fmt::format("tools[{}]: the name '{}' stands twice", i, printable(tool.name)));
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}

Result<ToolChoice> parse_tool_choice(std::string_view choice_json, const std::vector<Tool>& tools) {
  if (is_absent(choice_json)) return ToolChoice{};
  TRY(check_nesting(choice_json, "tool_choice"));
  const Json choice = Json::parse(choice_json, nullptr, false);
  ToolChoice result;
  if (choice == "none") {
    result.kind = ToolChoice::Kind::none;
  } else if (choice == "required") {
    result.kind = ToolChoice::Kind::required;
  } else if (choice.is_object() && choice.contains("function") && choice["function"].is_object() &&
             choice["function"].contains("name") && choice["function"]["name"].is_string()) {
    result = {.kind = ToolChoice::Kind::one, .name = choice["function"]["name"]};
  } else if (choice != "auto") {
    return invalid_argument(
        "tool_choice must be \"none\", \"auto\", \"required\" or an object with function.name");
  }
  const bool is_there = result.kind != ToolChoice::Kind::one ||
                        std::any_of(tools.begin(), tools.end(),
                                    [&](const Tool& tool) { return tool.name == result.name; });
  if (!is_there) {
    return invalid_argument(
        fmt::format("tool_choice names '{}', which is not in tools", printable(result.name)));
  }
  if (result.kind == ToolChoice::Kind::required && tools.empty()) {
    return invalid_argument("tool_choice is \"required\", and there are no tools");
  }
  return result;
}

std::string wrapped_tools(std::string_view tools_json) {
  Json list = Json::parse(tools_json, nullptr, false);
  for (Json& entry : list) {
    if (!entry.contains("function")) entry = Json{{"type", "function"}, {"function", entry}};
  }
  return dump_json(list);
}

AnswerOptions answer_options(const std::vector<Tool>& tools, const ToolChoice& choice) {
  AnswerOptions options;
  options.parse_calls = !tools.empty() && choice.kind != ToolChoice::Kind::none;
  for (const Tool& tool : tools) {
    options.tool_names.push_back(tool.name);
    const Json schema = Json::parse(tool.parameters, nullptr, false);
    if (!schema.is_object() || !schema.contains("properties") ||
        !schema["properties"].is_object()) {
      continue;
    }
    for (const auto& [name, property] : schema["properties"].items()) {
      if (!is_text_parameter(property)) options.parsed_parameters.push_back(tool.name + "." + name);
    }
  }
  return options;
}

}  // namespace strata
