/* site.c - the linears of one input, the channel selection from it and its compensation, for one token in
 * one loop over the threads: pieces of residual rows and panels of weights. The first thread selects and
 * gathers. Gathered sums have separate memory and are added to the outputs after the loop, so that no item
 * waits for another and sums move between caches a run at a time. */
#include "site.h"

#include <stdatomic.h>
#include <string.h>

/* Pieces of a unit of at least this many bytes are separate items. */
#define WORTH 32768u
/* Outputs that are added to at a time, and from how many on it is done by all threads. */
#define ADDED      4096u
#define ADDED_FROM 8192u

enum listed { NOT_LISTED, BEING_LISTED, LISTED };

struct site {
    struct tsr_cpu           *c;
    const struct tsr_site_op *op;
    struct tsr_cpu_product    a[TSR_COMPENSATE_LINEARS];
    uint64_t                  units[TSR_COMPENSATE_LINEARS + 1]; /* before each linear */
    struct tsr_cpu_choosing   choose;
    struct tsr_cpu_adding     add;
    struct tsr_cpu_gather     gather[TSR_COMPENSATE_LINEARS];
    uint64_t                  pieces; /* of residuals */
    uint8_t                  *done;   /* finished pieces */
    _Atomic int               listed; /* the channels: enum listed */
};

/* ---- one after the other ------------------------------------------------------------------------- */

static tsr_status run_each(struct tsr_cpu *c, void *stream, const struct tsr_site_op *op,
                           struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint32_t j = 0; j < op->n && st == TSR_OK; j++)
        st = tsr_cpu_run(c, stream, op->linear[j], err);
    if (st == TSR_OK && op->select)
        st = tsr_cpu_select_op(c, stream, op->select, err);
    if (st == TSR_OK && op->add)
        st = tsr_cpu_compensate_op(c, stream, op->add, err);
    return st;
}

/* ---- together ------------------------------------------------------------------------------------- */

static int same(const struct tsr_tensor *a, const struct tsr_tensor *b)
{
    return a == b || (a && b && a->buffer == b->buffer && a->offset == b->offset &&
                      a->cols == b->cols && a->rows == b->rows);
}

/* Products of one token's input with packed integers; all or none are compensated. */
static int fits(const struct tsr_site_op *op)
{
    const struct tsr_select_op     *s = op->select;
    const struct tsr_compensate_op *a = op->add;
    for (uint32_t j = 0; j < op->n; j++)
        if (op->linear[j]->kind != TSR_OP_LINEAR || !op->linear[j]->in[0] ||
            op->linear[j]->in[0]->rows != 1 || !same(op->linear[j]->in[0], op->linear[0]->in[0]))
            return 0;
    if (!s || !a)
        return !s && !a;
    return !s->rows && !a->rows && s->x && s->list && s->x->rows == 1 &&
           same(s->x, op->linear[0]->in[0]) && same(a->x, s->x) && same(a->list, s->list);
}

static uint64_t sum_room(const struct tsr_cpu_adding *a, uint32_t j)
{
    return cpu_ceil(a->out[j].cols, 16) * 64;
}

/* Places the gathered sums of output i at p; returns the end of their room. */
static uint8_t *prepare_sums(struct site *s, uint32_t i, uint8_t *p)
{
    tsr_cpu_adding_gather(&s->add, 0, i, &s->gather[i]);
    s->gather[i].out = (float *)(void *)p;
    s->gather[i].fresh = 1;
    return p + sum_room(&s->add, i);
}

/* Activations, and room for the compensation. */
static tsr_status prepare(struct site *s, struct tsr_err *err)
{
    const struct tsr_compensate_op *add = s->op->add;
    uint64_t                        room = 0, pieces = 0;
    uint8_t                        *p;
    for (uint32_t j = 0; j < s->op->n; j++)
        room += tsr_cpu_product_room(&s->a[j]);
    for (uint32_t j = 0; add && j < add->n; j++)
        room += sum_room(&s->add, j);
    if (add) /* joined, pieces get fewer */
        pieces = s->add.pieces[add->n];
    tsr_status st = tsr_cpu_scratch(s->c, room + pieces, &p, err);
    if (st != TSR_OK)
        return st;
    for (uint32_t j = 0; j < s->op->n; j++) {
        uint32_t of = 0;
        while (of < j && !tsr_cpu_product_alike(&s->a[of], &s->a[j]))
            of++;
        if (of < j) {
            s->a[j].job.inputs = s->a[of].job.inputs;
            continue;
        }
        if ((st = tsr_cpu_product_prepare(&s->a[j], p, err)) != TSR_OK)
            return st;
        p += tsr_cpu_product_room(&s->a[j]);
    }
    for (uint32_t j = 0; add && j < add->n; j++)
        p = prepare_sums(s, j, p);
    if (add) {
        tsr_cpu_adding_join(&s->add, s->gather);
        s->pieces = s->add.pieces[add->n];
        s->done = memset(p, 0, pieces);
    }
    return TSR_OK;
}

/* ---- pieces of residual rows ---------------------------------------------------------------------- */

/* Whether the channels are selected; the first caller selects them. */
static int list_is_there(struct site *s)
{
    int none = NOT_LISTED;
    if (atomic_load_explicit(&s->listed, memory_order_acquire) == LISTED)
        return 1;
    if (!atomic_compare_exchange_strong(&s->listed, &none, BEING_LISTED))
        return 0;
    tsr_cpu_choose(&s->choose, 0, 1);
    tsr_cpu_adding_list(&s->add, 0, &s->gather[0]);
    for (uint32_t j = 1; j < s->op->add->n; j++) {
        s->gather[j].list = s->gather[0].list;
        s->gather[j].count = s->gather[0].count;
    }
    atomic_store_explicit(&s->listed, LISTED, memory_order_release);
    return 1;
}

static void run_piece(struct site *s, uint64_t i)
{
    uint64_t j = 0;
    while (i >= s->add.pieces[j + 1])
        j++;
    uint64_t from = (i - s->add.pieces[j]) * s->add.wide, outputs = 0;
    for (const struct tsr_cpu_gather *g = &s->gather[j]; g; g = g->behind)
        outputs += g->behind ? tsr_cpu_gather_room(g) : g->outputs;
    s->add.k->gather(&s->gather[j], from, cpu_min(from + s->add.wide, outputs));
    s->done[i] = 1;
}

static void run_units(const struct site *s, uint64_t begin, uint64_t end)
{
    for (uint32_t j = 0; begin < end; j++) {
        uint64_t first = s->units[j], upto = cpu_min(end, s->units[j + 1]);
        if (begin >= upto)
            continue;
        (void)tsr_cpu_product_run(&s->a[j], CPU_PAIRS_FROM, begin - first, upto - first);
        begin = upto;
    }
}

/* Items: pieces, then panels. So the first thread selects, waits for rows and multiplies them while the
 * others use the memory bandwidth for their panels, which loses less time than the same phase on all
 * threads at once. Pieces that a thread reaches before the channels are known are deferred to the end. */
static tsr_status run_items(void *arg, uint64_t begin, uint64_t end)
{
    struct site *s = arg;
    for (; begin < end && begin < s->pieces; begin++)
        if (list_is_there(s))
            run_piece(s, begin);
    if (begin < end)
        run_units(s, begin - s->pieces, end - s->pieces);
    return TSR_OK;
}

/* ---- all ------------------------------------------------------------------------------------------ */

struct sums {
    const struct tsr_cpu *c;
    float                *out;
    const float          *add;
};

static tsr_status add_sums(void *arg, uint64_t begin, uint64_t end)
{
    const struct sums *a = arg;
    a->c->k->add(a->out + begin, a->out + begin, a->add + begin, end - begin);
    return TSR_OK;
}

/* What is gathered, to output i. */
static tsr_status add_to(const struct site *s, uint32_t i)
{
    struct sums a = { s->c, (float *)(void *)s->add.out[i].p, s->gather[i].out };
    uint64_t    n = s->add.out[i].cols;
    return n < ADDED_FROM ? add_sums(&a, 0, n)
                          : s->c->host->parallel_for(s->c->host->ctx, n, ADDED, add_sums, &a);
}

static tsr_status run_together(struct site *s, struct tsr_err *err)
{
    const struct tsr_compensate_op *add = s->op->add;
    tsr_status                      st = TSR_OK;
    if (s->op->select)
        st = tsr_cpu_choosing_view(s->c, s->op->select, &s->choose, err);
    if (st == TSR_OK)
        st = prepare(s, err);
    if (st != TSR_OK)
        return st;
    uint64_t all = s->units[s->op->n], work = 0;
    for (uint32_t j = 0; j < s->op->n; j++)
        work += s->a[j].w->panels * s->a[j].w->panel_bytes;
    uint64_t unit = work / all, n = all + s->pieces;
    if (unit < WORTH)
        st = tsr_cpu_for(s->c, n, unit, run_items, s);
    else
        st = s->c->host->parallel_for(s->c->host->ctx, n, 1, run_items, s);
    for (uint64_t i = 0; i < s->pieces && st == TSR_OK; i++)
        if (!s->done[i])
            run_piece(s, i);
    for (uint32_t i = 0; add && i < add->n && st == TSR_OK; i++)
        st = add_to(s, i);
    return st;
}

static tsr_status view(struct site *s, int *single, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    *single = 1;
    for (uint32_t j = 0; j < s->op->n && st == TSR_OK; j++) {
        st = tsr_cpu_product_view(s->op->linear[j], &s->a[j], err);
        if (st != TSR_OK || s->a[j].job.tokens != 1 || s->a[j].k != &tsr_cpu_kernel_integers) {
            *single = 0;
            return st;
        }
        s->units[j + 1] = s->units[j] + tsr_cpu_product_units(&s->a[j], CPU_PAIRS_FROM);
    }
    return s->op->add && st == TSR_OK ? tsr_cpu_adding_view(s->c, s->op->add, 1, &s->add, err) : st;
}

static void touch(const struct tsr_site_op *op, void (*how)(void *p, uint64_t bytes))
{
    for (uint32_t j = 0; j < op->n; j++)
        tsr_cpu_touch_op(op->linear[j], how);
    if (op->select)
        tsr_cpu_touch(op->select->list, how);
    for (uint32_t j = 0; op->add && j < op->add->n && j < TSR_COMPENSATE_LINEARS; j++)
        tsr_cpu_touch(op->add->out[j], how);
}

tsr_status tsr_cpu_site(void *self, void *stream, const struct tsr_site_op *op, struct tsr_err *err)
{
    struct site s = { .c = self, .op = op };
    int         single;
    if (op->n == 0 || op->n > TSR_COMPENSATE_LINEARS)
        return tsr_fail(err, TSR_E_INVAL, "a site of %u linears, 1 to %u are allowed", op->n,
                        TSR_COMPENSATE_LINEARS);
    if (!fits(op))
        return run_each(s.c, stream, op, err);
    touch(op, s.c->mem->open);
    tsr_status st = view(&s, &single, err);
    if (st == TSR_OK && single)
        st = run_together(&s, err);
    touch(op, s.c->mem->close);
    return st == TSR_OK && !single ? run_each(s.c, stream, op, err) : st;
}

const struct tsr_backend_compensate_v1 *tsr_cpu_compensate(void)
{
    static const struct tsr_backend_compensate_v1 table = { .struct_size = sizeof table,
                                                            .residual_load = tsr_cpu_residual_load,
                                                            .residual_free = tsr_cpu_residual_free,
                                                            .select = tsr_cpu_select_op,
                                                            .compensate = tsr_cpu_compensate_op,
                                                            .site = tsr_cpu_site };
    return &table;
}
