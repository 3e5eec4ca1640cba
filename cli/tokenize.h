// `strata tokenize`: text to token ids and back with a model's vocabulary, for people and programs.
// Works with any file that has a tokenizer, also without tensors.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "runtime/text/tokenizer.h"

namespace strata::cli {

struct TokenizeOptions {
  bool special = false;     // read and show special tokens by their texts
  bool add = false;         // begin and end with what the model wants
  bool detokenize = false;  // ids to text
};

// A JSON list of strings to a list of id lists or, to detokenize, the other way round. Bytes that
// are no UTF-8 in a decoded text become U+FFFD.
// Errors: INVALID_ARGUMENT with the place, for what is no JSON, another type or an id outside the
// vocabulary.
Result<nlohmann::json> tokenize_json(const Tokenizer& tokenizer, std::string_view input,
                                     const TokenizeOptions& options);

// One text as a table of ids and pieces or, to detokenize, ids apart by spaces or commas as text.
Result<std::string> tokenize_text(const Tokenizer& tokenizer, std::string_view input,
                                  const TokenizeOptions& options);

void add_tokenize_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
