/* Backends: the rule about a part of a matrix that was cut between columns. */
#include "conformance/backend/backend.h"

#include "base/f16.h"
#include "model/packed_slice.h"

#include <math.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))
#define T    UINT64_C(3)
#define N    UINT64_C(20)
#define K    UINT64_C(500) /* 8 segments of 64, the last of 52 */

/* The columns [col, col + cols) of w, as a part of it. */
static struct tsr_weight_desc part_of(const struct tsr_weight_desc *w,
                                      const struct tsr_model_slice *s)
{
    struct tsr_weight_desc part = *w;
    part.name = "part";
    part.codes = (const char *)w->codes + s->col * sizeof(float);
    part.cols = s->cols;
    part.segment = s->segment;
    return part;
}

/* LINEAR of columns [col, ...) of x through w; false when it is declined. */
static bool run(struct tsr_conformance_device *d, const struct tsr_weight_desc *w, const float *x,
                uint64_t col, float **y)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_conformance_grid in, out;
    void                       *weight = NULL;
    float *rows = tsr_conformance_rule_memory(d->c, T * w->cols * sizeof *rows);
    for (uint64_t t = 0; t < T; t++)
        memcpy(rows + t * w->cols, x + t * K + col, w->cols * sizeof *rows);
    if (!tsr_conformance_weight_load(d, w, &weight))
        return false;
    tsr_conformance_grid_make(d, &in, TSR_F32, T, w->cols, rows);
    tsr_conformance_grid_make(d, &out, TSR_F32, T, N,
                              tsr_conformance_rule_memory(d->c, T * N * sizeof(float)));
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_LINEAR,
                         .out = &out.t,
                         .in = { &in.t },
                         .weight = weight };
    tsr_status    st = d->t->run(d->self, NULL, &op, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        return false;
    tsr_conformance_rule_ok(d->c, st, &e, "LINEAR of a part");
    tsr_conformance_rule_ok(d->c, d->t->sync(d->self, NULL, &e.err), &e, "sync()");
    *y = tsr_conformance_grid_rows(d, &out);
    d->t->weight_free(d->self, weight);
    return true;
}

void tsr_backend_rule_segments(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_weight_desc        w;
    struct tsr_model_cut          cut = { .name = "w", .rows = N, .cols = K };
    struct tsr_format f = { .struct_size = sizeof f, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    float            *whole, *x = tsr_conformance_rule_memory(c, T * K * sizeof *x);
    tsr_conformance_device_make(&d, c);
    if (!d.exact)
        tsr_conformance_rule_skip(c, "the backend does not say deterministic");
    if (c->plugin->abi_minor < 1)
        tsr_conformance_rule_skip(c,
                                  "it was built with headers of ABI 1.0, which have no segments");
    tsr_conformance_rule_normal(c, 620, x, T * K);
    tsr_conformance_weight_random(c, 621, &f, N, K, &w);
    if (!run(&d, &w, x, 0, &whole))
        tsr_conformance_rule_skip(c, "the backend declines LINEAR on F32");
    for (uint32_t ranks = 2; ranks <= 8; ranks *= 2) {
        float *sum[8];
        for (uint32_t r = 0; r < ranks; r++) {
            struct tsr_errbuf      e = TSR_ERRBUF(e);
            struct tsr_model_slice s;
            tsr_conformance_rule_ok(c, tsr_model_slice_columns(&cut, r, ranks, &s, &e.err), &e,
                                    "a slice");
            struct tsr_weight_desc part = part_of(&w, &s);
            if (!run(&d, &part, x, s.col, &sum[r]))
                tsr_conformance_rule_fail(c, "a part of %llu columns is declined, the whole is not",
                                          U(s.cols));
        }
        for (uint32_t step = 1; step < ranks; step *= 2)
            for (uint32_t r = 0; r + step < ranks; r += 2 * step)
                for (uint64_t i = 0; i < T * N; i++)
                    sum[r][i] = sum[r][i] + sum[r + step][i];
        for (uint64_t i = 0; i < T * N; i++)
            if (tsr_f32_bits(sum[0][i]) != tsr_f32_bits(whole[i]))
                tsr_conformance_rule_fail(
                    c,
                    "%u parts of %llu columns in segments of %llu: token %llu, output "
                    "%llu adds up to %.9g (0x%08x), the whole gives %.9g (0x%08x)",
                    ranks, U(K), U(tsr_segment_columns(K)), U(i / N), U(i % N), (double)sum[0][i],
                    tsr_f32_bits(sum[0][i]), (double)whole[i], tsr_f32_bits(whole[i]));
    }
}
