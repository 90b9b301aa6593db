/* A solver's solution in the problem's words: devices by name, bytes by the exact account, shares of
 * the time. */
#include "plan/search/search.h"

#include "base/mem.h"
#include "plan/instance/objective.h"

#include <math.h>
#include <stdlib.h>

void tsr_plan_outcome_free(struct tsr_plan_outcome *o)
{
    free(o->stages);
    free(o->bits);
    free(o->cpu_experts);
    free(o->kv);
    free(o->k);
    free(o->item);
    *o = (struct tsr_plan_outcome){ 0 };
}

uint64_t tsr_plan_outcome_on_cpu(const struct tsr_plan_outcome       *o,
                                 const struct tsr_plan_outcome_stage *s, char text[TSR_PLAN_RANGES])
{
    uint64_t end = s->first + s->count, all = 0;
    size_t   at = 0;
    text[0] = '\0';
    for (uint64_t l = s->first, n; l < end; l += n) {
        for (n = 1; o->cpu_experts[l] && l + n < end && o->cpu_experts[l + n]; n++)
            ;
        if (!o->cpu_experts[l])
            continue;
        all += n;
        if (at < TSR_PLAN_RANGES)
            at += (size_t)snprintf(text + at, TSR_PLAN_RANGES - at,
                                   n > 1 ? "%s%llu-%llu" : "%s%llu", at ? "," : "",
                                   (unsigned long long)l, (unsigned long long)(l + n - 1));
    }
    if (all == s->count)
        (void)snprintf(text, TSR_PLAN_RANGES, "true");
    return all;
}

/* The group of every stage: meshes of a kind change places freely, so groups are taken in the order of the cluster
 * file, the widest meshes first, that they find whole places (meshes.c: packs()).  used: [groups] devices. */
static void place_all(struct tsr_plan_outcome *o, const struct tsr_plan_built *b, uint64_t part,
                      const struct tsr_solver_solution *s, uint64_t *used)
{
    const struct tsr_plan_meshes *m = &b->meshes;
    uint32_t                      widest = 0;
    for (uint64_t i = 0; i < s->stages; i++) {
        uint32_t tp = m->kinds[s->stage_kind[i] + b->parts[part].first_kind].mesh.tp;
        widest = tp > widest ? tp : widest;
    }
    for (uint32_t tp = widest; tp > 0; tp--)
        for (uint64_t i = 0; i < s->stages; i++) {
            const struct tsr_plan_mesh_kind *k =
                &m->kinds[s->stage_kind[i] + b->parts[part].first_kind];
            uint64_t g = 0;
            if (k->mesh.tp != tp)
                continue;
            while (g < m->n_groups &&
                   !(m->pool_of[g] == k->pool && used[g] + tp <= tsr_plan_problem_devices(b->p, g)))
                g++;
            o->stages[i].group = g < m->n_groups ? g : k->group;
            used[o->stages[i].group] += tp;
        }
}

static enum tsr_basis weaker(enum tsr_basis a, enum tsr_basis b)
{
    return a > b ? a : b;
}

/* Where times come from, and the CPU's part of them. */
static tsr_status basis_of(struct tsr_plan_outcome_stage *st, const struct tsr_plan_outcome *o,
                           const struct tsr_plan_built *b, uint32_t kind, bool first, bool heads,
                           struct tsr_err *err)
{
    const uint32_t *cls = b->p->shape->layer_class;
    enum tsr_basis  ends = TSR_PLAN_MEASURED;
    st->basis = TSR_PLAN_MEASURED;
    st->extrapolated = false;
    for (int ph = 0; ph < 2; ph++) {
        enum tsr_phase       phase = ph ? TSR_PLAN_DECODE : TSR_PLAN_PREFILL;
        uint64_t             size = ph ? o->decode_mb : o->prefill_mb;
        struct tsr_plan_time t = { 0 }, embed, head;
        double              *cpu_ms = ph ? &st->cpu_dec_ms : &st->cpu_pre_ms;
        for (uint64_t l = st->first; l < st->first + st->count; l++) {
            bool same = l > st->first && cls[l] == cls[l - 1] && o->item[l] == o->item[l - 1];
            if (!same)
                TSR_TRY(tsr_plan_built_layer(b, kind, cls[l], o->item[l], phase, size, &t, err));
            *cpu_ms += t.cpu_ms;
            st->basis = weaker(st->basis, t.basis);
            st->extrapolated = st->extrapolated || t.extrapolated;
        }
        TSR_TRY(tsr_plan_built_ends(b, kind, phase, size, &embed, &head, err));
        if (first)
            ends = weaker(ends, embed.basis);
        if (heads)
            ends = weaker(ends, head.basis);
    }
    st->ends_basis = first || heads ? ends : st->basis;
    return TSR_OK;
}

/* Hidden rows go back from the last of several stages to the head on the first. */
static bool goes_back(const struct tsr_plan_built *b, uint64_t stages)
{
    return b->p->memory.place == TSR_PLAN_HEAD_FIRST && stages > 1;
}

/* The link of the last stage, and the head's share of the first stage's time. */
static tsr_status way_back(struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                           uint32_t kind, struct tsr_err *err)
{
    struct tsr_plan_pipeline_back *k = &o->back;
    struct tsr_plan_outcome_stage *last = &o->stages[o->n_stages];
    const struct tsr_plan_mesh    *first = &o->stages[0].mesh;
    struct tsr_plan_time           embed, head;
    struct tsr_plan_send           way;
    o->goes_back = true;
    TSR_TRY(tsr_plan_built_ends(b, kind, TSR_PLAN_PREFILL, o->prefill_mb, &embed, &head, err));
    k->head_pre_ms = head.ms;
    TSR_TRY(tsr_plan_built_ends(b, kind, TSR_PLAN_DECODE, o->decode_mb, &embed, &head, err));
    k->head_dec_ms = head.ms;
    TSR_TRY(tsr_plan_problem_back(b->p, &last->mesh, first, TSR_PLAN_PREFILL, o->prefill_mb, &way,
                                  err));
    last->link_pre_ms = k->link_pre_ms = way.ms;
    last->every_pre_ms = way.every_ms;
    TSR_TRY(
        tsr_plan_problem_back(b->p, &last->mesh, first, TSR_PLAN_DECODE, o->decode_mb, &way, err));
    last->link_dec_ms = k->link_dec_ms = way.ms;
    last->every_dec_ms = way.every_ms;
    return TSR_OK;
}

static double prefills(const struct tsr_solver_instance *in, const struct tsr_solver_option *o)
{
    return (double)tsr_plan_prefill_count(in->batch, o->prefill_mb, o->decode_mb);
}

/* The link to the next stage, of which a solver's table has one time. */
static tsr_status link_of(struct tsr_plan_outcome_stage *st, const struct tsr_plan_outcome *o,
                          const struct tsr_plan_built *b, uint64_t from, uint64_t to, double times,
                          struct tsr_err *err)
{
    struct tsr_plan_send way;
    TSR_TRY(tsr_plan_built_send(b, from, to, TSR_PLAN_PREFILL, st->link, o->prefill_mb, &way, err));
    st->link_pre_ms = way.ms * times;
    st->every_pre_ms = way.every_ms * times;
    TSR_TRY(tsr_plan_built_send(b, from, to, TSR_PLAN_DECODE, st->link, o->decode_mb, &way, err));
    st->link_dec_ms = way.ms;
    st->every_dec_ms = way.every_ms;
    return TSR_OK;
}

static tsr_status stage_of(struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                           uint64_t part, const struct tsr_solver_solution *s, uint64_t i,
                           struct tsr_err *err)
{
    const struct tsr_plan_problem  *p = b->p;
    const struct tsr_plan_part     *pt = &b->parts[part];
    const struct tsr_solver_option *opt = pt->inst.in.options[s->option];
    struct tsr_plan_outcome_stage  *st = &o->stages[i];
    struct tsr_plan_stage_cost      cost;
    double                          times = o->prefill_jobs; /* the tables have those of a job */
    uint32_t                        kind = s->stage_kind[i] + pt->first_kind;
    bool                            back = goes_back(b, s->stages), last = i + 1 == s->stages;
    struct tsr_solver_solution      as = *s;
    as.stages += back; /* no stage is the last, which has the way back as if it were work */
    TSR_TRY(tsr_plan_stage(&pt->inst.in, &as, i, &cost, err));
    st->first = b->unit_first[s->stage_first[i]];
    st->count = b->unit_first[s->stage_first[i] + s->stage_count[i]] - st->first;
    st->sum = b->meshes.kinds[kind].sum;
    st->link = b->first_link + (last || !s->stage_link ? 0 : s->stage_link[i]);
    tsr_plan_mesh_of(p->cluster, st->group, b->meshes.kinds[kind].way, &st->mesh);
    st->mesh.mixed = tsr_plan_mesh_beside(&st->mesh, &o->stages[0].mesh);
    st->pre_ms = cost.pre_ms * times;
    st->dec_ms = cost.dec_ms;
    TSR_TRY(basis_of(st, o, b, kind, i == 0, p->memory.place == TSR_PLAN_HEAD_FIRST ? i == 0 : last,
                     err));
    if (back && last)
        TSR_TRY(way_back(o, b, s->stage_kind[0] + pt->first_kind, err));
    if (!last) {
        uint64_t n = pt->inst.in.n_kinds, e = (st->link - b->first_link) * n * n +
                                              s->stage_kind[i] * n + s->stage_kind[i + 1];
        st->solver_pre_ms = opt->comm_pre_ms[e] * times;
        st->solver_dec_ms = opt->comm_dec_ms[e];
        TSR_TRY(link_of(st, o, b, kind, s->stage_kind[i + 1] + pt->first_kind, times, err));
    }
    struct tsr_plan_memory_job job = p->memory;
    job.kv_of = o->kv;
    TSR_TRY(tsr_plan_memory_stage(&job, &st->mesh, &p->candidates, o->bits, o->cpu_experts,
                                  st->first, st->count, o->prefill_mb, o->decode_mb, &st->memory,
                                  err));
    TSR_TRY(tsr_plan_outcome_compensate(o, b, i, kind, NULL, err));
    st->memory.capacity =
        tsr_capacity_left(tsr_plan_problem_capacity(p, st->group, &st->mesh), st->memory.uneven);
    if (st->memory.total > st->memory.capacity)
        return tsr_fail(err, TSR_E_INFEASIBLE,
                        "stage %llu: %llu bytes do not fit in the %llu of %s",
                        (unsigned long long)i, (unsigned long long)st->memory.total,
                        (unsigned long long)st->memory.capacity, st->mesh.name);
    if (st->memory.host > st->memory.host_capacity)
        return tsr_fail(
            err, TSR_E_INFEASIBLE,
            "stage %llu: %llu bytes of experts and residuals do not fit in the %llu of the CPU",
            (unsigned long long)i, (unsigned long long)st->memory.host,
            (unsigned long long)st->memory.host_capacity);
    if (st->memory.draft_lack)
        return tsr_fail(err, TSR_E_INFEASIBLE,
                        "stage %llu: the draft model is short of %llu bytes of the CPU's memory",
                        (unsigned long long)i, (unsigned long long)st->memory.draft_lack);
    return TSR_OK;
}

/* A layer without experts under a mix of groups is as the first group. */
static uint32_t settled(const struct tsr_plan_built *b, uint64_t layer, uint64_t candidate)
{
    const struct tsr_plan_candidates *list = &b->p->candidates;
    const struct tsr_plan_candidate  *c = &list->v[candidate];
    bool router = b->p->shape->layer[b->p->shape->layer_class[layer]].router.rows;
    for (uint64_t i = 0; i < list->n && c->n_parts > TSR_PLAN_MIXED && !router; i++)
        if (&list->v[i] == c->of[0])
            return (uint32_t)i;
    return (uint32_t)candidate;
}

/* Half of the interval of a layer's weights: that of the scheme, and that of what compensation leaves. */
static double half_of(const struct tsr_plan_quality *q, uint64_t at, uint32_t candidate, uint32_t k)
{
    double kept = 1, half = 0;
    if (k && !tsr_plan_quality_kept_of(q, candidate, k, &kept, &half))
        kept = 1;
    return q->kl.half[at] * kept + q->omega[at] * half;
}

/* What a plan loses by all that it has, on the scale of KL. */
static void price_kl(struct tsr_plan_outcome *o, const struct tsr_plan_problem *p)
{
    const struct tsr_plan_quality        *q = &p->quality;
    const struct tsr_plan_quality_choice *kv, *end;
    double                                half = 0, kv_half;
    bool                                  none;
    o->kl = o->kl_half = NAN;
    if (!q->kl.on)
        return;
    kv = tsr_plan_problem_kl_kv(p, p->work.kv, &none);
    kv_half = none ? 0 : kv ? kv->half : (double)NAN;
    for (uint64_t l = 0; p->kv_types && l < o->layers; l++) {
        double own;
        (void)tsr_plan_problem_kv_omega(p, o->kv[l], l, &own);
        kv_half = l ? kv_half + own : own;
    }
    if (!p->kv_types)
        o->parts.kv = none ? 0 : kv ? kv->kl : (double)NAN;
    for (uint64_t i = 0; i < o->n_stages; i++) {
        const struct tsr_plan_outcome_stage  *s = &o->stages[i];
        const struct tsr_plan_quality_choice *link = &p->links[s->link].cost,
                                             *sum = &p->sums[s->sum].cost;
        double share = s->mesh.tp > 1 ? (double)s->count / (double)o->layers : 0;
        o->parts.sums += share * sum->kl;
        half += share > 0 ? share * sum->half : 0;
        o->parts.links += i + 1 < o->n_stages ? link->kl : 0;
        half += i + 1 < o->n_stages ? link->half : 0;
    }
    o->omega = o->parts.weights + o->parts.compensation + o->parts.kv + o->parts.links +
               o->parts.sums + o->parts.ends;
    o->kl = tsr_plan_quality_kl_of(q, o->omega);
    if (tsr_plan_problem_packs_ends(p) && (end = tsr_plan_quality_end(q, &p->ends.v[p->end])))
        half += end->half;
    o->kl_half = kv_half + half + q->kl.scatter * o->kl;
    for (uint64_t l = 0; q->kl.half && l < o->layers; l++)
        o->kl_half += half_of(q, l * p->candidates.n + o->bits[l], o->bits[l], o->k[l]);
}

static tsr_status fill(struct tsr_plan_outcome *o, const struct tsr_plan_built *b, uint64_t part,
                       const struct tsr_solver_solution *s, uint64_t *used, struct tsr_err *err)
{
    const struct tsr_solver_instance *in = &b->parts[part].inst.in;
    const struct tsr_solver_option   *opt = in->options[s->option];
    o->prefill_mb = opt->prefill_mb;
    o->prefill_jobs = opt->prefill_jobs > 0 ? opt->prefill_jobs / prefills(in, opt) : 1;
    o->decode_mb = opt->decode_mb;
    o->objective_ms = s->objective;
    o->parts.kv = b->p->kv_omega;
    o->parts.ends = b->p->ends_omega;
    for (uint64_t u = 0; u < b->units; u++)
        for (uint64_t l = b->unit_first[u]; l < b->unit_first[u + 1]; l++) {
            const struct tsr_plan_item *t = tsr_plan_built_item(b, s->layer_bits[u]);
            o->bits[l] = settled(b, l, t->candidate);
            o->kv[l] = t->kv;
            o->k[l] = t->k;
            /* a layer without experts has two ways to be the same */
            o->cpu_experts[l] =
                t->on_cpu && b->p->shape->layer[b->p->shape->layer_class[l]].router.rows;
            o->parts.weights += tsr_plan_built_weights(b, l, t);
            o->parts.compensation += tsr_plan_built_left(b, l, t) - tsr_plan_built_weights(b, l, t);
            if (b->p->kv_types)
                o->parts.kv += tsr_plan_problem_kv_omega(b->p, t->kv, l, NULL);
        }
    place_all(o, b, part, s, used);
    o->omega = o->parts.weights + o->parts.compensation + o->parts.kv + o->parts.ends;
    tsr_plan_outcome_settle_kv(o, b->p->shape);
    for (uint64_t l = 0; l < o->layers; l++)
        if (!tsr_plan_built_find(b,
                                 &(struct tsr_plan_item){ o->bits[l], o->kv[l], o->k[l],
                                                          o->cpu_experts[l] },
                                 &o->item[l]))
            return tsr_fail(err, TSR_E_INVAL,
                            "layer %llu of a plan takes what its problem does not have",
                            (unsigned long long)l);
    for (uint64_t i = 0; i < s->stages; i++, o->n_stages++)
        TSR_TRY(stage_of(o, b, part, s, i, err));
    TSR_TRY(tsr_plan_outcome_rest(o, b, part, s, err));
    tsr_plan_outcome_time(o, &b->p->work, in->batch);
    price_kl(o, b->p);
    return TSR_OK;
}

tsr_status tsr_plan_outcome_of(struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                               uint64_t part, const struct tsr_solver_solution *s,
                               struct tsr_err *err)
{
    uint64_t *used = tsr_new(b->meshes.n_groups, sizeof *used);
    *o = (struct tsr_plan_outcome){ .layers = b->p->shape->layers };
    o->stages = tsr_new(s->stages, sizeof *o->stages);
    o->bits = tsr_new(o->layers, sizeof *o->bits);
    o->cpu_experts = tsr_new(o->layers, 1);
    o->kv = tsr_new(o->layers, sizeof *o->kv);
    o->k = tsr_new(o->layers, sizeof *o->k);
    o->item = tsr_new(o->layers, sizeof *o->item);
    tsr_status st = used && o->stages && o->bits && o->cpu_experts && o->kv && o->k && o->item
                        ? fill(o, b, part, s, used, err)
                        : tsr_fail_nomem(err, o->layers * sizeof *o->bits, "a plan");
    free(used);
    if (st != TSR_OK)
        tsr_plan_outcome_free(o);
    return st;
}
