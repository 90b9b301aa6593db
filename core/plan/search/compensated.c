/* Layers of a stage whose lost bits are added back: what that takes in a plan. */
#include "plan/cost/compensation.h"
#include "plan/search/search.h"

#include <math.h>

static void fill(uint32_t k[TSR_PLAN_LINEARS], uint32_t with)
{
    for (int i = 0; i < TSR_PLAN_LINEARS; i++)
        k[i] = with;
}

/* The sums over the stage's layers, and what they add to a decode step. */
static tsr_status sum(const struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                      const struct tsr_plan_outcome_stage *st, uint32_t                    kind,
                      const uint32_t (*k)[TSR_PLAN_LINEARS], struct tsr_plan_compensation *all,
                      double *ms, struct tsr_err *err)
{
    const uint32_t *cls = b->p->shape->layer_class;
    *ms = 0;
    for (uint64_t l = st->first; l < st->first + st->count; l++) {
        struct tsr_plan_compensation one = { 0 };
        struct tsr_plan_item         item = *tsr_plan_built_item(b, o->item[l]);
        struct tsr_plan_mesh         m = st->mesh;
        struct tsr_plan_time         base;
        uint32_t                     own[TSR_PLAN_LINEARS];
        if (!tsr_plan_compensation_there(b->p->shape, &b->p->candidates.v[item.candidate]))
            continue;
        fill(own, item.k);
        m.cpu_experts = o->cpu_experts[l] != 0;
        TSR_TRY(tsr_plan_compensation_layer(&one, b->p->shape, &m, cls[l],
                                            k ? k[l - st->first] : own, b->p->residual_bits, err));
        TSR_TRY(tsr_plan_compensation_layer(all, b->p->shape, &m, cls[l],
                                            k ? k[l - st->first] : own, b->p->residual_bits, err));
        if (!one.bytes)
            continue;
        TSR_TRY(
            tsr_plan_built_base(b, kind, cls[l], &item, TSR_PLAN_DECODE, o->decode_mb, &base, err));
        *ms += tsr_plan_compensation_ms(&one, &m, base.ms, (double)o->decode_mb) - base.ms;
    }
    return TSR_OK;
}

/* Bytes on the device, and in the host's memory where its size is known. */
static void put(struct tsr_plan_outcome_stage *st, bool add)
{
    const struct tsr_plan_stage_compensation *c = &st->compensation;
    struct tsr_plan_stage_memory             *m = &st->memory;
    uint64_t                                  here = c->host ? 0 : c->bytes - c->on_cpu;
    uint64_t host = c->on_cpu + (c->host && st->mesh.cpu ? c->bytes - c->on_cpu : 0);
    if (add) {
        m->weights += here;
        m->workspace += c->work;
        m->total += here + c->work;
        m->host += host;
    } else {
        m->weights -= here;
        m->workspace -= c->work;
        m->total -= here + c->work;
        m->host -= host;
    }
}

tsr_status tsr_plan_outcome_compensate(struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                                       uint64_t stage, uint32_t                               kind,
                                       const uint32_t (*k)[TSR_PLAN_LINEARS], struct tsr_err *err)
{
    struct tsr_plan_outcome_stage     *st = &o->stages[stage];
    struct tsr_plan_stage_compensation was = st->compensation, *c = &st->compensation;
    struct tsr_plan_compensation       all = { 0 };
    double                             ms;
    TSR_TRY(sum(o, b, st, kind, k, &all, &ms, err));
    put(st, false);
    *c = (struct tsr_plan_stage_compensation){ .k = all.k,
                                               .bytes = all.bytes,
                                               .on_cpu = all.on_cpu,
                                               .bits = b->p->residual_bits,
                                               .assumed = b->p->residual_assumed,
                                               .host = tsr_plan_compensation_host(&st->mesh),
                                               .decode_ms = ms };
    TSR_TRY(
        tsr_plan_compensation_work(&all, &b->p->memory, &st->mesh, o->prefill_mb, &c->work, err));
    put(st, true);
    if (k) { /* the tables have the k of items */
        double more = (isfinite(ms) ? ms : 0) - (isfinite(was.decode_ms) ? was.decode_ms : 0);
        st->dec_ms += more;
        st->rest_ms += more;
    }
    return TSR_OK;
}
