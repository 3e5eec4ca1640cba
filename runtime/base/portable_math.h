// exp, log, pow, sin and cos with the same bits on every machine.
//
// glibc picks another variant of these per processor, and so the last bit of a rope table or of a
// sampling probability would depend on where a stage runs. These functions use only the four IEEE
// operations on double and fma, each rounded once (the build sets -ffp-contract=off), in a fixed
// order. Everything between token ids and the sampled token that is not a kernel's own vector code
// calls them. They are a few times slower than glibc's: meant for tables and for a row of logits,
// not for inner loops over activations.
//
// The stated errors are against the exact result and are tested against long double.
// Threads: any. Total: no input traps or sets errno.
#pragma once

#include <span>

namespace strata {

// e^x. Error: below 1 ulp. 0 below -745.2, +inf above 709.8; subnormal results are rounded.
double portable_exp(double x);

// Each x replaced by e^x, with portable_exp's bits; several at a time, for a row of logits.
// Requires: every x <= 0 (-inf is fine).
void portable_exp_of_nonpositive(std::span<double> values);

// Natural logarithm. Error: below 1 ulp. -inf for 0, NaN for negative x.
double portable_log(double x);

// x^y for x >= 0. Error: below 1 ulp. x^0 is 1 and 0^y is 0 or +inf, as IEEE says; NaN for negative
// x.
double portable_pow(double x, double y);

// x in radians. Error: below 1 ulp for |x| <= 2^30; beyond that and for non-finite x the result is
// NaN, so that a position out of range shows.
struct SinCos {
  double sin;
  double cos;
};
SinCos portable_sincos(double x);
double portable_sin(double x);
double portable_cos(double x);

}  // namespace strata
