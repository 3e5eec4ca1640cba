#include "tests/runtime/grammar/grammar_support.h"

#include <gtest/gtest.h>

#include "runtime/grammar/matcher.h"

namespace strata::grammar::test {
namespace {

std::shared_ptr<const Pda> value_of(Result<std::shared_ptr<const Pda>> pda) {
  EXPECT_TRUE(pda.ok()) << pda.status().to_string();
  return pda.ok() ? pda.value() : regex("");
}

}  // namespace

std::shared_ptr<const Pda> schema(std::string_view text, Strictness strictness) {
  return value_of(compile_schema(text, strictness));
}
std::shared_ptr<const Pda> gbnf(std::string_view text) { return value_of(compile_gbnf(text)); }
std::shared_ptr<const Pda> regex(std::string_view text) { return value_of(compile_regex(text)); }

bool accepts(const std::shared_ptr<const Pda>& pda, std::string_view text) {
  Matcher matcher(pda);
  return matcher.accept(text) && matcher.can_end();
}

std::string wrong_verdict(const std::shared_ptr<const Pda>& pda,
                          std::initializer_list<std::string_view> accepted,
                          std::initializer_list<std::string_view> rejected) {
  for (const std::string_view text : accepted) {
    if (!accepts(pda, text)) return "should be accepted: " + std::string(text);
  }
  for (const std::string_view text : rejected) {
    if (accepts(pda, text)) return "should be rejected: " + std::string(text);
  }
  return "";
}

std::string schema_error(std::string_view text) {
  return compile_schema(text, Strictness::checking).status().message();
}
std::string gbnf_error(std::string_view text) { return compile_gbnf(text).status().message(); }
std::string regex_error(std::string_view text) { return compile_regex(text).status().message(); }

}  // namespace strata::grammar::test
