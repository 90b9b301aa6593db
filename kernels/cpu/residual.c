/* residual.c - residuals of one linear, tessera/draft/compensate.h: their codes stay in host memory. */
#include "../tensor/lists.h"
#include "../tensor/tensor.h"
#include "site.h"

void tsr_cpu_residual_free(void *self, void *handle)
{
    struct tsr_cpu          *c = self;
    struct tsr_cpu_residual *r = handle;
    if (!r)
        return;
    c->host->release(c->host->ctx, r->scales, r->scale_bytes);
    c->host->release(c->host->ctx, r, sizeof *r);
}

static tsr_status check(const struct tsr_residual_desc *d, struct tsr_err *err)
{
    const char *name = d->name ? d->name : "?";
    uint64_t    bytes;
    if (d->bits != 2 && d->bits != 4 && d->bits != 8 && d->bits != 16)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "residual '%s': %u bits; 2, 4, 8 and 16 are read",
                        name, d->bits);
    if (d->inputs == 0 || d->outputs == 0 || d->inputs > UINT32_MAX || d->outputs > UINT64_MAX / 64)
        return tsr_fail(err, TSR_E_INVAL, "residual '%s': %llu by %llu channels", name,
                        (unsigned long long)d->inputs, (unsigned long long)d->outputs);
    if (!d->codes || (uintptr_t)d->codes % 64 || d->stride % 64 ||
        d->stride < cpu_ceil(d->outputs * d->bits, 8) ||
        __builtin_mul_overflow(d->inputs, d->stride, &bytes) || (d->bits != 16) != !!d->scales)
        return tsr_fail(err, TSR_E_INVAL,
                        "residual '%s': rows of %llu codes of %u bits cannot lie %llu bytes apart, "
                        "or codes or scales are missing or not aligned",
                        name, (unsigned long long)d->outputs, d->bits,
                        (unsigned long long)d->stride);
    return d->scales ? tsr_tensor_scales(d->scales, d->outputs, name, err) : TSR_OK;
}

tsr_status tsr_cpu_residual_load(void *self, const struct tsr_residual_desc *d, void **out,
                                 struct tsr_err *err)
{
    struct tsr_cpu *c = self;
    tsr_status      st = check(d, err);
    if (st != TSR_OK)
        return st;
    struct tsr_cpu_residual *r = c->host->alloc(c->host->ctx, sizeof *r, 64);
    uint64_t                 wide = cpu_ceil(d->outputs, 16) * 16;
    uint16_t *scales = r ? c->host->alloc(c->host->ctx, wide * sizeof *scales, 64) : NULL;
    if (!scales) {
        c->host->release(c->host->ctx, r, sizeof *r);
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for scales of residuals",
                        (unsigned long long)(wide * sizeof *scales));
    }
    for (uint64_t n = 0; n < wide; n++)
        scales[n] = n >= d->outputs ? 0 : d->scales ? d->scales[n] : 0x3c00; /* 1 */
    *r = (struct tsr_cpu_residual){ .base = { .bits = d->bits,
                                              .codes = d->codes,
                                              .stride = d->stride,
                                              .outputs = d->outputs,
                                              .scales = scales },
                                    .inputs = d->inputs,
                                    .scale_bytes = wide * sizeof *scales,
                                    .scales = scales };
    *out = r;
    return TSR_OK;
}
