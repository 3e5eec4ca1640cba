// Rows of cells as aligned columns, for terminals and logs. Threads: any.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// Cells that a terminal takes for the text: code points, wide and combining ones not told apart.
size_t shown_width(std::string_view text);

// The first row is the head. Columns have two spaces between them and none at the end; those in
// `right` are aligned to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right = {});

}  // namespace strata
