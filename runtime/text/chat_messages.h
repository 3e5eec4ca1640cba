// Requests' messages in the form that a template takes, see chat_template.h.
//
// Threads: free functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/chat_template.h"

namespace strata {

// The names of roles that count as the template's own words.
const std::vector<std::string>& known_roles();

// The messages, checked and put into the template's form; unchanged text where nothing had to be
// changed. `source`: the template's, which may know the role "developer".
// Errors: INVALID_ARGUMENT naming the message.
Result<std::string> messages_for(const ChatTraits& traits, std::string_view messages,
                                 std::string_view source);

// The messages with `text` at the end of their system message, which is put first if there is none.
// Errors: INVALID_ARGUMENT for what is no list of messages.
Result<std::string> with_system_text(std::string_view messages, std::string_view text);

}  // namespace strata
