/* What the stages of a plan hold as they are: the largest batch, the longest prompt. */
#include "plan/search/whatif.h"

static tsr_status holds(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                        uint64_t batch, uint64_t prompt, bool *yes, struct tsr_err *err)
{
    struct tsr_plan_memory_job j = p->memory;
    j.batch = batch;
    j.prompt = prompt;
    j.kv_of = o->kv;
    *yes = true;
    for (uint64_t i = 0; i < o->n_stages && *yes; i++) {
        const struct tsr_plan_outcome_stage *s = &o->stages[i];
        struct tsr_plan_stage_memory         m;
        TSR_TRY(tsr_plan_memory_stage(&j, &s->mesh, &p->candidates, o->bits, o->cpu_experts,
                                      s->first, s->count, o->prefill_mb, o->decode_mb, &m, err));
        const struct tsr_plan_stage_compensation *c = &s->compensation;
        m.total += c->work + (c->host ? 0 : c->bytes - c->on_cpu);
        *yes = m.total <= tsr_capacity_left(s->memory.capacity + s->memory.uneven, m.uneven) &&
               s->memory.host <= m.host_capacity && !m.draft_lack;
    }
    return TSR_OK;
}

/* The largest batch (what 0) or prompt (1) that fits; *x has a value known to fit. */
static tsr_status most(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o, int what,
                       uint64_t cap, uint64_t *x, struct tsr_err *err)
{
    uint64_t lo = *x, hi = lo;
    bool     yes = true;
    while (yes && hi < cap) {
        lo = hi;
        hi = hi < cap / 2 ? hi * 2 : cap;
        TSR_TRY(holds(p, o, what ? p->memory.batch : hi, what ? hi : p->memory.prompt, &yes, err));
    }
    if (yes) {
        *x = hi;
        return TSR_OK;
    }
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        TSR_TRY(
            holds(p, o, what ? p->memory.batch : mid, what ? mid : p->memory.prompt, &yes, err));
        if (yes)
            lo = mid;
        else
            hi = mid;
    }
    *x = lo;
    return TSR_OK;
}

tsr_status tsr_plan_whatif_largest(const struct tsr_plan_problem *p,
                                   const struct tsr_plan_outcome *o, uint64_t *batch,
                                   uint64_t *prompt, struct tsr_err *err)
{
    uint64_t positions = p->shape->max_positions;
    *batch = p->memory.batch;
    *prompt = p->memory.prompt;
    TSR_TRY(most(p, o, 0, UINT64_C(1) << 24, batch, err));
    uint64_t cap = positions > p->memory.generate ? positions - p->memory.generate : 1;
    return *prompt < cap ? most(p, o, 1, cap, prompt, err) : TSR_OK;
}
