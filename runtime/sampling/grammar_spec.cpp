#include "runtime/sampling/grammar_spec.h"

namespace strata {

const char* grammar_kind_name(GrammarSpec::Kind kind) {
  switch (kind) {
    case GrammarSpec::Kind::json_schema:
      return "JSON schema";
    case GrammarSpec::Kind::gbnf:
      return "grammar";
    case GrammarSpec::Kind::regex:
      return "regular expression";
    case GrammarSpec::Kind::composed:
      return "composed grammar";
    case GrammarSpec::Kind::none:
      break;
  }
  return "none";
}

}  // namespace strata
