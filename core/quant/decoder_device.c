/* Products of quantizers' own kernels on devices (tessera/draft/kernel_device.h): what to launch there. */
#include "quant/decoder_internal.h"

#include <string.h>

/* With its kernel for devices. */
static tsr_status find(const struct tsr_model_packed *p, const struct tsr_quant_decoder **d,
                       struct tsr_err *err)
{
    uint64_t bytes = 0;
    TSR_TRY(tsr_quant_decoder_of(p, d, &bytes, err));
    return (*d)->device
               ? TSR_OK
               : tsr_fail(err, TSR_E_BUG, "quantizer '%s' has no kernel for devices", p->own.use);
}

/* Of all units, without their bytes. */
static struct tsr_kernel_weight shape_of(const struct tsr_model_packed *p,
                                         enum tsr_model_own_kernel      how)
{
    const struct tsr_model_own *o = &p->own;
    uint64_t                    left = o->rows - o->first, there = o->units * o->unit;
    struct tsr_kernel_weight    w = tsr_quant_own_weight(p, how, 0, there < left ? there : left);
    w.codes = w.meta = NULL;
    return w;
}

tsr_status tsr_quant_own_device_code(const struct tsr_model_packed *p, const char *target,
                                     const struct tsr_device_code **code, struct tsr_err *err)
{
    const struct tsr_quant_decoder *d = NULL;
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    uint64_t                        bytes = 0;
    TSR_TRY(tsr_quant_decoder_of(p, &d, &bytes, err));
    *code = NULL;
    if (!d->device)
        return TSR_OK;
    tsr_status st = d->device->code(d->q.self, target, code, &e.err);
    if (st == TSR_OK)
        return *code ? TSR_OK
                     : tsr_fail(err, TSR_E_PLUGIN,
                                "quantizer '%s' gives no code for %s, and no status that says so",
                                p->own.use, target);
    *code = NULL;
    return st == TSR_E_UNSUPPORTED ? TSR_OK
                                   : tsr_quant_own_named(p, tsr_err_copy(err, st, &e.err), err);
}

tsr_status tsr_quant_own_device_scratch(const struct tsr_model_packed *p,
                                        enum tsr_model_own_kernel how, uint64_t n, uint64_t *bytes,
                                        struct tsr_err *err)
{
    const struct tsr_quant_decoder *d = NULL;
    TSR_TRY(find(p, &d, err));
    const struct tsr_kernel_weight w = shape_of(p, how);
    tsr_status                     st = d->device->scratch(d->q.self, &w, n, bytes, err);
    return st == TSR_E_UNSUPPORTED ? st : tsr_quant_own_named(p, st, err);
}

tsr_status tsr_quant_own_device_launch(const struct tsr_model_packed     *p,
                                       const struct tsr_model_own_launch *x,
                                       struct tsr_device_launch *l, struct tsr_err *err)
{
    const struct tsr_quant_decoder *d = NULL;
    TSR_TRY(find(p, &d, err));
    const struct tsr_kernel_weight w = shape_of(p, x->how);
    const struct tsr_device_job    job = { .struct_size = sizeof job,
                                           .weight = &w,
                                           .n = x->n,
                                           .codes = x->codes,
                                           .meta = x->meta,
                                           .in = x->in,
                                           .in_stride = x->in_stride,
                                           .out = x->out,
                                           .out_stride = x->rows,
                                           .out_segment = x->n * x->rows,
                                           .scratch = x->scratch };
    *l = (struct tsr_device_launch){ .struct_size = sizeof *l };
    return tsr_quant_own_named(p, d->device->launch(d->q.self, &job, l, err), err);
}
