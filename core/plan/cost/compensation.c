#include "plan/cost/compensation.h"

#include "base/mem.h"
#include "compensate/compensation.h"
#include "compensate/residual.h"
#include "compensate/select.h"
#include "plan/cost/fit.h"

#include <math.h>
#include <string.h>

/* Share of a step that selection takes, and what its kernels take from the linears, where reading is hidden: decoding was
 * 1.7 % slower with k = 39 on a laptop's GPU (arXiv 2412.20185). */
#define SELECT 0.017

/* a += b * c */
static tsr_status count(uint64_t *a, uint64_t b, uint64_t c, struct tsr_err *err)
{
    uint64_t n;
    return tsr_mul(b, c, &n) && tsr_add(*a, n, a)
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "residuals take more bytes than can be counted");
}

/* Matrices of a linear that have residuals: of a packed model the packed ones alone. */
static uint64_t residuals(const struct tsr_plan_shape *s, const struct tsr_plan_shape_layer *l,
                          int linear)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < tsr_plan_shape_groups(s); g++) {
        const struct tsr_plan_shape_matrix m = tsr_plan_shape_matrix_of(s, l, linear, g);
        n += m.rows && (!*s->packed || m.packed.id) ? m.count : 0;
    }
    return n;
}

bool tsr_plan_compensation_there(const struct tsr_plan_shape *s, const struct tsr_plan_candidate *c)
{
    return c->q.self || c->mixed || *s->packed;
}

/* Bytes of a residual's row on all ranks. */
static uint64_t row_bytes(const struct tsr_plan_shape_layer *l, const struct tsr_plan_mesh *m,
                          int linear, uint32_t bits)
{
    uint64_t rows = l->lin[linear].rows;
    uint32_t ranks = m->whole_experts && tsr_plan_shape_is_expert(l, linear) ? 1 : m->tp;
    return ranks * tsr_compensate_residual_stride(bits, (rows + ranks - 1) / ranks);
}

tsr_status tsr_plan_compensation_layer(struct tsr_plan_compensation *c,
                                       const struct tsr_plan_shape  *s,
                                       const struct tsr_plan_mesh *m, uint64_t cls,
                                       const uint32_t k[TSR_PLAN_LINEARS], uint32_t bits,
                                       struct tsr_err *err)
{
    const struct tsr_plan_shape_layer *of = &s->layer[cls];
    for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
        const struct tsr_plan_shape_matrix *w = &of->lin[i];
        bool                                cpu = m->cpu_experts && tsr_plan_shape_is_expert(of, i);
        uint64_t                            n = residuals(s, of, i), bytes = 0;
        if (!w->rows || !n)
            continue;
        uint64_t row = row_bytes(of, m, i, bits),
                 selected = tsr_compensate_select_count(k[i], w->cols);
        if (!selected)
            continue;
        c->k = k[i] > c->k ? k[i] : c->k;
        c->listed = selected > c->listed ? selected : c->listed;
        c->widest = w->cols > c->widest ? w->cols : c->widest;
        TSR_TRY(count(&c->scales, cpu ? 0 : n * w->rows, 2, err));
        TSR_TRY(count(&bytes, n * w->cols, row, err));
        TSR_TRY(count(&bytes, n * w->rows, bits == 16 ? 0 : 2, err));
        TSR_TRY(count(&c->bytes, bytes, 1, err));
        TSR_TRY(count(&c->on_cpu, cpu ? bytes : 0, 1, err));
        TSR_TRY(
            count(cpu ? &c->read_cpu : &c->read,
                  selected * (uint64_t)(tsr_plan_shape_used(s, w) * (double)n / (double)w->count),
                  row, err));
    }
    return TSR_OK;
}

/* What the engine's ranks and their devices work in, as compensate_load.c makes it where what is generated is
 * compensated: a list of channels for each request, which tokens of a forward are meant; of several ranks each whole
 * inputs and sums; and a copy of the scales in the order of the device's kernels. */
tsr_status tsr_plan_compensation_work(const struct tsr_plan_compensation *c,
                                      const struct tsr_plan_memory_job   *j,
                                      const struct tsr_plan_mesh *m, uint64_t prefill_mb,
                                      uint64_t *bytes, struct tsr_err *err)
{
    uint64_t n = j->batch, each = 1 + c->listed, tokens;
    uint64_t chunk = j->chunk ? j->chunk : j->prompt;
    *bytes = 0;
    if (!c->bytes)
        return TSR_OK;
    if (!tsr_mul(prefill_mb, chunk, &tokens) ||
        !tsr_mul(tokens, UINT64_C(1) + j->shape->experts_used,
                 &tokens)) /* and the rows of experts */
        tokens = UINT64_MAX;
    if (m->tp > 1 && !(tsr_add(each, c->widest, &each) && tsr_add(each, j->shape->hidden, &each)))
        each = UINT64_MAX;
    TSR_TRY(count(bytes, n, each, err));
    TSR_TRY(count(bytes, tokens > n ? tokens : n, 1, err));
    uint64_t one = *bytes;
    *bytes = c->scales;
    for (int i = 0; i < 4; i++) /* bytes of a number */
        TSR_TRY(count(bytes, one, m->tp, err));
    return TSR_OK;
}

tsr_status tsr_plan_compensation_bits(const struct tsr_plan_shape *s, const char *model,
                                      uint32_t *bits, bool *assumed, struct tsr_err *err)
{
    *bits = 0;
    if (*s->packed)
        TSR_TRY(tsr_compensation_bits(model, bits, err));
    *assumed = *bits == 0;
    *bits = *bits ? *bits : TSR_PLAN_RESIDUAL_BITS;
    return TSR_OK;
}

bool tsr_plan_compensation_host(const struct tsr_plan_mesh *m)
{
    return !m->profile->backend || strcmp(m->profile->backend, "cpu") != 0;
}

double tsr_plan_compensation_ms(const struct tsr_plan_compensation *c,
                                const struct tsr_plan_mesh *m, double base, double rows)
{
    const struct tsr_plan_profile *d = m->profile;
    double                         ms = base, cpu = 0;
    if (c->read_cpu) /* after the CPU's linears, which this device waits for */
        cpu = 1e3 * rows * (double)c->read_cpu / (m->cpu->bandwidth * m->cpu_share);
    if (c->read && tsr_plan_compensation_host(m)) {
        double fetch = 1e3 * rows * (double)c->read / (d->host_bandwidth * (double)m->tp);
        ms = d->host_bandwidth > 0 ? fmax(base, fetch) + SELECT * base : (double)NAN;
    } else if (c->read) { /* a CPU selects while it reads */
        ms = base + 1e3 * rows * (double)c->read / (d->bandwidth * (double)m->tp);
    }
    return ms + cpu;
}
