// The web page's text, as the build joined it (join_page.cmake). For web_page.cpp only.
#pragma once

#include <string_view>

namespace strata::serve {

extern const std::string_view kPageText;

}  // namespace strata::serve
