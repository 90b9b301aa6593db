/* compensate.h - kernels of tessera/draft/compensate.h, one table for each instruction set. */
#ifndef TSR_CPU_COMPENSATE_H
#define TSR_CPU_COMPENSATE_H

#include "tessera/draft/compensate.h"

#define COMPENSATE_STEP  1024u /* outputs: every piece begins at a multiple */
#define COMPENSATE_PIECE 4096u /* that a thread takes at a time at most */

/* One token's compensation of one linear, or of several whose rows are contiguous: outputs then count over
 * all of them, including the padding of each row except the last. */
struct tsr_cpu_gather {
    uint32_t        bits;
    const uint8_t  *codes; /* row of channel 0 */
    uint64_t        stride, outputs;
    const uint16_t *scales; /* F16 [outputs], up to 15 more */
    const float    *x;
    const uint32_t *list; /* channels, ascending */
    uint64_t        count;
    float          *out;
    int             fresh; /* out takes the sums; else they are added to it */

    const struct tsr_cpu_gather *behind; /* whose row i begins where row i ends here; or NULL */
};

/* Outputs that a row has room for: whole lines of 64 bytes. */
static inline uint64_t tsr_cpu_gather_room(const struct tsr_cpu_gather *g)
{
    uint64_t line = 512 / g->bits;
    return (g->outputs + line - 1) / line * line;
}

struct tsr_cpu_compensate_kernels {
    /* The first `take` of n (at most 1024) values by buckets; below[i] is the next float under floor i.
     * Channels base + place go to list; returns how many.  *bucket: where to look for the last one first;
     * where it was. */
    uint64_t (*choose)(const float *x, uint64_t n, uint64_t base, uint64_t take, const float *below,
                       uint64_t *bucket, uint32_t *list);
    /* outputs [begin,end) of g and of the linears linked after it; begin a multiple of COMPENSATE_STEP */
    void (*gather)(const struct tsr_cpu_gather *g, uint64_t begin, uint64_t end);
};
struct tsr_cpu_kernels;
/* isa_*.c */
const struct tsr_cpu_compensate_kernels *tsr_cpu_compensate_of(const struct tsr_cpu_kernels *k);
extern const struct tsr_cpu_compensate_kernels tsr_cpu_compensate_scalar, tsr_cpu_compensate_avx2,
    tsr_cpu_compensate_avx512, tsr_cpu_compensate_neon;

struct tsr_cpu;
const struct tsr_backend_compensate_v1 *tsr_cpu_compensate(void);

#endif
