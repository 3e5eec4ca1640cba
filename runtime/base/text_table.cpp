#include "runtime/base/text_table.h"

#include <algorithm>

namespace strata {

// UTF-8 continuation bytes take no place.
size_t shown_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], shown_width(row[c]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string gap(widths[c] - shown_width(row[c]), ' ');
      const bool to_right = std::find(right.begin(), right.end(), c) != right.end();
      line += to_right ? gap + row[c] : row[c] + gap;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace strata
