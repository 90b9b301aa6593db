/* linears.c - several LINEARs in one loop over the threads (tessera/draft/linears.h): products of one token with
 * packed weights and int8 activations share it, panel by panel; the others run one after the other after it. */
#include "tessera/draft/linears.h"
#include "site.h"
#include "weight_extra.h"

#define LINE 64u /* of a cache */

/* One of them: integers with a scale per group, or what linear_extra.c runs. */
struct member {
    int                    extra;
    struct tsr_cpu_linear  a;
    struct tsr_cpu_linear8 of_extra;
};

struct together {
    struct tsr_cpu *c;
    struct member  *m;
    uint64_t *first; /* [n + 1]: units before each member, in few lines: every unit searches them */
    uint64_t  n;
};

static void fetch(const void *p, uint64_t bytes)
{
    for (uint64_t at = 0; p && at < bytes; at += LINE)
        __builtin_prefetch((const uint8_t *)p + at);
}

/* The row of one token. */
static void fetch_input(const struct tsr_tensor *x)
{
    const struct tsr_cpu_buffer *b = x ? x->buffer : NULL;
    if (b && x->rows == 1 && x->offset < b->bytes)
        fetch(b->data + x->offset, cpu_min(x->cols * 4, b->bytes - x->offset));
}

/* What is known of weights lies apart for each, and no cache has it; inputs are in those of several threads.  All at
 * once instead of one after the other. */
static void fetch_all(const struct tsr_op *const *op, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        fetch(op[i]->weight, sizeof(struct tsr_cpu_weight));
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || op[i]->in[0] != op[i - 1]->in[0])
            fetch_input(op[i]->in[0]);
    for (uint32_t i = 0; i < n; i++) {
        const struct tsr_cpu_weight *w = op[i]->weight;
        if (w)
            fetch(w->runs, w->nruns * sizeof *w->runs);
    }
}

/* The last member that begins at or before a unit. */
static uint64_t member_of(const struct together *t, uint64_t unit)
{
    uint64_t low = 0, high = t->n;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (t->first[mid] <= unit)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static tsr_status run_units(void *arg, uint64_t begin, uint64_t end)
{
    const struct together *t = arg;
    for (uint64_t i = member_of(t, begin); begin < end; i++) {
        const struct member *m = &t->m[i];
        uint64_t             first = t->first[i], upto = cpu_min(end, t->first[i + 1]);
        if (m->extra)
            tsr_cpu_extra_run(t->c, &m->of_extra, begin - first, upto - first);
        else
            tsr_cpu_linear_run(t->c, &m->a, 1, begin - first, upto - first);
        begin = upto;
    }
    return TSR_OK;
}

/* Whether it goes together with others. */
static int take(const struct tsr_op *op, struct member *m)
{
    if (tsr_cpu_linear_view(op, &m->a, NULL) != TSR_OK)
        return 0;
    m->extra = tsr_cpu_extra_single(&m->a, op->act);
    m->of_extra = (struct tsr_cpu_linear8){ 0 };
    return m->extra || tsr_cpu_linear_single(&m->a, op->act);
}

static uint64_t room_of(const struct member *m)
{
    return m->extra ? tsr_cpu_extra_scratch(m->a.w, 1) : tsr_cpu_linear_room(&m->a);
}

/* The prepared activations of b are those that m needs. */
static int alike(const struct member *b, const struct member *m)
{
    const struct tsr_cpu_weight *v = b->a.w, *w = m->a.w;
    int plain = v->layout == w->layout && !v->extra.llm && !w->extra.llm && !v->extra.outliers &&
                !w->extra.outliers;
    return b->a.x == m->a.x && b->extra == m->extra && (plain || !m->extra) &&
           tsr_cpu_linear_alike(v, w);
}

/* The activations of a member; the last before it with its own may have the same.  Returns the rest of the room. */
static uint8_t *prepare(const struct together *t, struct member *m, const struct member **before,
                        uint8_t *room)
{
    const struct member *b = *before;
    if (b && alike(b, m)) {
        tsr_cpu_linear_share(&m->a, &b->a);
        m->of_extra = b->of_extra;
        m->of_extra.w = m->a.w;
        m->of_extra.bias = m->a.bias;
        m->of_extra.out = m->a.out;
        m->of_extra.ldo = m->a.ldo;
        return room;
    }
    *before = m;
    if (m->extra)
        m->of_extra = tsr_cpu_extra_prepare(t->c, &m->a, room);
    else
        tsr_cpu_linear_prepare(t->c, &m->a, room);
    return room + room_of(m);
}

/* Those that go together: a list at t->m, and the scratch that their activations need. */
static uint64_t list_members(struct together *t, const struct tsr_op *const *op, uint32_t n)
{
    uint64_t room = 0;
    t->n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (take(op[i], &t->m[t->n]))
            room += room_of(&t->m[t->n++]);
    return room;
}

/* The list is in scratch, and after it the activations. */
static tsr_status run_together(struct together *t, const struct tsr_op *const *op, uint32_t n,
                               struct tsr_err *err)
{
    const struct member *before = NULL;
    struct tsr_cpu      *c = t->c;
    uint64_t             starts = cpu_ceil((n + UINT64_C(1)) * sizeof *t->first, LINE) * LINE;
    uint64_t list = starts + cpu_ceil((n + UINT64_C(1)) * sizeof *t->m, LINE) * LINE, room,
             work = 0, all = 0;
    uint8_t   *p;
    tsr_status st = tsr_cpu_scratch(c, list, &p, err);
    if (st != TSR_OK)
        return st;
    t->m = (struct member *)(void *)(p + starts);
    room = list_members(t, op, n);
    if (list + room > c->scratch_bytes) { /* it grows elsewhere */
        if ((st = tsr_cpu_scratch(c, list + room, &p, err)) != TSR_OK)
            return st;
        t->m = (struct member *)(void *)(p + starts);
        (void)list_members(t, op, n);
    }
    t->first = (uint64_t *)(void *)p;
    p += list;
    for (uint64_t i = 0; i < t->n; i++) {
        struct member *m = &t->m[i];
        t->first[i] = all;
        p = prepare(t, m, &before, p);
        all += m->extra ? m->a.w->panels : tsr_cpu_linear_units(&m->a, 1);
        work += m->a.w->panels * m->a.w->panel_bytes;
    }
    t->first[t->n] = all;
    return all ? tsr_cpu_for(c, all, work / all, run_units, t) : TSR_OK;
}

static void touch(const struct tsr_cpu *c, const struct tsr_op *const *op, uint32_t n,
                  void (*how)(void *p, uint64_t bytes))
{
    for (uint32_t i = 0; !c->mem->always && i < n; i++)
        tsr_cpu_touch_op(op[i], how);
}

static tsr_status linears(void *self, void *stream, const struct tsr_op *const *op, uint32_t n,
                          struct tsr_err *err)
{
    struct together t = { .c = self };
    struct member   one;
    fetch_all(op, n);
    touch(t.c, op, n, t.c->mem->open);
    tsr_status st = run_together(&t, op, n, err);
    touch(t.c, op, n, t.c->mem->close);
    for (uint32_t i = 0; t.n < n && i < n && st == TSR_OK; i++)
        if (!take(op[i], &one))
            st = tsr_cpu_run(t.c, stream, op[i], err);
    return st;
}

const struct tsr_backend_linears_v1 *tsr_cpu_linears(void)
{
    static const struct tsr_backend_linears_v1 table = { .struct_size = sizeof table,
                                                         .linears = linears };
    return &table;
}
