#include "runtime/tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"

namespace strata {
namespace {

struct Entry {
  DType dtype;
  DTypeTraits traits;
};

constexpr std::array kTable = {
    Entry{DType::f32, {"F32", 1, 4, false}},
    Entry{DType::f16, {"F16", 1, 2, false}},
    Entry{DType::q4_0, {"Q4_0", 32, 18, true}},
    Entry{DType::q4_1, {"Q4_1", 32, 20, true}},
    Entry{DType::q5_0, {"Q5_0", 32, 22, true}},
    Entry{DType::q5_1, {"Q5_1", 32, 24, true}},
    Entry{DType::q8_0, {"Q8_0", 32, 34, true}},
    Entry{DType::q8_1, {"Q8_1", 32, 36, true}},
    Entry{DType::q2_k, {"Q2_K", 256, 84, true}},
    Entry{DType::q3_k, {"Q3_K", 256, 110, true}},
    Entry{DType::q4_k, {"Q4_K", 256, 144, true}},
    Entry{DType::q5_k, {"Q5_K", 256, 176, true}},
    Entry{DType::q6_k, {"Q6_K", 256, 210, true}},
    Entry{DType::q8_k, {"Q8_K", 256, 292, true}},
    Entry{DType::iq2_xxs, {"IQ2_XXS", 256, 66, true}},
    Entry{DType::iq2_xs, {"IQ2_XS", 256, 74, true}},
    Entry{DType::iq3_xxs, {"IQ3_XXS", 256, 98, true}},
    Entry{DType::iq1_s, {"IQ1_S", 256, 50, true}},
    Entry{DType::iq4_nl, {"IQ4_NL", 32, 18, true}},
    Entry{DType::iq3_s, {"IQ3_S", 256, 110, true}},
    Entry{DType::iq2_s, {"IQ2_S", 256, 82, true}},
    Entry{DType::iq4_xs, {"IQ4_XS", 256, 136, true}},
    Entry{DType::i8, {"I8", 1, 1, false}},
    Entry{DType::i16, {"I16", 1, 2, false}},
    Entry{DType::i32, {"I32", 1, 4, false}},
    Entry{DType::i64, {"I64", 1, 8, false}},
    Entry{DType::f64, {"F64", 1, 8, false}},
    Entry{DType::iq1_m, {"IQ1_M", 256, 56, true}},
    Entry{DType::bf16, {"BF16", 1, 2, false}},
    Entry{DType::tq1_0, {"TQ1_0", 256, 54, true}},
    Entry{DType::tq2_0, {"TQ2_0", 256, 66, true}},
    Entry{DType::mxfp4, {"MXFP4", 32, 17, true}},
};

}  // namespace

std::optional<DType> dtype_from_gguf(uint32_t number) {
  for (const Entry& entry : kTable) {
    if (static_cast<uint32_t>(entry.dtype) == number) return entry.dtype;
  }
  return std::nullopt;
}

const DTypeTraits& dtype_traits(DType dtype) {
  for (const Entry& entry : kTable) {
    if (entry.dtype == dtype) return entry.traits;
  }
  check_failed("known dtype", "no traits for this type", __FILE__, __LINE__);
}

std::string_view dtype_name(DType dtype) { return dtype_traits(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const Entry& entry : kTable) {
    if (entry.traits.name == upper) return entry.dtype;
  }
  return std::nullopt;
}

std::optional<uint64_t> row_bytes(DType dtype, int64_t elements) {
  const DTypeTraits& traits = dtype_traits(dtype);
  if (elements < 0 || elements % traits.block_elements != 0) return std::nullopt;
  return checked_mul(static_cast<uint64_t>(elements / traits.block_elements), traits.block_bytes);
}

}  // namespace strata
