/* linears.c - several LINEARs in one loop over the threads (tessera/draft/linears.h): products of one token with
 * packed weights and int8 activations share it, panel by panel; the others run one after the other after it. */
#include "tessera/draft/linears.h"
#include "member.h"

struct together {
    struct tsr_cpu         *c;
    struct tsr_cpu_product *m;
    uint64_t *first; /* [n + 1]: units before each member, in few lines: every unit searches them */
    uint64_t  n;
};

/* The row of one token. */
static void fetch_input(const struct tsr_tensor *x)
{
    const struct tsr_cpu_buffer *b = x ? x->buffer : NULL;
    if (b && x->rows == 1 && x->offset < b->bytes)
        cpu_fetch(b->data + x->offset, cpu_min(x->cols * 4, b->bytes - x->offset));
}

/* What is known of weights lies apart for each, and no cache has it; inputs are in those of several threads.  All at
 * once instead of one after the other. */
static void fetch_all(const struct tsr_op *const *op, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        cpu_fetch(op[i]->weight, sizeof(struct tsr_cpu_loaded));
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || op[i]->in[0] != op[i - 1]->in[0])
            fetch_input(op[i]->in[0]);
    for (uint32_t i = 0; i < n; i++) {
        const struct tsr_cpu_weight *w = op[i]->weight;
        if (w)
            cpu_fetch(w->runs, w->nruns * sizeof *w->runs);
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
        const struct tsr_cpu_product *m = &t->m[i];
        uint64_t                      first = t->first[i], upto = cpu_min(end, t->first[i + 1]);
        tsr_cpu_member_run(m, begin - first, upto - first);
        begin = upto;
    }
    return TSR_OK;
}

/* Those that go together: a list at t->m, and the scratch that their activations need. */
static uint64_t list_members(struct together *t, const struct tsr_op *const *op, uint32_t n)
{
    uint64_t room = 0;
    t->n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (tsr_cpu_member_take(op[i], &t->m[t->n]))
            room += tsr_cpu_product_room(&t->m[t->n++]);
    return room;
}

/* The list is in scratch, and after it the activations. */
static tsr_status run_together(struct together *t, const struct tsr_op *const *op, uint32_t n,
                               struct tsr_err *err)
{
    const struct tsr_cpu_product *before = NULL;
    struct tsr_cpu               *c = t->c;
    uint64_t starts = cpu_ceil((n + UINT64_C(1)) * sizeof *t->first, CPU_LINE) * CPU_LINE;
    uint64_t list = starts + cpu_ceil((n + UINT64_C(1)) * sizeof *t->m, CPU_LINE) * CPU_LINE, room,
             work = 0, all = 0;
    uint8_t   *p;
    tsr_status st = tsr_cpu_scratch(c, list, &p, err);
    if (st != TSR_OK)
        return st;
    t->m = (struct tsr_cpu_product *)(void *)(p + starts);
    room = list_members(t, op, n);
    if (list + room > c->scratch_bytes) { /* it grows elsewhere */
        if ((st = tsr_cpu_scratch(c, list + room, &p, err)) != TSR_OK)
            return st;
        t->m = (struct tsr_cpu_product *)(void *)(p + starts);
        (void)list_members(t, op, n);
    }
    t->first = (uint64_t *)(void *)p;
    p += list;
    for (uint64_t i = 0; i < t->n; i++) {
        struct tsr_cpu_product *m = &t->m[i];
        t->first[i] = all;
        p = tsr_cpu_member_prepare(m, &before, p);
        all += tsr_cpu_product_units(m, 1);
        work += m->w->panels * m->w->panel_bytes;
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
    struct together        t = { .c = self };
    struct tsr_cpu_product one;
    fetch_all(op, n);
    touch(t.c, op, n, t.c->mem->open);
    tsr_status st = run_together(&t, op, n, err);
    touch(t.c, op, n, t.c->mem->close);
    for (uint32_t i = 0; t.n < n && i < n && st == TSR_OK; i++)
        if (!tsr_cpu_member_take(op[i], &one))
            st = tsr_cpu_run(t.c, stream, op[i], err);
    return st;
}

const struct tsr_backend_linears_v1 *tsr_cpu_linears(void)
{
    static const struct tsr_backend_linears_v1 table = { .struct_size = sizeof table,
                                                         .linears = linears,
                                                         .gated = tsr_cpu_gated };
    return &table;
}
