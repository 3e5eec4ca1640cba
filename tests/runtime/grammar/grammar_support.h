// Short ways to say "this grammar takes that text" for the tests of runtime/grammar.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/grammar/grammar.h"

namespace strata::grammar::test {

// Fails the test if the grammar does not compile.
std::shared_ptr<const Pda> schema(std::string_view text,
                                  Strictness strictness = Strictness::checking);
std::shared_ptr<const Pda> gbnf(std::string_view text);
std::shared_ptr<const Pda> regex(std::string_view text);

bool accepts(const std::shared_ptr<const Pda>& pda, std::string_view text);
// "" if all of `accepted` fit and none of `rejected` does, else the first that is wrong.
std::string wrong_verdict(const std::shared_ptr<const Pda>& pda,
                          std::initializer_list<std::string_view> accepted,
                          std::initializer_list<std::string_view> rejected);

// The error's message; "" if it compiles.
std::string schema_error(std::string_view text);
std::string gbnf_error(std::string_view text);
std::string regex_error(std::string_view text);

}  // namespace strata::grammar::test
