/* planning_all.h - every plan of a small problem, priced layer by layer through the cost models alone: an oracle for the
 * search. */
#ifndef TSR_PLANNING_ALL_H
#define TSR_PLANNING_ALL_H

#include "planning_fixture.h"

#include <math.h>

/* What the search may count in excess: a part of each device. */
static uint64_t room = 256;

/* A plan while all are gone through. */
struct stage {
    uint64_t group, first, count, link, sum; /* codecs of p, to the next stage and inside */
    struct tsr_plan_mesh mesh;
};
struct all {
    const struct tsr_plan_problem *p;
    uint32_t                       ways[4][TSR_PLAN_MESH_WIDTHS], n_ways[4]; /* of each group */
    uint64_t                       eta, xi;                                  /* micro-batches */
    struct stage                   stage[4];
    uint64_t                       n, left[4]; /* stages; devices of a group that are free */
    uint32_t                       bits[8];
    uint8_t                        on_cpu[8]; /* of a layer's experts */
    double   best, safe; /* of all; of those that leave 1/room of each device */
    double   roomy;      /* of these, by what they take where rows come back */
    uint64_t plans;
};

static inline double layer_ms(const struct all *z, const struct stage *s, uint64_t layer,
                              bool decode)
{
    struct tsr_plan_mesh             mesh = s->mesh, *m = &mesh;
    struct tsr_plan_latency_job      job = z->p->latency;
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    const struct tsr_plan_problem   *p = z->p;
    const struct tsr_plan_candidate *c = &p->candidates.v[z->bits[layer]];
    uint64_t                         cls = p->shape->layer_class[layer];
    struct tsr_plan_time             t;
    mesh.cpu_experts = z->on_cpu[layer];
    for (int k = 0; k < 2; k++)
        job.tp_wire[k] = &p->sums[s->sum].wire[k];
    if (m->tp > 1 &&
        tsr_plan_candidate_splits(c, p->shape, m->tp, m->whole_experts, &e.err) != TSR_OK)
        return NAN;
    double past = (double)p->work.s + ((double)p->work.n - 2) / 2;
    if (decode)
        assert_int_equal(tsr_plan_latency_layer(&job, m, cls, c, TSR_PLAN_DECODE, (double)z->xi, 1,
                                                past, &t, &e.err),
                         TSR_OK);
    else
        assert_int_equal(tsr_plan_latency_prompt(&job, m, cls, c, &p->work, z->eta, &t, &e.err),
                         TSR_OK);
    return t.ms;
}

static inline double end_ms(const struct all *z, const struct tsr_plan_mesh *m, bool head,
                            bool decode)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_plan_time t;
    double               rows = (double)(decode ? z->xi : z->eta);
    double               tokens = decode ? rows : rows * (double)z->p->work.s;
    if (head)
        assert_int_equal(tsr_plan_latency_head(&z->p->latency, m, NULL, rows, &t, &e.err), TSR_OK);
    else
        assert_int_equal(tsr_plan_latency_embed(&z->p->latency, m, tokens, &t, &e.err), TSR_OK);
    return t.ms;
}

static inline double link_ms(const struct all *z, uint64_t i, bool decode)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_plan_send way;
    uint64_t             rows = decode ? z->xi : z->eta * z->p->work.s;
    assert_int_equal(tsr_plan_latency_link(z->p->cluster, &z->stage[i].mesh, &z->stage[i + 1].mesh,
                                           decode ? TSR_PLAN_DECODE : TSR_PLAN_PREFILL,
                                           &z->p->links[z->stage[i].link]
                                                .wire[decode ? TSR_PLAN_DECODE : TSR_PLAN_PREFILL],
                                           rows, z->p->shape->hidden, &way, &e.err),
                     TSR_OK);
    assert_true(way.every_ms == way.ms); /* no codec of theirs takes time */
    return way.ms;
}

/* F32 rows of the wanted tokens, one a request, back to the first stage. */
static inline double back_ms(const struct all *z, bool decode)
{
    double         bytes = (double)(decode ? z->xi : z->eta) * (double)z->p->shape->hidden * 4;
    enum tsr_phase ph = decode ? TSR_PLAN_DECODE : TSR_PLAN_PREFILL;
    return tsr_plan_link_ms(tsr_plan_cluster_link(z->p->cluster, z->stage[z->n - 1].mesh.node,
                                                  z->stage[0].mesh.node, ph),
                            bytes);
}

/* Sum and slowest of a phase.  coarse: rows come back as work of the last stage (build.h). */
static inline void phase(const struct all *z, bool decode, bool coarse, double *sum, double *links,
                         double *most)
{
    bool first = z->p->o.head == TSR_PLAN_HEAD_FIRST;
    *sum = *links = *most = 0;
    for (uint64_t i = 0; i < z->n; i++) {
        const struct stage *s = &z->stage[i];
        double              ms = 0, way = 0;
        for (uint64_t l = s->first; l < s->first + s->count; l++)
            ms += layer_ms(z, s, l, decode);
        ms += i == 0 ? end_ms(z, &s->mesh, false, decode) : 0;
        ms += i == (first ? 0 : z->n - 1) ? end_ms(z, &s->mesh, true, decode) : 0;
        if (i + 1 < z->n)
            way = link_ms(z, i, decode);
        else if (first && i > 0)
            way = back_ms(z, decode);
        if (coarse && i > 0 && i + 1 == z->n) {
            ms += way;
            way = 0;
        }
        *sum += ms;
        *links += way;
        *most = fmax(*most, fmax(ms, way));
    }
}

static inline bool fits(const struct all *z, bool *safe)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *safe = true;
    for (uint64_t i = 0; i < z->n; i++) {
        struct tsr_plan_stage_memory m;
        assert_int_equal(tsr_plan_memory_stage(&z->p->memory, &z->stage[i].mesh, &z->p->candidates,
                                               z->bits, z->on_cpu, z->stage[i].first,
                                               z->stage[i].count, z->eta, z->xi, &m, &e.err),
                         TSR_OK);
        uint64_t more = (uint64_t)z->p->more_bytes[z->stage[i].group], has;
        has = m.capacity + more * z->stage[i].mesh.tp;
        if (m.total > has || m.host > m.host_capacity)
            return false;
        *safe = *safe && m.total <= has - has / room;
    }
    return true;
}

/* Groups of prompts: requests are dealt one by one to as few decode micro-batches as there can be, each of which starts a group
 * whenever its last one is full. */
static inline double groups_of(uint64_t batch, uint64_t eta, uint64_t xi)
{
    uint64_t sets = batch / xi + (batch % xi != 0), groups = 0;
    for (uint64_t i = 0; i < batch; i++)
        groups += i / sets % eta == 0;
    return (double)groups;
}

/* docs/formats/instance.md, `steady`. */
static inline double price_of(const struct all *z, double w, bool coarse)
{
    double B = (double)z->p->memory.batch, n = (double)z->p->work.n;
    double mu = groups_of(z->p->memory.batch, z->eta, z->xi), nu = ceil(B / (double)z->xi);
    double pre, pre_links, pre_most, dec, dec_links, dec_most;
    phase(z, false, coarse, &pre, &pre_links, &pre_most);
    phase(z, true, coarse, &dec, &dec_links, &dec_most);
    double r = dec + dec_links;
    double decode = fmax((n - 1) * r + (nu - 1) * dec_most, r + ((n - 1) * nu - 1) * dec_most);
    return pre + pre_links + (mu - 1) * pre_most + (n > 1 ? decode : 0) + z->p->o.theta * w;
}

static inline void price(struct all *z)
{
    bool   safe, first = z->p->o.head == TSR_PLAN_HEAD_FIRST;
    double w = 0;
    for (uint64_t l = 0; l < z->p->shape->layers; l++)
        w += z->p->quality.omega[l * z->p->candidates.n + z->bits[l]];
    for (uint64_t i = 0; i < z->n; i++) {
        const struct stage *s = &z->stage[i];
        if (i + 1 < z->n)
            w += z->p->links[s->link].cost.kl;
        if (s->mesh.tp > 1)
            w += z->p->sums[s->sum].cost.kl * (double)s->count / (double)z->p->shape->layers;
    }
    if ((z->p->max_omega >= 0 && w + z->p->kv_omega > z->p->max_omega + 1e-9) || !fits(z, &safe))
        return;
    double ms = price_of(z, w, false);
    if (isnan(ms)) /* a group of columns would be cut */
        return;
    z->best = fmin(z->best, ms);
    z->safe = safe ? fmin(z->safe, first ? price_of(z, w, true) : ms) : z->safe;
    z->roomy = safe ? fmin(z->roomy, ms) : z->roomy;
    z->plans++;
}

/* The plan that was found, priced likewise: latency_ms is what it takes. */
static inline void check_latency(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o)
{
    struct all z = { .p = p, .eta = o->prefill_mb, .xi = o->decode_mb, .n = o->n_stages };
    for (uint64_t i = 0; i < o->n_stages; i++)
        z.stage[i] = (struct stage){ .first = o->stages[i].first,
                                     .count = o->stages[i].count,
                                     .link = o->stages[i].link,
                                     .sum = o->stages[i].sum,
                                     .mesh = o->stages[i].mesh };
    memcpy(z.bits, o->bits, p->shape->layers * sizeof *z.bits);
    memcpy(z.on_cpu, o->cpu_experts, p->shape->layers);
    double ms = price_of(&z, 0, false);
    if (!(fabs(o->latency_ms - ms) <= 1e-9 * ms))
        fail_msg("latency %.12g, by hand %.12g", o->latency_ms, ms);
}

static inline void all_bits(struct all *z, uint64_t layer)
{
    if (layer == z->p->shape->layers) {
        price(z);
        return;
    }
    bool router = z->p->shape->layer[z->p->shape->layer_class[layer]].router.rows;
    bool cpu = false;
    for (uint64_t i = 0; i < z->n; i++)
        cpu = cpu || (layer >= z->stage[i].first && layer < z->stage[i].first + z->stage[i].count &&
                      z->stage[i].mesh.cpu);
    for (z->on_cpu[layer] = 0; z->on_cpu[layer] < (cpu && router ? 2 : 1); z->on_cpu[layer]++)
        for (z->bits[layer] = 0; z->bits[layer] < z->p->candidates.n; z->bits[layer]++)
            all_bits(z, layer + 1);
}

static inline void all_stages(struct all *z, uint64_t next);

/* The next stage on so many devices, with every codec. */
static inline void next_stage(struct all *z, uint64_t next, uint64_t g, uint32_t way)
{
    uint64_t layers = z->p->shape->layers, tp = tsr_plan_way_tp(way);
    z->left[g] -= tp;
    for (uint64_t count = 1; count <= layers - next; count++)
        for (uint64_t link = 0; link < (next + count < layers ? z->p->n_links : 1); link++)
            for (uint64_t sum = 0; sum < (tp > 1 ? z->p->n_sums : 1); sum++) {
                struct stage *s = &z->stage[z->n++];
                *s = (struct stage){
                    .group = g, .first = next, .count = count, .link = link, .sum = sum
                };
                tsr_plan_mesh_of(z->p->cluster, g, way, &s->mesh);
                all_stages(z, next + count);
                z->n--;
            }
    z->left[g] += tp;
}

static inline void all_stages(struct all *z, uint64_t next)
{
    if (next == z->p->shape->layers) {
        all_bits(z, 0);
        return;
    }
    for (uint64_t g = 0; g < z->p->cluster->n_groups && z->n < 4; g++)
        for (uint32_t w = 0; w < z->n_ways[g]; w++)
            if (tsr_plan_way_tp(z->ways[g][w]) <= z->left[g])
                next_stage(z, next, g, z->ways[g][w]);
}

/* Every plan: any width of each group that its devices allow, next to any other; any codec at each place. */
static inline struct all enumerate_all(const struct tsr_plan_problem *p)
{
    uint64_t   dec[32], pre[64], devices = 0;
    struct all z = { .p = p, .best = INFINITY, .safe = INFINITY, .roomy = INFINITY };
    for (uint64_t g = 0; g < p->cluster->n_groups; g++) {
        z.n_ways[g] = tsr_plan_meshes_widths(p, g, true, z.ways[g], NULL, 0);
        z.left[g] = tsr_plan_problem_devices(p, g);
        devices += z.left[g] / tsr_plan_way_tp(z.ways[g][0]);
    }
    uint64_t n =
        tsr_plan_decode_sizes(p->memory.batch,
                              devices < p->shape->layers ? devices : p->shape->layers, dec);
    if (p->o.decode_mb) {
        dec[0] = p->o.decode_mb;
        n = 1;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t m = tsr_plan_prefill_sizes(dec[i], pre);
        if (p->o.prefill_mb) {
            pre[0] = p->o.prefill_mb;
            m = pre[0] <= dec[i];
        }
        for (uint64_t k = 0; k < m; k++) {
            z.eta = pre[k];
            z.xi = dec[i];
            all_stages(&z, 0);
        }
    }
    return z;
}

static inline uint64_t enumerate(const struct tsr_plan_problem *p, double *best, double *safe)
{
    struct all z = enumerate_all(p);
    *best = z.best;
    *safe = z.safe;
    return z.plans;
}

#endif
