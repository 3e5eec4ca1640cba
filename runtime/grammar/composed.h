// Composed grammars: texts, JSON schemas and free text put together, as an answer with tool calls
// in it needs it (runtime/text/answer/tool_grammar.h writes them).
//
//   {"markers": [TEXT, ...], "root": NODE}
//
//   NODE   "text"                                      exactly that
//          {"schema": TEXT, "name": TEXT}              JSON that fits the schema in TEXT; the
//                                                      name, if any, is for errors
//          {"free": [TEXT, ...], "begins": [TEXT, ...]}  any text that none of the first stands in
//                                                      and that begins with none of the second
//          {"sequence": [NODE, ...]}  {"choice": [NODE, ...]}
//          {"repeat": NODE, "min": NUMBER}             so often or more
//
// Markers are texts of control tokens, which no other grammar lets a model write. Names that a
// schema does not list may come twice in one object: KeyTracker knows whole JSON documents only.
//
// Threads: any.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/grammar/pda.h"

namespace strata::grammar {

// Schemas are spelled as a model should write them (Strictness::generation). Errors:
// INVALID_ARGUMENT for a text that is none of these or matches nothing; those of compile_schema().
Result<std::shared_ptr<const Pda>> compile_composed(std::string_view text);

}  // namespace strata::grammar
