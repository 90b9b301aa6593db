/* The decode times of the last requests of a batch, where they are fewer than a micro-batch. */
#include "plan/search/search.h"

/* Requests of the smaller micro-batch among those that take freed slots last; 0: all are full. */
static uint64_t rest_of(const struct tsr_plan_outcome *o, const struct tsr_plan_problem *p,
                        uint64_t at_once)
{
    return p->work.batch > at_once ? p->work.batch % at_once % o->decode_mb : 0;
}

static tsr_status layers_ms(const struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                            const struct tsr_plan_outcome_stage *st, uint32_t kind, uint64_t rows,
                            double *ms, struct tsr_err *err)
{
    const uint32_t      *cls = b->p->shape->layer_class;
    struct tsr_plan_time t = { 0 };
    for (uint64_t l = st->first; l < st->first + st->count; l++) {
        if (l == st->first || cls[l] != cls[l - 1] || o->item[l] != o->item[l - 1])
            TSR_TRY(
                tsr_plan_built_layer(b, kind, cls[l], o->item[l], TSR_PLAN_DECODE, rows, &t, err));
        *ms += t.ms;
    }
    return TSR_OK;
}

static tsr_status send_of(const struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                          uint64_t i, uint64_t rows, struct tsr_plan_send *way, struct tsr_err *err)
{
    const struct tsr_plan_problem       *p = b->p;
    const struct tsr_plan_outcome_stage *st = &o->stages[i];
    if (i + 1 < o->n_stages)
        return tsr_plan_latency_link(p->cluster, &st->mesh, &o->stages[i + 1].mesh, TSR_PLAN_DECODE,
                                     &p->links[st->link].wire[TSR_PLAN_DECODE], rows,
                                     p->shape->hidden, way, err);
    *way = (struct tsr_plan_send){ 0 };
    return o->goes_back ? tsr_plan_problem_back(p, &st->mesh, &o->stages[0].mesh, TSR_PLAN_DECODE,
                                                rows, way, err)
                        : TSR_OK;
}

tsr_status tsr_plan_outcome_rest(struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                                 uint64_t part, const struct tsr_solver_solution *s,
                                 struct tsr_err *err)
{
    const struct tsr_plan_part *pt = &b->parts[part];
    bool                        head_first = b->p->memory.place == TSR_PLAN_HEAD_FIRST;
    uint64_t                    rows = rest_of(o, b->p, pt->inst.in.batch);
    o->rest_mb = rows;
    for (uint64_t i = 0; i < o->n_stages; i++) {
        struct tsr_plan_outcome_stage *st = &o->stages[i];
        uint32_t                       kind = s->stage_kind[i] + pt->first_kind;
        struct tsr_plan_time           embed, head;
        struct tsr_plan_send           way;
        st->rest_ms = st->dec_ms;
        st->link_rest_ms = st->link_dec_ms;
        st->every_rest_ms = st->every_dec_ms;
        if (!rows)
            continue;
        st->rest_ms = 0;
        TSR_TRY(layers_ms(o, b, st, kind, rows, &st->rest_ms, err));
        TSR_TRY(tsr_plan_built_ends(b, kind, TSR_PLAN_DECODE, rows, &embed, &head, err));
        st->rest_ms += i == 0 ? embed.ms : 0;
        st->rest_ms += i == (head_first ? 0 : o->n_stages - 1) ? head.ms : 0;
        TSR_TRY(send_of(o, b, i, rows, &way, err));
        st->link_rest_ms = way.ms;
        st->every_rest_ms = way.every_ms;
    }
    return TSR_OK;
}
