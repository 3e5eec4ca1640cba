#include "runtime/text/answer/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "runtime/text/answer/parameter_schema.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

Json sequence(std::vector<Json> nodes) { return {{"sequence", std::move(nodes)}}; }
Json choice(std::vector<Json> nodes) { return {{"choice", std::move(nodes)}}; }
Json repeat(Json node, int min = 0) { return {{"repeat", std::move(node)}, {"min", min}}; }
Json optional(Json node) { return choice({"", std::move(node)}); }
Json free_text(std::vector<std::string> without, std::vector<std::string> begins = {}) {
  Json node = {{"free", std::move(without)}};
  if (!begins.empty()) node["begins"] = std::move(begins);
  return node;
}
Json schema(const std::string& text, const Tool& tool) {
  return {{"schema", text}, {"name", "tool " + tool.name}};
}

// White space between the parts of a call, as models put it.
Json space() { return choice({"", " ", "\n", "\n  ", "\n    "}); }
Json line_ends() { return choice({"", "\n", "\n\n"}); }

Json parameters_of(const Tool& tool) {
  Json parameters = Json::parse(tool.parameters, nullptr, false);
  if (!parameters.is_object()) parameters = Json::object();
  if (!parameters.contains("type")) parameters["type"] = "object";
  return parameters;
}

Json arguments_of(const Tool& tool) { return schema(dump_json(parameters_of(tool)), tool); }

class CallGrammar {
 public:
  CallGrammar(const ToolFormat& format, const std::vector<Tool>& tools, bool exactly_one)
      : format_(format), tools_(tools), exactly_one_(exactly_one) {}

  // One call, or one and more.
  Json calls() const {
    switch (format_.syntax) {
      case CallSyntax::json_bare:
        return sequence({format_.begin.empty() ? Json("") : optional(format_.begin), bare()});
      case CallSyntax::json_marked:
        if (format_.end.empty()) return sequence({format_.begin, space(), bare()});
        return some(sequence({format_.begin, space(), any_object(), space(), format_.end}),
                    line_ends());
      case CallSyntax::mistral:
        if (!format_.name_end.empty()) return some(sequence({format_.begin, any_named()}), "");
        return sequence({format_.begin, space(), "[", some(any_object(), comma()), "]"});
      case CallSyntax::deepseek:
        return sequence({format_.begin, some(any_named(), line_ends()), format_.end});
      case CallSyntax::xml:
        return some(sequence({format_.begin, "\n", any_function(), "\n", format_.end}),
                    line_ends());
      case CallSyntax::channels:
        break;
    }
    return any_message();
  }

  // Beginnings that nothing but a bare call has.
  std::vector<std::string> bare_beginnings() const {
    std::vector<std::string> all;
    for (const Tool& tool : tools_) {
      for (const char* frame : {"{{\"name\": {}", "{{\"name\":{}", "[{{\"name\": {}"}) {
        all.push_back(fmt::format(fmt::runtime(frame), dump_json(Json(tool.name))));
      }
    }
    return all;
  }

 private:
  static Json comma() { return sequence({",", space()}); }

  // The node, and if there may be more than one, that again behind `between`.
  Json some(const Json& node, const Json& between) const {
    if (exactly_one_) return node;
    return sequence({node, repeat(sequence({between, node}))});
  }

  template <typename Make>
  Json any(Make make) const {
    std::vector<Json> nodes;
    for (const Tool& tool : tools_) nodes.push_back(make(tool));
    return choice(std::move(nodes));
  }

  // {"name": "f", "arguments": {...}}
  Json any_object() const {
    const char* key = format_.begin == "<|python_tag|>" ? "\"parameters\":" : "\"arguments\":";
    return any([&](const Tool& tool) {
      return sequence({"{", space(), "\"name\":", space(), dump_json(Json(tool.name)), ",", space(),
                       key, space(), arguments_of(tool), space(), "}"});
    });
  }
  Json bare() const {
    if (exactly_one_) return any_object();
    return choice({any_object(), sequence({"[", some(any_object(), comma()), "]"})});
  }
  Json any_named() const {
    return any([&](const Tool& tool) {
      return sequence({format_.name_begin + tool.name + format_.name_end, arguments_of(tool),
                       format_.arguments_end});
    });
  }

  Json any_function() const {
    return any([&](const Tool& tool) {
      std::vector<Json> parts = {"<function=" + tool.name + ">\n"};
      const Json parameters = parameters_of(tool);
      if (!parameters.contains("properties") || !parameters["properties"].is_object()) {
        parts.push_back(repeat(parameter(free_text({">", "<", "\n"}), any_value())));
      } else {
        for (const auto& [key, property] : parameters["properties"].items()) {
          Json one = parameter(key, value_of(tool, parameters, property));
          parts.push_back(is_required(parameters, key) ? std::move(one) : optional(std::move(one)));
        }
      }
      parts.emplace_back("</function>");
      return sequence(std::move(parts));
    });
  }
  static Json parameter(Json key, Json value) {
    return sequence({"<parameter=", std::move(key), ">\n", std::move(value), "\n</parameter>\n"});
  }
  static bool is_required(const Json& parameters, const std::string& key) {
    if (!parameters.contains("required") || !parameters["required"].is_array()) return false;
    const Json& required = parameters["required"];
    return std::find(required.begin(), required.end(), Json(key)) != required.end();
  }
  static Json any_value() { return free_text({"</parameter>"}); }
  static Json value_of(const Tool& tool, const Json& parameters, const Json& property) {
    if (!is_text_parameter(property)) {
      if (!property.is_object()) return any_value();
      Json own = property;
      for (const char* definitions : {"$defs", "definitions"}) {
        if (parameters.contains(definitions)) own[definitions] = parameters[definitions];
      }
      return schema(dump_json(own), tool);
    }
    if (!property.contains("enum") || !property["enum"].is_array()) return any_value();
    std::vector<Json> words;
    for (const Json& word : property["enum"]) {
      if (word.is_string()) words.push_back(word);
    }
    return choice(std::move(words));
  }

  Json any_message() const {
    const Json type = choice({"", " json", " <|constrain|>json"});
    return any([&](const Tool& tool) {
      const std::string recipient = " to=functions." + tool.name;
      return sequence(
          {choice({"<|channel|>commentary" + recipient, recipient + "<|channel|>commentary"}), type,
           "<|message|>", arguments_of(tool)});
    });
  }

  const ToolFormat& format_;
  const std::vector<Tool>& tools_;
  const bool exactly_one_;
};

// gpt-oss: messages one after the other, the last of which is the call or the answer.
Json channels_answer(const ToolFormat& format, const Json& calls, bool required) {
  const Json text = free_text(format.markers());
  // Where there must be a call there are no words to the user before it.
  const Json channel = required ? Json("<|channel|>analysis")
                                : choice({"<|channel|>analysis", "<|channel|>commentary"});
  const Json before = sequence({channel, "<|message|>", text, "<|end|><|start|>assistant"});
  const Json last =
      required ? calls : choice({calls, sequence({"<|channel|>final<|message|>", text})});
  return sequence({repeat(before), last});
}

// Words, and calls wherever their marker comes.
Json automatic_answer(const ToolFormat& format, const CallGrammar& grammar) {
  if (format.syntax == CallSyntax::json_bare) {
    Json words = free_text({}, grammar.bare_beginnings());
    if (!format.begin.empty()) words["free"].push_back(format.begin);
    return choice({grammar.calls(), std::move(words)});
  }
  const Json words = free_text({format.begin});
  return sequence({words, repeat(sequence({grammar.calls(), words}))});
}

Json with_reasoning(const ToolFormat& format, const Json& answer, bool required, bool is_open) {
  if (format.think_begin.empty()) return answer;
  const Json behind = sequence({format.think_end, line_ends(), answer});
  const Json reasoned =
      sequence({free_text({format.think_end}), required ? behind : optional(behind)});
  if (is_open) return reasoned;
  return choice({answer, sequence({line_ends(), format.think_begin, reasoned})});
}

}  // namespace

std::string tool_grammar(const ToolFormat& format, const std::vector<Tool>& tools,
                         const ToolChoice& choice, bool starts_in_reasoning) {
  if (tools.empty() || choice.kind == ToolChoice::Kind::none) return {};
  const bool exactly_one = choice.kind == ToolChoice::Kind::one;
  std::vector<Tool> allowed;
  for (const Tool& tool : tools) {
    if (!exactly_one || tool.name == choice.name) allowed.push_back(tool);
  }
  const bool required = choice.kind != ToolChoice::Kind::automatic;
  const CallGrammar grammar(format, allowed, exactly_one);
  Json root;
  if (format.syntax == CallSyntax::channels) {
    root = channels_answer(format, grammar.calls(), required);
  } else {
    root = with_reasoning(format, required ? grammar.calls() : automatic_answer(format, grammar),
                          required, starts_in_reasoning);
  }
  return dump_json(Json{{"markers", format.markers()}, {"root", std::move(root)}});
}

}  // namespace strata
