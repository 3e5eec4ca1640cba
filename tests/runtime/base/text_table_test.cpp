// Tables as people see them.
#include "runtime/base/text_table.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(TextTable, AlignsColumnsByWhatIsShown) {
  EXPECT_EQ(table_text({{"name", "size"}, {"ä-ö", "12"}, {"longer", "3"}}, {1}),
            "name    size\n"
            "ä-ö       12\n"
            "longer     3\n");
  EXPECT_EQ(table_text({}), "");
  EXPECT_EQ(table_text({{"a", ""}}), "a\n");
  EXPECT_EQ(shown_width("µs — ok"), 7U);
}

}  // namespace
}  // namespace strata
