/* compensate.c - the table of tessera/draft/compensate.h: checks, and work over the threads. */
#include "../tensor/floors.h"
#include "../tensor/lists.h"
#include "../tensor/tensor.h"
#include "../weight/weight.h"
#include "site.h"

/* Units (backend.c) from which on compensation goes over threads.  Below, one thread waits for its rows for less
 * long than two chiplets need to begin and end together. */
#define WORTH 150000u
/* Where all linears have WIDE_FROM outputs or more together, pieces are wide: longer runs of memory; of fewer,
 * threads would have none. */
#define WIDE      2048u
#define WIDE_FROM 8192u

/* ---- rows and lists ------------------------------------------------------------------------- */

static const float *float_row(const struct tsr_view *v, uint64_t t)
{
    return (const float *)(const void *)(v->p + t * v->stride);
}

static uint32_t *list_row(const struct tsr_view *v, uint64_t i)
{
    return (uint32_t *)(void *)(v->p + i * v->stride);
}

/* The token that entry i is about; n of them. */
static uint64_t token_of(const struct tsr_view *rows, uint64_t i)
{
    return rows->p ? ((const uint32_t *)(const void *)rows->p)[i] : i;
}

static tsr_status view_rows(struct tsr_view *v, const struct tsr_tensor *rows, uint64_t T,
                            uint64_t *n, const char *what, struct tsr_err *err)
{
    *v = (struct tsr_view){ 0 };
    *n = T;
    if (!rows)
        return TSR_OK;
    tsr_status st = tsr_cpu_view(v, rows, what, "rows", TSR_U32, 1, 0, err);
    if (st != TSR_OK)
        return st;
    *n = v->cols;
    for (uint64_t i = 0; i < *n; i++)
        if (token_of(v, i) >= T)
            return tsr_fail(err, TSR_E_INVAL, "%s: row %llu is not below %llu", what,
                            (unsigned long long)token_of(v, i), (unsigned long long)T);
    return TSR_OK;
}

/* ---- SELECT ----------------------------------------------------------------------------------- */

void tsr_cpu_choose(const struct tsr_cpu_choosing *s, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        const float *x = float_row(&s->x, token_of(&s->rows, i));
        uint32_t    *list = list_row(&s->list, i);
        uint64_t     n = 0, bucket = TSR_COMPENSATE_BUCKETS / 2;
        for (uint64_t at = 0; at < s->x.cols; at += TSR_COMPENSATE_CHUNK) {
            uint64_t len = cpu_min(TSR_COMPENSATE_CHUNK, s->x.cols - at);
            uint64_t take = s->per * len / TSR_COMPENSATE_CHUNK;
            if (take)
                n += s->k->choose(x + at, len, at, take, s->below, &bucket, list + 1 + n);
        }
        list[0] = (uint32_t)n;
    }
}

static tsr_status choose_some(void *arg, uint64_t begin, uint64_t end)
{
    tsr_cpu_choose(arg, begin, end);
    return TSR_OK;
}

tsr_status tsr_cpu_choosing_view(const struct tsr_cpu *c, const struct tsr_select_op *op,
                                 struct tsr_cpu_choosing *s, struct tsr_err *err)
{
    *s = (struct tsr_cpu_choosing){ .k = tsr_cpu_compensate_of(c->k), .per = op->k };
    tsr_status st = tsr_cpu_view(&s->x, op->x, "SELECT", "x", TSR_F32, 0, 0, err);
    if (st == TSR_OK)
        st = view_rows(&s->rows, op->rows, s->x.rows, &s->n, "SELECT", err);
    if (st == TSR_OK)
        st = tsr_cpu_view(&s->list, op->list, "SELECT", "list", TSR_U32, s->n, 0, err);
    if (st == TSR_OK)
        st = tsr_tensor_floors(s->below, op->floors, err);
    if (st != TSR_OK)
        return st;
    uint64_t room = s->x.cols / TSR_COMPENSATE_CHUNK * op->k +
                    s->x.cols % TSR_COMPENSATE_CHUNK * op->k / TSR_COMPENSATE_CHUNK;
    if (op->k == 0 || op->k > TSR_COMPENSATE_CHUNK || s->list.cols < 1 + room ||
        s->x.cols > UINT32_MAX)
        return tsr_fail(err, TSR_E_INVAL,
                        "SELECT: %u of 1024 from %llu channels do not fit a list of %llu words",
                        op->k, (unsigned long long)s->x.cols, (unsigned long long)s->list.cols);
    return TSR_OK;
}

tsr_status tsr_cpu_select_op(void *self, void *stream, const struct tsr_select_op *op,
                             struct tsr_err *err)
{
    struct tsr_cpu         *c = self;
    struct tsr_cpu_choosing s;
    (void)stream;
    tsr_cpu_touch(op->x, c->mem->open);
    tsr_cpu_touch(op->rows, c->mem->open);
    tsr_cpu_touch(op->list, c->mem->open);
    tsr_status st = tsr_cpu_choosing_view(c, op, &s, err);
    if (st == TSR_OK)
        st = tsr_cpu_for(c, s.n, s.x.cols * 8, choose_some, &s);
    tsr_cpu_touch(op->x, c->mem->close);
    tsr_cpu_touch(op->rows, c->mem->close);
    tsr_cpu_touch(op->list, c->mem->close);
    return st;
}

/* ---- COMPENSATE --------------------------------------------------------------------------------- */

void tsr_cpu_adding_list(const struct tsr_cpu_adding *a, uint64_t t, struct tsr_cpu_gather *g)
{
    const uint32_t *list = list_row(&a->list, t);
    g->list = list + 1;
    g->count = list[0];
}

void tsr_cpu_adding_gather(const struct tsr_cpu_adding *a, uint64_t t, uint64_t j,
                           struct tsr_cpu_gather *g)
{
    const struct tsr_cpu_residual *r = a->op->residual[j];
    uint64_t                       token = token_of(&a->rows, t);
    *g = r->base;
    g->x = float_row(&a->x, token);
    g->out = (float *)(void *)(a->out[j].p + token * a->out[j].stride);
}

/* Items: tokens times pieces of all linears. */
static tsr_status add_some(void *arg, uint64_t begin, uint64_t end)
{
    const struct tsr_cpu_adding *a = arg;
    uint64_t                     per = a->pieces[a->op->n], last = UINT64_MAX;
    struct tsr_cpu_gather        g = { 0 };
    for (uint64_t i = begin; i < end; i++) {
        uint64_t t = i / per, b = i % per, j = 0;
        while (b >= a->pieces[j + 1])
            j++;
        if (t * a->op->n + j != last) {
            tsr_cpu_adding_gather(a, t, j, &g);
            tsr_cpu_adding_list(a, t, &g);
            last = t * a->op->n + j;
        }
        uint64_t from = (b - a->pieces[j]) * a->wide;
        a->k->gather(&g, from, cpu_min(from + a->wide, g.outputs));
    }
    return TSR_OK;
}

static uint64_t piece_of(uint64_t outputs, int together)
{
    uint64_t wide = COMPENSATE_PIECE;
    if (!together)
        return outputs >= WIDE_FROM ? WIDE : COMPENSATE_STEP;
    while (wide > outputs && wide > COMPENSATE_STEP)
        wide /= 2;
    return wide;
}

static tsr_status view_linears(struct tsr_cpu_adding *a, int together, struct tsr_err *err)
{
    const struct tsr_compensate_op *op = a->op;
    uint64_t                        outputs = 0;
    for (uint32_t j = 0; j < op->n; j++) {
        const struct tsr_cpu_residual *r = op->residual[j];
        if (!r || r->inputs != a->x.cols)
            return tsr_fail(err, TSR_E_INVAL,
                            "COMPENSATE: residuals of %llu input channels for %llu columns",
                            (unsigned long long)(r ? r->inputs : 0), (unsigned long long)a->x.cols);
        tsr_status st = tsr_cpu_view(&a->out[j], op->out[j], "COMPENSATE", "out", TSR_F32,
                                     a->x.rows, r->base.outputs, err);
        if (st == TSR_OK)
            st = tsr_tensor_apart(op->out[j], op->x, 0, "COMPENSATE", err);
        if (st != TSR_OK)
            return st;
        outputs += r->base.outputs;
    }
    a->wide = piece_of(outputs, together);
    for (uint32_t j = 0; j < op->n; j++) {
        const struct tsr_cpu_residual *r = op->residual[j];
        a->pieces[j + 1] = a->pieces[j] + cpu_ceil(r->base.outputs, a->wide);
    }
    return TSR_OK;
}

tsr_status tsr_cpu_adding_view(const struct tsr_cpu *c, const struct tsr_compensate_op *op,
                               int together, struct tsr_cpu_adding *a, struct tsr_err *err)
{
    *a = (struct tsr_cpu_adding){ .k = tsr_cpu_compensate_of(c->k), .op = op };
    if (op->n == 0 || op->n > TSR_COMPENSATE_LINEARS)
        return tsr_fail(err, TSR_E_INVAL, "COMPENSATE: %u linears, 1 to %u are allowed", op->n,
                        TSR_COMPENSATE_LINEARS);
    tsr_status st = tsr_cpu_view(&a->x, op->x, "COMPENSATE", "x", TSR_F32, 0, 0, err);
    if (st == TSR_OK)
        st = view_rows(&a->rows, op->rows, a->x.rows, &a->n, "COMPENSATE", err);
    if (st == TSR_OK)
        st = tsr_cpu_view(&a->list, op->list, "COMPENSATE", "list", TSR_U32, a->n, 0, err);
    return st == TSR_OK ? view_linears(a, together, err) : st;
}

/* Whether the rows of b directly follow those of a in memory. */
static int follows(const struct tsr_cpu_gather *b, const struct tsr_cpu_gather *a)
{
    return a->bits == b->bits && a->stride == b->stride &&
           a->codes + tsr_cpu_gather_room(a) * a->bits / 8 == b->codes;
}

void tsr_cpu_adding_join(struct tsr_cpu_adding *a, struct tsr_cpu_gather *g)
{
    uint32_t n = a->op->n;
    for (uint32_t head = 0, j = 0; head < n; head = ++j) {
        uint64_t outputs = g[head].outputs, before = 0;
        for (; j + 1 < n && follows(&g[j + 1], &g[j]); j++) {
            before += tsr_cpu_gather_room(&g[j]);
            outputs = before + g[j + 1].outputs;
            g[j].behind = &g[j + 1];
        }
        for (uint32_t i = head; i <= j; i++) /* the first has the pieces of all */
            a->pieces[i + 1] = a->pieces[head] + cpu_ceil(outputs, a->wide);
    }
}

static tsr_status add(struct tsr_cpu *c, const struct tsr_compensate_op *op, struct tsr_err *err)
{
    struct tsr_cpu_adding a;
    tsr_status            st = tsr_cpu_adding_view(c, op, 0, &a, err);
    if (st == TSR_OK) /* of select() or of the host: rows are addressed by them */
        st = tsr_tensor_lists(list_row(&a.list, 0), a.list.stride / 4, a.n, a.list.cols, a.x.cols,
                              err);
    if (st != TSR_OK)
        return st;
    const struct tsr_cpu_residual *r = op->residual[0];
    uint64_t                       most = 0;
    for (uint64_t i = 0; i < a.n; i++)
        most = list_row(&a.list, i)[0] > most ? list_row(&a.list, i)[0] : most;
    /* two multiply-adds with their memory latency are about one unit; when all pieces together are worth
     * the threads, each is a separate item, else all run here */
    uint64_t unit = (most + 8) * a.wide / 2 * r->base.bits / 4, all = a.n * a.pieces[op->n];
    return tsr_cpu_for(c, all, unit * all < WORTH ? 1 : WORTH, add_some, &a);
}

tsr_status tsr_cpu_compensate_op(void *self, void *stream, const struct tsr_compensate_op *op,
                                 struct tsr_err *err)
{
    struct tsr_cpu *c = self;
    (void)stream;
    tsr_cpu_touch(op->x, c->mem->open);
    tsr_cpu_touch(op->rows, c->mem->open);
    tsr_cpu_touch(op->list, c->mem->open);
    for (uint32_t j = 0; j < op->n && j < TSR_COMPENSATE_LINEARS; j++)
        tsr_cpu_touch(op->out[j], c->mem->open);
    tsr_status st = add(c, op, err);
    tsr_cpu_touch(op->x, c->mem->close);
    tsr_cpu_touch(op->rows, c->mem->close);
    tsr_cpu_touch(op->list, c->mem->close);
    for (uint32_t j = 0; j < op->n && j < TSR_COMPENSATE_LINEARS; j++)
        tsr_cpu_touch(op->out[j], c->mem->close);
    return st;
}
