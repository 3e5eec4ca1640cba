#include "backends/cpu/isa.h"

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace strata::cpu {
namespace {

struct Features {
  bool avx2 = false;
  bool avx2_vnni = false;
  bool avx512 = false;
  bool avx512_vnni = false;
};

#if defined(__x86_64__)

// The register sets that the operating system saves, XCR0. Requires OSXSAVE.
uint64_t saved_register_sets() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Source: Intel SDM volume 2A, CPUID; volume 1, chapters 14.3 (AVX) and 15.2 (AVX-512).
Features find_features() {
  Features found;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return found;
  const bool os_saves = (ecx & bit_OSXSAVE) != 0;
  const bool basics = (ecx & bit_AVX) != 0 && (ecx & bit_FMA) != 0 && (ecx & bit_F16C) != 0;
  if (!os_saves || !basics) return found;
  const uint64_t saved = saved_register_sets();
  constexpr uint64_t kYmm = 0x6;          // XMM and YMM
  constexpr uint64_t kZmm = kYmm | 0xe0;  // and masks, ZMM, the upper 16
  if ((saved & kYmm) != kYmm) return found;

  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return found;
  const unsigned max_subleaf = eax;
  constexpr unsigned kAvx512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);  // F DQ BW VL
  found.avx2 = (ebx & (1u << 5)) != 0;
  found.avx512 = found.avx2 && (ebx & kAvx512) == kAvx512 && (saved & kZmm) == kZmm;
  found.avx512_vnni = found.avx512 && (ecx & (1u << 11)) != 0;
  if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
    found.avx2_vnni = found.avx2 && (eax & (1u << 4)) != 0;
  }
  return found;
}

#else

Features find_features() { return {}; }

#endif

bool has(const Features& features, Isa isa) {
  switch (isa.level) {
    case IsaLevel::scalar:
      return !isa.vnni;
    case IsaLevel::avx2:
      return features.avx2 && (!isa.vnni || features.avx2_vnni);
    case IsaLevel::avx512:
      return features.avx512 && (!isa.vnni || features.avx512_vnni);
  }
  return false;
}

}  // namespace

std::string isa_name(Isa isa) {
  constexpr std::string_view kNames[] = {"scalar", "avx2", "avx512"};
  return fmt::format("{}{}", kNames[static_cast<int>(isa.level)], isa.vnni ? "+vnni" : "");
}

std::vector<Isa> available_isas() {
  const Features features = find_features();
  std::vector<Isa> isas;
  for (const IsaLevel level : {IsaLevel::scalar, IsaLevel::avx2, IsaLevel::avx512}) {
    for (const bool vnni : {false, true}) {
      const Isa isa{level, vnni};
      if (has(features, isa)) isas.push_back(isa);
    }
  }
  return isas;
}

Isa detect_isa() { return available_isas().back(); }

Result<Isa> choose_isa(std::string_view name) {
  if (name.empty() || name == "auto") return detect_isa();
  std::string_view level_name = name;
  std::string_view suffix;
  if (const size_t at = name.find_first_of("+-"); at != std::string_view::npos) {
    level_name = name.substr(0, at);
    suffix = name.substr(at);
  }
  Isa isa;
  if (level_name == "avx2") {
    isa.level = IsaLevel::avx2;
  } else if (level_name == "avx512") {
    isa.level = IsaLevel::avx512;
  } else if (level_name != "scalar") {
    return invalid_argument(fmt::format("\"{}\" is no vector path", name),
                            "choose scalar, avx2 or avx512");
  }
  if (!suffix.empty() && suffix != "+vnni" && suffix != "-vnni") {
    return invalid_argument(fmt::format("\"{}\" is no vector path", name),
                            "after the path's name only +vnni or -vnni may follow");
  }
  const Features features = find_features();
  if (suffix.empty()) {
    isa.vnni = isa.level != IsaLevel::scalar && has(features, {isa.level, true});
  } else {
    isa.vnni = suffix == "+vnni";
  }
  if (!has(features, isa)) {
    return failed_precondition(
        fmt::format("this processor has no {}", isa_name(isa)),
        fmt::format("the best here is {}; leave the choice to strata", isa_name(detect_isa())));
  }
  return isa;
}

}  // namespace strata::cpu
