/* member.c - one of the products that share a loop over the threads. */
#include "member.h"

int tsr_cpu_member_take(const struct tsr_op *op, struct tsr_cpu_member *m)
{
    if (tsr_cpu_linear_view(op, &m->a, NULL) != TSR_OK)
        return 0;
    m->extra = tsr_cpu_extra_single(&m->a, op->act);
    m->of_extra = (struct tsr_cpu_linear8){ 0 };
    return m->extra || tsr_cpu_linear_single(&m->a, op->act);
}

uint64_t tsr_cpu_member_room(const struct tsr_cpu_member *m)
{
    return m->extra ? tsr_cpu_extra_scratch(m->a.w, 1) : tsr_cpu_linear_room(&m->a);
}

/* The prepared activations of b are those that m needs. */
static int alike(const struct tsr_cpu_member *b, const struct tsr_cpu_member *m)
{
    const struct tsr_cpu_weight *v = b->a.w, *w = m->a.w;
    int plain = v->layout == w->layout && !v->extra.llm && !w->extra.llm && !v->extra.outliers &&
                !w->extra.outliers;
    return b->a.x == m->a.x && b->extra == m->extra && (plain || !m->extra) &&
           tsr_cpu_linear_alike(v, w);
}

uint8_t *tsr_cpu_member_prepare(const struct tsr_cpu *c, struct tsr_cpu_member *m,
                                const struct tsr_cpu_member **before, uint8_t *room)
{
    const struct tsr_cpu_member *b = *before;
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
        m->of_extra = tsr_cpu_extra_prepare(c, &m->a, room);
    else
        tsr_cpu_linear_prepare(c, &m->a, room);
    return room + tsr_cpu_member_room(m);
}

uint64_t tsr_cpu_member_units(const struct tsr_cpu_member *m)
{
    return m->extra ? m->a.w->panels : tsr_cpu_linear_units(&m->a, 1);
}

void tsr_cpu_member_run(const struct tsr_cpu *c, const struct tsr_cpu_member *m, uint64_t begin,
                        uint64_t end)
{
    if (m->extra)
        tsr_cpu_extra_run(c, &m->of_extra, begin, end);
    else
        tsr_cpu_linear_run(c, &m->a, 1, begin, end);
}
