/* gated.c - the gated feed-forwards of one token in one loop over the threads (tessera/draft/linears.h).
 *
 * While enough is left, a thread takes a whole feed-forward: it reads long contiguous memory, and nobody waits.  The last
 * ones are cut into items.  ACT of one, and then its down, are listed behind items of the next ones, so that the
 * products before them are done when a thread comes to them:
 *
 *   whole 0, whole 1, ... gate k, up k, gate k+1, ACT k, up k+1, down k, ...
 */
#include "member.h"
#include "tessera/draft/linears.h"

#include <sched.h>
#include <stdatomic.h>

#define ITEM_BYTES                                                                                 \
    65536u /* of weights, at least: an item costs as much as reading a tenth of this */
#define TURNS 1000

enum what { GATE, UP, ACT, DOWN, WHOLE };

struct item {
    uint32_t of, what;
    uint64_t begin, end; /* units */
};

struct feed {
    _Alignas(CPU_LINE) _Atomic uint64_t left; /* items of gate and up that are not done */
    _Atomic int            ready;             /* the activations of down are */
    struct tsr_cpu_product m[DOWN + 1];       /* without ACT */
    struct tsr_cpu_act     act;
    uint8_t               *room;  /* for the activations of down */
    uint64_t               after; /* items up to the last that was listed */
};

struct all {
    struct tsr_cpu *c;
    struct feed    *f;
    struct item    *item;
    uint64_t        n, items, threads;
    uint64_t        rest; /* bytes of weights that are not listed yet */
    _Alignas(CPU_LINE) _Atomic uint64_t next;
};

static uint64_t bytes_of(const struct tsr_cpu_product *m)
{
    return m->w->panels * m->w->panel_bytes;
}

/* ---- work ------------------------------------------------------------------------------------------ */

/* At full speed at first: what is waited for takes microseconds.  Then its thread may need this CPU. */
static void wait_turn(int *turns)
{
    if (++*turns > TURNS)
        sched_yield();
}

static void run_act(const struct tsr_cpu *c, struct feed *f)
{
    const struct tsr_cpu_product *before = NULL;
    for (int turns = 0; atomic_load_explicit(&f->left, memory_order_acquire) != 0;)
        wait_turn(&turns);
    tsr_cpu_act_run(c, &f->act);
    (void)tsr_cpu_member_prepare(&f->m[DOWN], &before, f->room);
    atomic_store_explicit(&f->ready, 1, memory_order_release);
}

static void run_product(const struct tsr_cpu_product *m)
{
    tsr_cpu_member_run(m, 0, tsr_cpu_product_units(m, 1));
}

static void run_item(const struct all *a, const struct item *i)
{
    struct feed *f = &a->f[i->of];
    switch (i->what) {
    case WHOLE:
        run_product(&f->m[GATE]);
        run_product(&f->m[UP]);
        run_act(a->c, f);
        run_product(&f->m[DOWN]);
        break;
    case ACT:
        run_act(a->c, f);
        break;
    case DOWN:
        for (int turns = 0; atomic_load_explicit(&f->ready, memory_order_acquire) == 0;)
            wait_turn(&turns);
        tsr_cpu_member_run(&f->m[DOWN], i->begin, i->end);
        break;
    default:
        tsr_cpu_member_run(&f->m[i->what], i->begin, i->end);
        atomic_fetch_sub_explicit(&f->left, 1, memory_order_release);
    }
}

/* What is known of the next product: this thread is likely to take it. */
static void fetch_next(const struct all *a, uint64_t i)
{
    const struct item *next = &a->item[i];
    if (i >= a->items || next->what == WHOLE || next->what == ACT)
        return;
    const struct tsr_cpu_product *m = &a->f[next->of].m[next->what];
    cpu_fetch(m, sizeof *m);
    cpu_fetch(m->w, sizeof(struct tsr_cpu_loaded));
    cpu_fetch(m->w->runs, m->w->nruns * sizeof *m->w->runs);
}

/* An index of the loop is a permit for the next item: items begin in their order, whatever the order of the loop, and so
 * what an item waits for has always begun. */
static tsr_status run_next(void *arg, uint64_t begin, uint64_t end)
{
    struct all *a = arg;
    for (; begin < end; begin++) {
        uint64_t i = atomic_fetch_add_explicit(&a->next, 1, memory_order_relaxed);
        fetch_next(a, i + 1);
        run_item(a, &a->item[i]);
    }
    return TSR_OK;
}

/* ---- the list -------------------------------------------------------------------------------------- */

/* Half of a thread's share of what is left: the last items are short. */
static uint64_t share_of(const struct all *a)
{
    return a->rest / (2 * a->threads);
}

static void add_item(struct all *a, uint64_t of, uint32_t what, uint64_t begin, uint64_t end)
{
    a->item[a->items++] = (struct item){ (uint32_t)of, what, begin, end };
    a->f[of].after = a->items;
}

static void add_items(struct all *a, uint64_t of, uint32_t what)
{
    const struct tsr_cpu_product *m = &a->f[of].m[what];
    uint64_t units = tsr_cpu_product_units(m, 1), each = bytes_of(m) / units, n;
    for (uint64_t at = 0; at < units; at += n) {
        uint64_t share = share_of(a);
        n = cpu_ceil(share > ITEM_BYTES ? share : ITEM_BYTES, each ? each : 1);
        n = cpu_min(n, units - at);
        add_item(a, of, what, at, at + n);
        a->rest -= each * n;
        if (what != DOWN)
            atomic_fetch_add_explicit(&a->f[of].left, 1, memory_order_relaxed);
    }
}

/* Enough other items follow what feed-forward `of` has in the list. */
static int is_behind(const struct all *a, uint64_t of)
{
    return a->f[of].after + a->threads <= a->items;
}

static void list_cut(struct all *a, uint64_t first)
{
    uint64_t act = first, down = first;
    for (uint64_t i = first; i < a->n; i++)
        for (uint32_t what = GATE; what <= UP; what++) {
            add_items(a, i, what);
            for (; act < i && is_behind(a, act); act++)
                add_item(a, act, ACT, 0, 0);
            for (; down < act && is_behind(a, down); down++)
                add_items(a, down, DOWN);
        }
    for (; act < a->n; act++)
        add_item(a, act, ACT, 0, 0);
    for (; down < a->n; down++)
        add_items(a, down, DOWN);
}

static void list_all(struct all *a)
{
    uint64_t i = 0;
    for (; i < a->n; i++) {
        const struct feed *f = &a->f[i];
        uint64_t own = bytes_of(&f->m[GATE]) + bytes_of(&f->m[UP]) + bytes_of(&f->m[DOWN]);
        if (own > share_of(a))
            break;
        add_item(a, i, WHOLE, 0, 0);
        a->rest -= own;
    }
    list_cut(a, i);
}

/* ---- checks and memory ----------------------------------------------------------------------------- */

static int same(const struct tsr_tensor *a, const struct tsr_tensor *b)
{
    return a && b && a->buffer == b->buffer && a->offset == b->offset && a->cols == b->cols;
}

/* The operations are one feed-forward of one row. */
static int take(const struct tsr_gated_op *g, struct feed *f)
{
    return same(g->act->out, g->down->in[0]) && same(g->act->in[0], g->gate->out) &&
           same(g->act->in[1], g->up->out) && tsr_cpu_member_take(g->gate, &f->m[GATE]) &&
           tsr_cpu_member_take(g->up, &f->m[UP]) && tsr_cpu_act_take(g->act, &f->act) &&
           tsr_cpu_member_take(g->down, &f->m[DOWN]);
}

/* Places in the scratch, behind the feeds. */
struct room {
    uint64_t items, activations, all;
};

static int measure(struct all *a, const struct tsr_gated_op *g, struct room *r)
{
    static const enum what products[] = { GATE, UP, DOWN };
    uint64_t               items = 0, activations = 0;
    a->rest = 0;
    for (uint64_t i = 0; i < a->n; i++) {
        struct feed *f = &a->f[i];
        if (!take(&g[i], f))
            return 0;
        for (int j = 0; j < 3; j++) {
            const struct tsr_cpu_product *m = &f->m[products[j]];
            items += cpu_ceil(bytes_of(m), ITEM_BYTES) + 1; /* and ACT: each is at most so many */
            activations += tsr_cpu_product_room(m);
            a->rest += bytes_of(m);
        }
        atomic_init(&f->left, 0);
        atomic_init(&f->ready, 0);
    }
    r->items = a->n * sizeof *a->f;
    r->activations = r->items + cpu_ceil(items * sizeof *a->item, CPU_LINE) * CPU_LINE;
    r->all = r->activations + activations;
    return 1;
}

static void prepare(const struct all *a, uint8_t *p)
{
    const struct tsr_cpu_product *before = NULL;
    for (uint64_t i = 0; i < a->n; i++) {
        p = tsr_cpu_member_prepare(&a->f[i].m[GATE], &before, p);
        p = tsr_cpu_member_prepare(&a->f[i].m[UP], &before, p);
    }
    for (uint64_t i = 0; i < a->n; i++) {
        a->f[i].room = p;
        p += tsr_cpu_product_room(&a->f[i].m[DOWN]);
    }
}

static tsr_status run_all(struct all *a, const struct tsr_gated_op *g, struct tsr_err *err)
{
    struct room r;
    uint8_t    *p;
    tsr_status  st = tsr_cpu_scratch(a->c, a->n * sizeof *a->f, &p, err);
    if (st != TSR_OK)
        return st;
    a->f = (struct feed *)(void *)p;
    if (!measure(a, g, &r))
        return TSR_E_UNSUPPORTED;
    if (r.all > a->c->scratch_bytes) { /* it grows elsewhere */
        if ((st = tsr_cpu_scratch(a->c, r.all, &p, err)) != TSR_OK)
            return st;
        a->f = (struct feed *)(void *)p;
        (void)measure(a, g, &r);
    }
    a->item = (struct item *)(void *)(p + r.items);
    prepare(a, p + r.activations);
    list_all(a);
    return a->c->host->parallel_for(a->c->host->ctx, a->items, 1, run_next, a);
}

/* What is known of weights lies apart for each, and no cache has it: all at once instead of one after the other. */
static void fetch_all(const struct tsr_gated_op *g, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        cpu_fetch(g[i].gate->weight, sizeof(struct tsr_cpu_loaded));
        cpu_fetch(g[i].up->weight, sizeof(struct tsr_cpu_loaded));
        cpu_fetch(g[i].down->weight, sizeof(struct tsr_cpu_loaded));
    }
}

static void touch(const struct tsr_cpu *c, const struct tsr_gated_op *g, uint32_t n,
                  void (*how)(void *p, uint64_t bytes))
{
    for (uint32_t i = 0; !c->mem->always && i < n; i++) {
        tsr_cpu_touch_op(g[i].gate, how);
        tsr_cpu_touch_op(g[i].up, how);
        tsr_cpu_touch_op(g[i].act, how);
        tsr_cpu_touch_op(g[i].down, how);
    }
}

/* One alone would wait for itself: its lines are as fast one after the other. */
tsr_status tsr_cpu_gated(void *self, void *stream, const struct tsr_gated_op *g, uint32_t n,
                         struct tsr_err *err)
{
    struct all a = { .c = self, .n = n };
    (void)stream;
    if (n < 2)
        return TSR_E_UNSUPPORTED;
    a.threads = tsr_cpu_threads(a.c->host);
    fetch_all(g, n);
    touch(a.c, g, n, a.c->mem->open);
    tsr_status st = run_all(&a, g, err);
    touch(a.c, g, n, a.c->mem->close);
    return st;
}
