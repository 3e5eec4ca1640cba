#include "tests/bench/processor_ports.h"

#include <cpuid.h>

#include <cstring>
#include <initializer_list>

namespace strata::bench {
namespace {

struct Family {
  const char* vendor;
  int family;
  int first_model;
  int last_model;
  Ports ports;
};

constexpr const char* kIntel = "GenuineIntel";
constexpr const char* kAmd = "AuthenticAMD";
// Integer multiplies go to one port, which each step needs twice; adds elsewhere.
constexpr Ports kHaswell = {"Haswell or Broadwell", 2, 0, 0.5, 0, 0, 0};
constexpr Ports kSkylake = {"Skylake", 2, 0, 1, 0, 0, 0};
// With 512 bits ports 0 and 1 are one, and 5 is the other: three instructions take 1.5 cycles.
constexpr Ports kSkylakeServer = {"Skylake to Cooper Lake server", 2, 0, 1, 2, 2, 2.0 / 3};
constexpr Ports kIceLakeServer = {"Ice Lake server", 2, 0, 1, 2, 2, 2.0 / 3};
constexpr Ports kGoldenCoveServer = {"Sapphire, Emerald or Granite Rapids", 2, 2, 1, 2, 2, 2.0 / 3};
constexpr Ports kAlderLake = {"Alder or Raptor Lake", 2, 2, 1, 0, 0, 0};
constexpr Ports kZen2 = {"Zen 2", 2, 0, 0, 0, 0, 0};
constexpr Ports kZen3 = {"Zen 3", 2, 0, 1, 0, 0, 0};
// 512 bits pass through 256 bits' pipes in two halves.
constexpr Ports kZen4 = {"Zen 4", 2, 0, 1, 1, 1, 0.5};
constexpr Ports kZen5 = {"Zen 5 with 512-bit pipes", 2, 2, 1, 2, 2, 1};

constexpr Family kFamilies[] = {
    {kIntel, 6, 60, 60, kHaswell},
    {kIntel, 6, 61, 61, kHaswell},
    {kIntel, 6, 63, 63, kHaswell},
    {kIntel, 6, 69, 71, kHaswell},
    {kIntel, 6, 79, 79, kHaswell},
    {kIntel, 6, 86, 86, kHaswell},
    {kIntel, 6, 78, 78, kSkylake},
    {kIntel, 6, 94, 94, kSkylake},
    {kIntel, 6, 142, 142, kSkylake},
    {kIntel, 6, 158, 158, kSkylake},
    {kIntel, 6, 165, 166, kSkylake},
    {kIntel, 6, 85, 85, kSkylakeServer},
    {kIntel, 6, 106, 106, kIceLakeServer},
    {kIntel, 6, 108, 108, kIceLakeServer},
    {kIntel, 6, 143, 143, kGoldenCoveServer},
    {kIntel, 6, 207, 207, kGoldenCoveServer},
    {kIntel, 6, 173, 174, kGoldenCoveServer},
    {kIntel, 6, 151, 151, kAlderLake},
    {kIntel, 6, 154, 154, kAlderLake},
    {kIntel, 6, 183, 183, kAlderLake},
    {kIntel, 6, 186, 186, kAlderLake},
    {kIntel, 6, 191, 191, kAlderLake},
    {kAmd, 0x17, 0x30, 0xff, kZen2},
    {kAmd, 0x19, 0x00, 0x0f, kZen3},
    {kAmd, 0x19, 0x20, 0x5f, kZen3},
    {kAmd, 0x19, 0x10, 0x1f, kZen4},
    {kAmd, 0x19, 0x60, 0x7f, kZen4},
    {kAmd, 0x19, 0xa0, 0xaf, kZen4},
    {kAmd, 0x1a, 0x00, 0x1f, kZen5},
    {kAmd, 0x1a, 0x40, 0x4f, kZen5},
};

}  // namespace

ProcessorId this_processor() {
  ProcessorId id;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return id;
  for (const unsigned part : {ebx, edx, ecx}) {
    char letters[sizeof(part)];
    std::memcpy(letters, &part, sizeof(part));
    id.vendor.append(letters, sizeof(letters));
  }
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return id;
  id.family = static_cast<int>((eax >> 8) & 0xf);
  id.model = static_cast<int>((eax >> 4) & 0xf);
  if (id.family == 6 || id.family == 15) id.model += static_cast<int>((eax >> 12) & 0xf0);
  if (id.family == 15) id.family += static_cast<int>((eax >> 20) & 0xff);
  return id;
}

Ports ports_of(const ProcessorId& id) {
  for (const Family& family : kFamilies) {
    if (id.vendor == family.vendor && id.family == family.family &&
        id.model >= family.first_model && id.model <= family.last_model) {
      return family.ports;
    }
  }
  return {};
}

}  // namespace strata::bench
