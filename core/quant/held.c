#include "quant/held.h"

#include "tessera/linalg.h"

tsr_status tsr_quant_held_begin(struct tsr_quant_held *h, const struct tsr_host *host,
                                const float *a, uint64_t rows, uint64_t cols, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *l =
        a && host->service ? host->service(host->ctx, TSR_LINALG) : NULL;
    if (!l || !TSR_HAS(struct tsr_linalg_v1, l, hold) || !TSR_HAS(struct tsr_linalg_v1, l, drop))
        return TSR_OK;
    TSR_TRY(l->hold(l->ctx, a, rows * cols, err)); /* of memory that exists: no overflow */
    *h = (struct tsr_quant_held){ l, a };
    return TSR_OK;
}

tsr_status tsr_quant_held_end(struct tsr_quant_held *h, bool fetch, struct tsr_err *err)
{
    struct tsr_quant_held was = *h;
    *h = (struct tsr_quant_held){ 0 };
    return was.linalg ? was.linalg->drop(was.linalg->ctx, was.a, fetch, err) : TSR_OK;
}
