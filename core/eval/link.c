#include "eval/link.h"

#include "base/mem.h"
#include "comm/streams.h"

#include <stdlib.h>

tsr_status tsr_eval_link_open(struct tsr_eval_link *l, struct tsr_registry *r, const char *codec,
                              struct tsr_err *err)
{
    *l = (struct tsr_eval_link){ 0 };
    TSR_TRY(tsr_plugin_spec_open(&l->spec, r, TSR_KIND_CODEC, codec, err));
    l->iface = l->spec.found.iface;
    tsr_status st = l->iface->create(l->spec.found.host, l->spec.options, &l->self, err);
    if (st != TSR_OK)
        l->iface = NULL; /* there is nothing to destroy */
    else if (l->iface->observe)
        st = tsr_fail(err, TSR_E_INPUT,
                      "codec '%s' must be calibrated first, and links of stages are measured "
                      "without that; leave it out",
                      codec);
    else {
        st = tsr_comm_codec_stateless(l->iface, l->self, "a link between stages", err);
        if (st != TSR_OK)
            st = tsr_err_prefix(err, st, "codec '%s'", codec);
    }
    if (st != TSR_OK)
        tsr_eval_link_close(l);
    return st;
}

void tsr_eval_link_close(struct tsr_eval_link *l)
{
    if (l->iface)
        l->iface->destroy(l->self);
    tsr_plugin_spec_close(&l->spec);
    *l = (struct tsr_eval_link){ 0 };
}

tsr_status tsr_eval_link_send(const struct tsr_eval_link *l, uint32_t site, uint64_t rows,
                              uint64_t cols, float *x, struct tsr_err *err)
{
    struct tsr_codec_job job = {
        .struct_size = sizeof job, .site = site, .rows = rows, .cols = cols
    };
    TSR_TRY(l->iface->wire_bytes(l->self, rows, cols, &job.wire_bytes, err));
    job.wire = tsr_new_aligned(job.wire_bytes, 1);
    if (!job.wire)
        return tsr_fail_nomem(err, job.wire_bytes, "a message");
    job.src = x;
    tsr_status st = l->iface->encode(l->self, &job, err);
    job.src = NULL;
    job.dst = x;
    if (st == TSR_OK)
        st = l->iface->decode(l->self, &job, err);
    free(job.wire);
    return st;
}
