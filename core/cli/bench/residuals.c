/* Residuals that are like those of a model, for benchmarks of compensation. */
#include "cli/bench/bench.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *bench_large_pages(uint64_t bytes)
{
    const uint64_t page = UINT64_C(2) << 20;
    uint64_t       whole;
    if (!tsr_add(bytes, page - 1, &whole))
        return NULL;
    void *p = aligned_alloc(page, whole / page * page);
    if (p) /* a hint */
        (void)madvise(p, whole / page * page, MADV_HUGEPAGE);
    return p;
}

void bench_fill_residuals(unsigned char *codes, uint64_t bytes, uint16_t *scales, uint64_t outputs,
                          uint32_t bits)
{
    uint64_t x = 1;
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t v = bits == 16 ? UINT64_C(0x1400940014009400) : (x *= 6364136223846793005u, x++);
        memcpy(codes + i, &v, 8);
    }
    for (uint64_t i = 0; scales && i < outputs; i++)
        scales[i] = 0x1000;
}
