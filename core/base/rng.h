/* base/rng.h - counter-based random numbers (Philox 4x32-10, Salmon et al., SC
 * 2011).  The same key and counter give the same number on any thread in any
 * order; sampling uses key = seed, counter = (record, token). */
#ifndef TSR_BASE_RNG_H
#define TSR_BASE_RNG_H

#include <stdint.h>

/* out[4] = Philox4x32-10 of a 128-bit counter (c0 low) under a 64-bit key. */
void tsr_philox(uint32_t out[4], uint64_t c0, uint64_t c1, uint64_t key);

/* Uniform in [0,1) with 53 bits, for (seed, record, token). */
double tsr_uniform(uint64_t seed, uint64_t record, uint64_t token);

/* Standard normal from the same kind of triple (Box-Muller). */
double tsr_normal(uint64_t seed, uint64_t stream, uint64_t index);

#endif
