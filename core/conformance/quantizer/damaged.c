/* Packed bytes that no quantize() wrote: files can be damaged, and dequantize() reads what they hold. */
#include "conformance/helpers.h"
#include "conformance/quantizer/quantizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 5u
#define COLS 130u

/* A NaN is one whatever its bits: an addition of two NaNs may keep either. */
static bool same(const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!(a[i] == b[i] && signbit(a[i]) == signbit(b[i])) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static tsr_status decode(struct tsr_conformance_case *c, void *self, struct tsr_quant_job *job,
                         float *into, struct tsr_err *err)
{
    job->dst->data = into;
    tsr_status st = tsr_conformance_quant_iface(c)->dequantize(self, job, err);
    if (!tsr_conformance_guarded_intact(into) || !tsr_conformance_guarded_intact(job->scratch))
        tsr_conformance_rule_fail(c, "dequantize() of bytes that no quantize() wrote writes past "
                                     "the end of its buffers");
    return st;
}

void tsr_conformance_quant_damage(const struct tsr_conformance_case *c, uint64_t kind,
                                  unsigned char *bytes, const unsigned char *good, uint64_t n)
{
    if (n == 0)
        return;
    memset(bytes, kind == 0 ? 0xFF : 0x00, n);
    if (kind >= 2 && kind < 24) {
        memcpy(bytes, good, n);
        bytes[tsr_conformance_rule_below(c, 800 + kind, 0, n)] ^=
            (unsigned char)(1 + tsr_conformance_rule_below(c, 800 + kind, 1, 255));
    }
    for (uint64_t i = 0; kind >= 24 && i < n; i++)
        bytes[i] = (unsigned char)tsr_conformance_rule_below(c, 800 + kind, i, 256);
}

void tsr_conformance_quant_packed_damaged(struct tsr_conformance_case *c)
{
    void                            *self = tsr_conformance_quant_make(c);
    struct tsr_conformance_quant_try t = {
        .w = tsr_conformance_quant_matrix(c, tsr_conformance_quant_rows(c, self, ROWS, COLS), COLS,
                                          c->seed)
    };
    tsr_conformance_quant_destroy(c, self);
    self = tsr_conformance_quant_must(c, &t);
    uint64_t          n = t.w.rows * t.w.cols;
    struct tsr_matrix dst = { .struct_size = sizeof dst,
                              .dtype = TSR_F32,
                              .name = t.w.name,
                              .rows = t.w.rows,
                              .cols = t.w.cols,
                              .row_stride = t.w.cols * sizeof(float) };
    for (uint64_t kind = 0; kind < TSR_CONFORMANCE_DAMAGES; kind++) {
        struct tsr_errbuf    e = TSR_ERRBUF(e);
        unsigned char       *codes = tsr_conformance_guarded("codes", t.code_bytes, 0);
        unsigned char       *meta = tsr_conformance_guarded("meta", t.meta_bytes, 0);
        float               *a = tsr_conformance_guarded("dst", n * sizeof *a, 0x00);
        float               *b = tsr_conformance_guarded("dst", n * sizeof *b, 0xFF);
        void                *scratch = tsr_conformance_guarded("scratch", t.plan.scratch_bytes, 0);
        struct tsr_quant_job job = {
            .struct_size = sizeof job, .dst = &dst, .codes = codes, .meta = meta, .scratch = scratch
        };
        tsr_conformance_quant_damage(c, kind, codes, t.codes, t.code_bytes);
        tsr_conformance_quant_damage(c, kind, meta, t.meta, t.meta_bytes);
        tsr_status st = decode(c, self, &job, a, &e.err), next = decode(c, self, &job, b, NULL);
        if (st != TSR_OK)
            tsr_conformance_rule_refused(c, st, TSR_E_INVAL, &e,
                                         "dequantize() of bytes that no quantize() wrote");
        if (st != next || (st == TSR_OK && !same(a, b, n)))
            tsr_conformance_rule_fail(c, "dequantize() of bytes that no quantize() wrote gives "
                                         "something else the next time");
        tsr_conformance_guarded_free(codes);
        tsr_conformance_guarded_free(meta);
        tsr_conformance_guarded_free(a);
        tsr_conformance_guarded_free(b);
        tsr_conformance_guarded_free(scratch);
    }
    tsr_conformance_quant_destroy(c, self);
}
