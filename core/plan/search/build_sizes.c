/* Sizes of micro-batches that are tried. */
#include "plan/search/build.h"

uint64_t tsr_plan_decode_sizes(uint64_t batch, uint64_t devices, uint64_t *v)
{
    uint64_t n = 0;
    for (uint64_t m = 2 * devices; m >= 1; m--) {
        uint64_t size = batch / m + (batch % m != 0);
        if (size && (n == 0 || v[n - 1] != size))
            v[n++] = size;
    }
    return n;
}

uint64_t tsr_plan_few_sizes(uint64_t batch, uint64_t devices, uint64_t *v)
{
    uint64_t n = 0, most = 1;
    while (most < devices)
        most *= 2;
    for (uint64_t m = most; m >= 1; m /= 2) {
        uint64_t size = batch / m + (batch % m != 0);
        if (n == 0 || v[n - 1] != size)
            v[n++] = size;
    }
    return n;
}

uint64_t tsr_plan_prefill_sizes(uint64_t decode_mb, uint64_t *v)
{
    uint64_t n = 0;
    for (uint64_t size = 1; size < decode_mb && n < 63; size *= 2)
        v[n++] = size;
    v[n++] = decode_mb;
    return n;
}

uint64_t tsr_plan_prefill_count(uint64_t batch, uint64_t prefill_mb, uint64_t decode_mb)
{
    uint64_t sets = batch / decode_mb + (batch % decode_mb != 0);
    uint64_t each = batch / sets, more = batch % sets;
    return more * (each / prefill_mb + 1) + (sets - more) * ((each + prefill_mb - 1) / prefill_mb);
}
