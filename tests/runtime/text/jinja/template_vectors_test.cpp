// Goal: templates render exactly as Python's jinja2 renders them in transformers' setting.
// Method: stored results. data/templates/chat: real models' templates over conversations;
// data/templates/vectors.json: many constructs, made by tests/scripts/make_template_vectors.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/text/jinja/template.h"

namespace strata::jinja {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::EndsWith;

const std::filesystem::path kData = std::filesystem::path(STRATA_TEST_DATA) / "templates";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::tm time_of(const std::string& iso) {
  std::tm time{};
  std::istringstream(iso) >> std::get_time(&time, "%Y-%m-%dT%H:%M:%S");
  time.tm_isdst = -1;
  std::mktime(&time);
  return time;
}

void expect_case(const Template& compiled, const Json& test, const RenderInput& input) {
  const Result<MarkedText> text = compiled.render(input);
  if (test.contains("error")) {
    ASSERT_FALSE(text.ok()) << "rendered: " << text.value().bytes;
    if (!test["error"].is_null()) {
      EXPECT_THAT(text.status().message(), EndsWith(": " + test["error"].get<std::string>()));
    }
    return;
  }
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_EQ(text.value().bytes, test["rendered"].get<std::string>());
}

class ChatTemplates : public ::testing::TestWithParam<std::string> {};

TEST_P(ChatTemplates, RenderAsPythonDoes) {
  const Json vectors = Json::parse(read_file(kData / "chat" / (GetParam() + ".json")));
  const auto compiled = Template::compile(read_file(kData / "chat" / (GetParam() + ".jinja")));
  ASSERT_TRUE(compiled.ok()) << compiled.status().to_string();
  ASSERT_FALSE(vectors["cases"].empty());
  for (const Json& test : vectors["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    RenderInput input;
    input.now = time_of(vectors["now"]);
    input.texts = {{"bos_token", vectors["bos_token"]}, {"eos_token", vectors["eos_token"]}};
    for (const auto& [name, value] : test["variables"].items()) {
      input.json.emplace_back(name, value.dump());
    }
    input.json.emplace_back("messages", test["messages"].dump());
    input.json.emplace_back("tools", test["tools"].dump());
    input.json.emplace_back("add_generation_prompt", test["add_generation_prompt"].dump());
    expect_case(*compiled.value(), test, input);
  }
}

std::vector<std::string> chat_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData / "chat")) {
    if (entry.path().extension() == ".jinja") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ChatTemplates, ::testing::ValuesIn(chat_names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST(TemplateVectors, RenderAsPythonDoes) {
  const Json vectors = Json::parse(read_file(kData / "vectors.json"));
  ASSERT_GT(vectors["cases"].size(), 300U);
  RenderInput input;
  input.now = time_of(vectors["now"]);
  for (const auto& [name, value] : vectors["variables"].items()) {
    input.json.emplace_back(name, value.get<std::string>());
  }
  for (const Json& test : vectors["cases"]) {
    const auto source = test["template"].get<std::string>();
    SCOPED_TRACE(source);
    const auto compiled = Template::compile(source);
    if (!compiled.ok()) {
      EXPECT_TRUE(test.contains("error")) << compiled.status().to_string();
      continue;
    }
    expect_case(*compiled.value(), test, input);
  }
}

}  // namespace
}  // namespace strata::jinja
