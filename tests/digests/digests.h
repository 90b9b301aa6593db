/* digests.h - the parts of the program `digests`: cases of one instruction set, a line for each on stdout. */
#ifndef TSR_DIGESTS_H
#define TSR_DIGESTS_H

#include <stdint.h>

struct tsr_cpu;

/* Begins a case: its name, as printf() formats it, and the random numbers that belong to its place in the list. */
__attribute__((format(printf, 1, 2))) void digest_begin(const char *format, ...);
/* The seed of the case, for the numbers of cpu_fixture.h, whose state each source has for itself. */
uint64_t digest_seed(void);
/* Adds bytes to the digest of the case. */
void digest_bytes(const void *p, uint64_t n);
/* Adds n numbers; a NaN counts as one and the same, since processors give it other bits. */
void digest_floats(const float *x, uint64_t n);
/* Prints the line of the case. */
void digest_end(void);

void linear_cases(struct tsr_cpu *c);  /* LINEAR and EMBED in every format */
void row_cases(struct tsr_cpu *c);     /* operations on rows, and the functions alone */
void cache_cases(struct tsr_cpu *c);   /* KV_STORE and ATTENTION */
void algebra_cases(struct tsr_cpu *c); /* tessera.linalg/1, and error compensation */

#endif
