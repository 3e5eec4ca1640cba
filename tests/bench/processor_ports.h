// How many steps of machine_bench's arithmetic a core can begin in a cycle, by its ports.
#pragma once

#include <cstdint>
#include <string>

namespace strata::bench {

struct ProcessorId {
  std::string vendor;  // as CPUID has it: "GenuineIntel"
  int family = 0;
  int model = 0;
};
ProcessorId this_processor();

// Steps a cycle; 0: the family lacks the instruction, or is not known to do it at a certain rate.
struct Ports {
  const char* family = "";
  double f32_256 = 0;   // vfmadd*ps ymm
  double dot_256 = 0;   // vpdpbusd ymm of AVX-VNNI
  double madd_256 = 0;  // vpmaddubsw, vpmaddwd and vpaddd ymm
  double f32_512 = 0;   // the same with zmm
  double dot_512 = 0;
  double madd_512 = 0;
};

// All zeros for a family that is not in the table.
// Source: Intel 64 and IA-32 Architectures Optimization Reference Manual; AMD's Software
// Optimization Guides for families 17h, 19h and 1Ah; uops.info.
Ports ports_of(const ProcessorId& id);

}  // namespace strata::bench
