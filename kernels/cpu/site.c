/* site.c - the linears of one input, the selection from it and what is added to them, for one token in one loop over
 * the threads: pieces of residual rows and panels of weights.  The thread that comes first selects and gathers; what is
 * gathered has memory of its own.  Panels that begin when all of it is there take it as their bias; to the outputs of
 * the others it comes at the end, so that nothing in the loop waits for anything else in it. */
#include "site.h"

#include <stdatomic.h>
#include <string.h>

/* Bytes of a unit from which on each is an item of its own. */
#define WORTH 32768u

enum listed { NOT_LISTED, BEING_LISTED, LISTED };

struct site {
    struct tsr_cpu           *c;
    const struct tsr_site_op *op;
    struct tsr_cpu_linear     a[TSR_COMPENSATE_LINEARS];
    struct tsr_cpu_linear     with[TSR_COMPENSATE_LINEARS];      /* its bias is what is added */
    uint64_t                  units[TSR_COMPENSATE_LINEARS + 1]; /* in front of each linear */
    struct tsr_cpu_choosing   choose;
    struct tsr_cpu_adding     add;
    struct tsr_cpu_gather     gather[TSR_COMPENSATE_LINEARS];
    uint32_t         taker[TSR_COMPENSATE_LINEARS]; /* of what is added: a linear, or op->n */
    uint64_t         pieces;                        /* of residuals */
    uint8_t         *done;   /* of each piece, then of each unit: gathered; added */
    _Atomic uint64_t left;   /* pieces that are not gathered yet */
    _Atomic int      listed; /* the channels: enum listed */
};

/* ---- one behind the other ------------------------------------------------------------------------ */

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

/* Products of one token's input with packed integers, compensated all or not at all. */
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
    return !s->rows && !a->rows && a->first == 0 && s->x && s->list && s->x->rows == 1 &&
           s->x->cols == a->channels && same(s->x, op->linear[0]->in[0]) && same(a->x, s->x) &&
           same(a->list, s->list);
}

/* The activations of one are those of the other. */
static int alike(const struct tsr_cpu_weight *a, const struct tsr_cpu_weight *b)
{
    return a->cols == b->cols && a->seg == b->seg && a->nblocks == b->nblocks &&
           a->nruns == b->nruns && (a->zeros != NULL) == (b->zeros != NULL) &&
           (a->zeros || a->mid == b->mid) &&
           memcmp(a->runs, b->runs, a->nruns * sizeof *a->runs) == 0;
}

static void share(struct tsr_cpu_linear *to, const struct tsr_cpu_linear *of)
{
    to->q = of->q;
    to->ldq = of->ldq;
    to->sa = of->sa;
    to->sums = of->sums;
}

static uint64_t sum_room(const struct tsr_cpu_adding *a, uint32_t j)
{
    return cpu_ceil(a->out[j].cols, 16) * 64;
}

/* The linear that takes what is added to output i as its bias; op->n: none. */
static uint32_t taker(const struct site *s, uint32_t i)
{
    uint32_t j = 0;
    while (j < s->op->n &&
           ((uint8_t *)s->a[j].out != s->add.out[i].p || s->a[j].w->rows != s->add.out[i].cols))
        j++;
    return j < s->op->n && !s->a[j].bias && !s->with[j].bias ? j : s->op->n;
}

/* What is added to output i gathers at p; where the room behind it begins. */
static uint8_t *prepare_sums(struct site *s, uint32_t i, uint8_t *p)
{
    uint32_t j = taker(s, i);
    tsr_cpu_adding_gather(&s->add, 0, i, &s->gather[i]);
    s->gather[i].out = (float *)(void *)p;
    s->gather[i].fresh = 1;
    s->taker[i] = j;
    if (j < s->op->n) {
        s->with[j] = s->a[j];
        s->with[j].bias = s->gather[i].out;
    }
    return p + sum_room(&s->add, i);
}

/* Activations, and room for what is added. */
static tsr_status prepare(struct site *s, struct tsr_err *err)
{
    const struct tsr_compensate_op *add = s->op->add;
    uint64_t                        room = 0, items = s->units[s->op->n];
    uint8_t                        *p;
    for (uint32_t j = 0; j < s->op->n; j++)
        room += tsr_cpu_linear_room(&s->a[j]);
    for (uint32_t j = 0; add && j < add->n; j++)
        room += sum_room(&s->add, j);
    if (add) /* joined, pieces get fewer */
        items += s->add.pieces[add->n];
    tsr_status st = tsr_cpu_scratch(s->c, room + items, &p, err);
    if (st != TSR_OK)
        return st;
    for (uint32_t j = 0; j < s->op->n; j++) {
        uint32_t of = 0;
        while (of < j && !alike(s->a[of].w, s->a[j].w))
            of++;
        if (of < j) {
            share(&s->a[j], &s->a[of]);
            continue;
        }
        tsr_cpu_linear_prepare(s->c, &s->a[j], p);
        p += tsr_cpu_linear_room(&s->a[j]);
    }
    for (uint32_t j = 0; add && j < add->n; j++)
        p = prepare_sums(s, j, p);
    if (add) {
        tsr_cpu_adding_join(&s->add, s->gather);
        s->pieces = s->add.pieces[add->n];
        s->done = memset(p, 0, items);
        atomic_init(&s->left, s->pieces);
    }
    return TSR_OK;
}

/* ---- pieces of residual rows ---------------------------------------------------------------------- */

/* Whether the channels are selected; who asks first does it. */
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
        memcpy(s->gather[j].segment, s->gather[0].segment, sizeof s->gather[j].segment);
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
    atomic_fetch_sub_explicit(&s->left, 1, memory_order_release);
}

/* ---- panels of weights ---------------------------------------------------------------------------- */

/* The panels of a unit of linear j; the second is UINT64_MAX where it is one. */
static void panels_of(const struct site *s, uint32_t j, uint64_t unit, uint64_t panel[2])
{
    uint64_t all = s->a[j].w->panels, half = all / 2;
    int      pairs = s->units[j + 1] - s->units[j] < all;
    panel[0] = pairs && unit == half ? all - 1 : unit;
    panel[1] = pairs && unit < half ? unit + half : UINT64_MAX;
}

/* What is added to them has come from another core's cache by when it is needed. */
static void fetch_sums(const struct site *s, uint32_t j, uint64_t unit)
{
    uint64_t panel[2];
    panels_of(s, j, unit, panel);
    for (int i = 0; i < 2 && panel[i] != UINT64_MAX; i++) {
        __builtin_prefetch(s->with[j].bias + panel[i] * PANEL);
        __builtin_prefetch(s->with[j].bias + panel[i] * PANEL + PANEL / 2);
    }
}

static void run_units(const struct site *s, uint64_t begin, uint64_t end)
{
    for (uint32_t j = 0; begin < end; j++) {
        uint64_t first = s->units[j], upto = cpu_min(end, s->units[j + 1]);
        if (begin >= upto)
            continue;
        if (!s->with[j].bias || atomic_load_explicit(&s->left, memory_order_acquire)) {
            tsr_cpu_linear_run(s->c, &s->a[j], begin - first, upto - first);
            begin = upto;
            continue;
        }
        for (; begin < upto; begin++) {
            fetch_sums(s, j, begin - first);
            tsr_cpu_linear_run(s->c, &s->with[j], begin - first, begin + 1 - first);
            s->done[s->pieces + begin] = 1;
        }
    }
}

/* Items: pieces, then panels.  So the thread that comes first selects, waits for rows and then multiplies them, while
 * others have the memory for their panels: less is lost than where all threads do the same at the same time.  Pieces
 * that another thread comes to before the channels are known stay for the end. */
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

/* What panels have not taken themselves, to output i. */
static void add_rest(const struct site *s, uint32_t i)
{
    float       *out = (float *)(void *)s->add.out[i].p;
    const float *sums = s->gather[i].out;
    uint64_t     cols = s->add.out[i].cols, panel[2];
    uint32_t     j = s->taker[i];
    if (j == s->op->n) {
        s->c->k->add(out, out, sums, cols);
        return;
    }
    for (uint64_t u = s->units[j]; u < s->units[j + 1]; u++) {
        if (s->done[s->pieces + u])
            continue;
        panels_of(s, j, u - s->units[j], panel);
        for (int p = 0; p < 2 && panel[p] != UINT64_MAX; p++) {
            uint64_t at = panel[p] * PANEL;
            s->c->k->add(out + at, out + at, sums + at, cpu_min(PANEL, cols - at));
        }
    }
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
        add_rest(s, i);
    return st;
}

static tsr_status view(struct site *s, int *single, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    *single = 1;
    for (uint32_t j = 0; j < s->op->n && st == TSR_OK; j++) {
        st = tsr_cpu_linear_view(s->op->linear[j], &s->a[j], err);
        if (st != TSR_OK || !tsr_cpu_linear_single(&s->a[j], s->op->linear[j]->act)) {
            *single = 0;
            return st;
        }
        s->units[j + 1] = s->units[j] + tsr_cpu_linear_units(&s->a[j]);
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
