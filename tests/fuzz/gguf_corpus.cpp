#include "tests/fuzz/corpus.h"
#include "tests/support/gguf_writer.h"

namespace strata::fuzz {

// Small files: most mutations then hit a field and not a tensor's data.
std::vector<std::string> corpus() {
  using test::array_bytes;
  using test::bytes_of;
  using test::GgufWriter;
  std::vector<std::string> files;
  files.push_back(test::make_base_model().header());

  GgufWriter small;
  small.set_string("general.architecture", "llama");
  small.set_u32("general.alignment", 64);
  small.alignment = 64;
  small.set_strings("tokens", {"a", "", "\xE2\x96\x81the", std::string("\0", 1)});
  small.set("mixed", ValueType::array, array_bytes(12, 2, bytes_of(1.0) + bytes_of(-2.0)));
  small.set("u64", ValueType::u64, bytes_of<uint64_t>(1));
  small.set_bool("flag", true);
  small.add_f32_tensor("a", {3});
  small.add_f32_tensor("b.weight", {2, 3, 2, 1});
  small.add_tensor("q", DType::q4_0, {32, 2}, std::string(36, '\x11'));
  small.add_tensor("k", DType::q4_k, {256}, std::string(144, '\x22'));
  files.push_back(small.build());
  small.version = 2;
  small.erase("mixed");
  files.push_back(small.build());

  GgufWriter none;
  none.set_string("general.architecture", "bert");
  none.set("split.count", ValueType::u16, bytes_of<uint16_t>(2));
  files.push_back(none.build());
  return files;
}

}  // namespace strata::fuzz
