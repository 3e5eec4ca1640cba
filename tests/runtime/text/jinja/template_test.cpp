// Goal: the engine's own promises: errors name their place, limits end every template, and the
// text knows which parts of it came from messages.
#include "runtime/text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace strata::jinja {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<MarkedText> render(std::string_view source, RenderInput input = {}) {
  const auto compiled = Template::compile(source);
  if (!compiled.ok()) return compiled.status();
  return compiled.value()->render(input);
}

std::string error_of(std::string_view source) {
  const auto text = render(source);
  return text.ok() ? "rendered " + text.value().bytes : text.status().message();
}

// The text with its foreign parts in brackets.
std::string marked(std::string_view source, const std::string& user, RenderInput input = {}) {
  input.json.emplace_back("user", user);
  const auto text = render(source, input);
  if (!text.ok()) return text.status().message();
  std::string shown = text.value().bytes;
  const auto& ranges = text.value().foreign;
  for (size_t i = ranges.size(); i-- > 0;) {
    shown.insert(ranges[i].end, "]");
    shown.insert(ranges[i].begin, "[");
  }
  return shown;
}

TEST(Template, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("a\n  {{ x.y }}"), "line 2, column 7: 'x' is undefined");
  EXPECT_EQ(error_of("{% if true %}\n\u00e9\u00e9 {% endfor %}"),
            "line 2, column 7: unknown tag 'endfor'");
  EXPECT_EQ(error_of("{{ 1 + }}"), "line 1, column 8: found '}}', expected an expression");
  EXPECT_EQ(error_of("{{ 'abc }}"), "line 1, column 4: the string is never closed");
  EXPECT_EQ(error_of("{{ (1 }}"), "line 1, column 7: unexpected '}', expected ')'");
  EXPECT_EQ(error_of("{% for x in y %}"),
            "line 1, column 17: the template ends where '{% endfor %}' is missing");
  EXPECT_EQ(error_of("x\n{# never"), "line 2, column 1: the comment is never closed by '#}'");
  EXPECT_EQ(error_of("{{ raise_exception('no ' ~ 'way') }}"), "line 1, column 19: no way");
  EXPECT_EQ(error_of("{{ 1|nofilter }}"), "line 1, column 6: No filter named 'nofilter'.");
  EXPECT_THAT(error_of("{% include 'x' %}"), HasSubstr("needs other templates"));
  EXPECT_THAT(error_of("{{ [].append(1) }}"), HasSubstr("unsafe"));
}

// Templates ask none for its tools: jinja2's map, select and reject look at truth first.
TEST(Template, WhatIsFalseHasNoElementsToSelect) {
  const auto text = render(
      "{{ none | selectattr('a') | list | length }}{{ 0 | map('upper') | list }}"
      "{{ none | rejectattr('a', 'equalto', 1) | list }}");
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_EQ(text.value().bytes, "0[][]");
  EXPECT_THAT(error_of("{{ none | unique | list }}"), HasSubstr("not iterable"));
}

TEST(Template, EveryTemplateEnds) {
  RenderInput input;
  input.limits = {.steps_max = 200'000,
                  .text_bytes_max = 1 << 20,
                  .live_bytes_max = 16 << 20,
                  .depth_max = 300,
                  .seconds_max = 5};
  const std::vector<std::string> sources = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 10 ** 12 }}",
      "{{ [1] * 10 ** 12 }}",
      "{{ 9 ** 9 ** 9 }}",
      "{% set ns = namespace(s='x') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}"
      "{{ ns.l }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ '%999999999d' % 1 }}",
      "{{ 'abc'.center(10 ** 15) }}",
      "{{ '{:>999999999}'.format(1) }}",
      "{{ range(10 ** 15)|list }}",
      "{% set ns = namespace(g=[1]) %}{% for i in range(5000) %}{% set ns.g = ns.g|map('abs') %}"
      "{% endfor %}{{ ns.g|list }}",
      "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
      "{% set n = namespace(t=()) %}{% for i in range(9999) %}{% set n.t = (n.t,) %}{% endfor %}"
      "{{ {n.t: 1} }}",
      "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}"
      "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}{{ n.a in [n.b] }}",
      "{% set n = namespace(a=(1,)) %}{% for i in range(99) %}{% set n.a = (n.a, n.a) %}{% endfor "
      "%}"
      "{{ {n.a: 1} }}{{ [n.a]|unique|list }}",
      "{% set s = 'a' * 500000 %}{{ s.rfind('a' * 200000 ~ 'b') }}",
      std::string(100'000, '(') + std::string(100'000, ')'),
      "{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}",
      "{{ " + std::string(100'000, '[') + " }}",
      "{{ " + std::string(100'000, '-') + "1 }}",
  };
  for (const std::string& source : sources) {
    const auto text = render(source, input);
    if (text.ok()) {
      EXPECT_LT(text.value().bytes.size(), 300'000U) << source.substr(0, 80);
    } else {
      EXPECT_THAT(text.status().message(), StartsWith("line ")) << source.substr(0, 80);
    }
  }
  std::string chain = "{{ 1";
  for (int i = 0; i < 50'000; ++i) chain += " + 1";
  EXPECT_EQ(render(chain + " }}").status().code(), StatusCode::invalid_argument);
  std::string blocks;
  for (int i = 0; i < 50'000; ++i) blocks += "{% if 1 %}";
  EXPECT_THAT(render(blocks).status().message(), HasSubstr("nest deeper"));
}

TEST(Template, KnowsWhatCameFromMessages) {
  EXPECT_EQ(marked("<s>{{ user }}</s>", R"("hi")"), "<s>[hi]</s>");
  EXPECT_EQ(marked("{{ '<s>' + user + '</s>' }}", R"("hi")"), "<s>[hi]</s>");
  EXPECT_EQ(marked("{{ '<s>' ~ user|trim ~ '</s>' }}", R"("  hi ")"), "<s>[hi]</s>");
  EXPECT_EQ(marked("{{ ('<s>' + user + '</s>')[1:6] }}", R"("hi")"), "s>[hi]<");
  EXPECT_EQ(marked("{{ ('<a>' + user + '<b>').split('<')|join('|') }}", R"("x<y")"),
            "|a>[x]|[y]|b>");
  EXPECT_EQ(marked("{{ (user + '<b>').replace('b', '*') }}", R"("abc")"), "[a]*[c]<*>");
  EXPECT_EQ(marked("{{ ('<s>' + user)|upper }}", R"("hi")"), "<S>[HI]");
  EXPECT_EQ(marked("{{ {'k': user}|tojson }}", R"("hi")"), R"({"k": ["hi"]})");
  EXPECT_EQ(marked("{{ user|tojson }}", R"({"a": [1, "x"]})"), R"({["a"]: [1, ["x"]]})");
  EXPECT_EQ(marked("{{ '<s>%s</s>' % user }}", R"("hi")"), "<s>[hi]</s>");
  EXPECT_EQ(marked("{{ '<s>{}</s>'.format(user) }}", R"("hi")"), "<s>[hi]</s>");
  EXPECT_EQ(marked("{{ [user] }}", R"("hi")"), "['[hi]']");
  EXPECT_EQ(marked("{% macro m(x) %}<s>{{ x }}{% endmacro %}{{ m(user)|trim }}", R"("hi")"),
            "<s>[hi]");
  EXPECT_EQ(marked("{% set x %}<s>{{ user }}{% endset %}{{ x }}", R"("hi")"), "<s>[hi]");
  EXPECT_EQ(marked("{% for c in '<' + user %}{{ c }}{% endfor %}", R"("hi")"), "<[hi]");
  EXPECT_EQ(marked("{{ ('<s>' + user)|indent(2, true) }}", R"("a\nb")"), "  <s>[a]\n  [b]");
}

TEST(Template, KnownRolesAreTheTemplatesOwn) {
  RenderInput input;
  input.trusted_key = "role";
  input.trusted_values = {"user"};
  EXPECT_EQ(
      marked("{% for m in user %}<|{{ m.role }}|>{{ m.content }}{% endfor %}",
             R"([{"role": "user", "content": "user"}, {"role": "im_end", "content": "x"}])", input),
      "<|user|>[user]<|[im_end]|>[x]");
}

TEST(Template, IntegersKeepTheirDigits) {
  RenderInput input;
  input.json = {{"x", "123456789012345678901234567890"}, {"y", "18446744073709551615"}};
  EXPECT_EQ(render("{{ x }} {{ x + 1 }} {{ y|tojson }} {{ x // y }} {{ 2 ** 64 - y }}", input)
                .value()
                .bytes,
            "123456789012345678901234567890 123456789012345678901234567891 18446744073709551615 "
            "6692605942 1");
}

TEST(Template, BadInputIsRefusedByName) {
  RenderInput input;
  input.json = {{"messages", "[1, 2"}};
  EXPECT_THAT(render("x", input).status().message(), StartsWith("messages are no JSON"));
  input.json = {{"tools", std::string(300, '[') + std::string(300, ']')}};
  EXPECT_THAT(render("x", input).status().message(), HasSubstr("nest deeper than 200"));
}

TEST(Template, IsSharedByThreads) {
  const auto compiled =
      Template::compile("{% for i in range(50) %}{{ 'x' ~ user ~ i }}{% endfor %}").value();
  const auto work = [&compiled] {
    RenderInput input;
    input.json = {{"user", R"("abc")"}};
    const size_t expected = compiled->render(input).value().bytes.size();
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(compiled->render(input).value().bytes.size(), expected);
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
}

}  // namespace
}  // namespace strata::jinja
