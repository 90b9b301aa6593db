/* linears.c - several LINEARs in one loop over the threads (tessera/draft/linears.h): products of one token with
 * packed weights and int8 activations share it, panel by panel; the others run one after the other before it. */
#include "tessera/draft/linears.h"
#include "site.h"
#include "weight_extra.h"

/* One of them: integers with a scale per group, or what linear_extra.c runs. */
struct member {
    int                    extra;
    struct tsr_cpu_linear  a;
    struct tsr_cpu_linear8 of_extra;
    uint64_t               first; /* unit of all members */
};

struct together {
    struct tsr_cpu *c;
    struct member  *m; /* [n + 1]: the last has the end of the units */
    uint64_t        n;
};

static tsr_status run_units(void *arg, uint64_t begin, uint64_t end)
{
    const struct together *t = arg;
    uint64_t low = 0, high = t->n; /* the last member that begins at or before `begin` */
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (t->m[mid].first <= begin)
            low = mid;
        else
            high = mid;
    }
    for (const struct member *m = &t->m[low]; begin < end; m++) {
        uint64_t upto = cpu_min(end, m[1].first);
        if (m->extra)
            tsr_cpu_extra_run(t->c, &m->of_extra, begin - m->first, upto - m->first);
        else
            tsr_cpu_linear_run(t->c, &m->a, 1, begin - m->first, upto - m->first);
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

/* The list of those that go together, in scratch with their activations. */
static tsr_status run_together(struct tsr_cpu *c, const struct tsr_op *const *op, uint32_t n,
                               struct tsr_err *err)
{
    struct together      t = { .c = c };
    struct member        one;
    const struct member *before = NULL;
    uint64_t list = cpu_ceil((n + UINT64_C(1)) * sizeof one, 64) * 64, room = list, work = 0,
             all = 0;
    uint8_t *p;
    for (uint32_t i = 0; i < n; i++)
        room += take(op[i], &one) ? room_of(&one) : 0;
    tsr_status st = tsr_cpu_scratch(c, room, &p, err);
    if (st != TSR_OK)
        return st;
    t.m = (struct member *)(void *)p;
    p += list;
    for (uint32_t i = 0; i < n; i++) {
        struct member *m = &t.m[t.n];
        if (!take(op[i], m))
            continue;
        m->first = all;
        p = prepare(&t, m, &before, p);
        all += m->extra ? m->a.w->panels : tsr_cpu_linear_units(&m->a, 1);
        work += m->a.w->panels * m->a.w->panel_bytes;
        t.n++;
    }
    t.m[t.n].first = all;
    return all ? tsr_cpu_for(c, all, work / all, run_units, &t) : TSR_OK;
}

static tsr_status linears(void *self, void *stream, const struct tsr_op *const *op, uint32_t n,
                          struct tsr_err *err)
{
    struct tsr_cpu *c = self;
    struct member   one;
    for (uint32_t i = 0; i < n; i++) {
        tsr_status st = take(op[i], &one) ? TSR_OK : tsr_cpu_run(c, stream, op[i], err);
        if (st != TSR_OK)
            return st;
    }
    for (uint32_t i = 0; i < n; i++)
        tsr_cpu_touch_op(op[i], c->mem->open);
    tsr_status st = run_together(c, op, n, err);
    for (uint32_t i = 0; i < n; i++)
        tsr_cpu_touch_op(op[i], c->mem->close);
    return st;
}

const struct tsr_backend_linears_v1 *tsr_cpu_linears(void)
{
    static const struct tsr_backend_linears_v1 table = { .struct_size = sizeof table,
                                                         .linears = linears };
    return &table;
}
