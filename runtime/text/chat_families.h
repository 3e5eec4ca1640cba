// Templates for models whose file has none, chosen by the markers in their vocabulary.
//
// They are the common core of what such models' own templates write: system, user and assistant
// turns, without tools. Own words; the markers are the models'.
//
// Threads: constants and free functions, any thread.
#pragma once

#include <string_view>

#include "runtime/text/vocab.h"

namespace strata {

struct ChatFamily {
  std::string_view name;
  std::string_view source;  // Jinja
};

// Null if the vocabulary has the markers of none.
// `model_name`: general.name, which tells Llama 2's chat models from plain ones.
const ChatFamily* chat_family_of(const Vocab& vocab, std::string_view model_name);

}  // namespace strata
