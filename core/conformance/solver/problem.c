/* Solvers: problems, and their optimum by looking at every plan. */
#include "conformance/solver/solver.h"

#include "plan/instance/objective.h"

#include <math.h>
#include <string.h>

void tsr_conformance_problem_link(struct tsr_conformance_problem *p)
{
    static const char *const names[TSR_PROBLEM_BITS] = { "3", "4", "8", "16" };
    for (uint64_t q = 0; q < TSR_PROBLEM_BITS; q++)
        p->bit_names[q] = names[q];
    for (uint64_t k = 0; k < TSR_PROBLEM_KINDS; k++)
        p->kinds[k] = &p->kind[k];
    for (uint64_t o = 0; o < TSR_PROBLEM_OPTIONS; o++) {
        p->options[o] = &p->option[o];
        p->option[o].pre_ms = p->tables[o].pre;
        p->option[o].dec_ms = p->tables[o].dec;
        p->option[o].embed_pre_ms = p->tables[o].embed_pre;
        p->option[o].embed_dec_ms = p->tables[o].embed_dec;
        p->option[o].head_pre_ms = p->tables[o].head_pre;
        p->option[o].head_dec_ms = p->tables[o].head_dec;
        p->option[o].comm_pre_ms = p->tables[o].comm_pre;
        p->option[o].comm_dec_ms = p->tables[o].comm_dec;
        p->option[o].workspace_bytes = p->tables[o].workspace;
    }
    p->in.layer_class = p->layer_class;
    p->in.bit_names = p->bit_names;
    p->in.layer_bytes = p->layer_bytes;
    p->in.host_bytes = p->host_bytes;
    p->in.omega = p->omega;
    p->in.kind_omega = p->kind_omega;
    p->in.link_omega = p->link_omega;
    p->in.pool_devices = p->pool_devices;
    p->in.kinds = p->kinds;
    p->in.options = p->options;
    p->in.order = p->in.order_len ? p->order : NULL;
}

/* ---- random numbers of a problem ------------------------------------------- */

struct dice {
    const struct tsr_conformance_case *c;
    uint64_t                           stream, at;
};

static uint64_t below(struct dice *d, uint64_t n)
{
    return tsr_conformance_rule_below(d->c, d->stream, d->at++, n);
}

/* Multiples of 1/8, so that equal plans cost exactly the same. */
static double ms(struct dice *d, uint64_t most)
{
    return (double)(1 + below(d, 8 * most)) / 8;
}

static bool has(uint64_t parts, uint64_t part)
{
    return (parts & part) != 0;
}

/* ---- making ------------------------------------------------------------------ */

static void fill_option(struct tsr_conformance_problem *p, struct dice *d, uint64_t o,
                        uint64_t parts)
{
    const struct tsr_solver_instance *in = &p->in;
    p->option[o] = (struct tsr_solver_option){ .struct_size = sizeof p->option[o],
                                               .prefill_mb = 1 + below(d, 2) };
    p->option[o].decode_mb = p->option[o].prefill_mb * (1 + below(d, 2));
    for (uint64_t k = 0; k < in->n_kinds; k++) {
        for (uint64_t e = 0; e < in->classes * in->bits; e++) {
            uint64_t at = k * in->classes * in->bits + e;
            p->tables[o].pre[at] = ms(d, 4 + 2 * k);
            p->tables[o].dec[at] = ms(d, 4 + 2 * k);
            if (has(parts, TSR_SOLVER_FORBIDDEN) && below(d, 8) == 0)
                p->tables[o].pre[at] = NAN;
        }
        for (uint64_t j = 0; has(parts, TSR_SOLVER_LINKS) && j < in->n_kinds; j++)
            for (uint64_t v = 0; v < (in->n_links ? in->n_links : 1); v++) {
                uint64_t at = (v * in->n_kinds + k) * in->n_kinds + j;
                p->tables[o].comm_pre[at] = ms(d, 3);
                p->tables[o].comm_dec[at] = ms(d, 3);
            }
        if (has(parts, TSR_SOLVER_ENDS)) {
            p->tables[o].embed_pre[k] = ms(d, 2);
            p->tables[o].embed_dec[k] = ms(d, 2);
            p->tables[o].head_pre[k] = ms(d, 2);
            p->tables[o].head_dec[k] = ms(d, 2);
        }
        if (has(parts, TSR_SOLVER_WORKSPACE))
            p->tables[o].workspace[k] = below(d, 30);
    }
    if (has(parts, TSR_SOLVER_OPTION_ENDS)) {
        p->option[o].embed_bytes = below(d, 20);
        p->option[o].head_bytes = below(d, 20);
        p->option[o].omega = (double)below(d, 16) / 8;
    }
    if (has(parts, TSR_SOLVER_JOBS) && below(d, 2)) {
        uint64_t mb = p->option[o].prefill_mb, n = in->batch / mb + (in->batch % mb != 0);
        p->option[o].prefill_jobs = (double)(n * (8 + below(d, 24))) / 8;
    }
}

/* Everything but the devices, from the counts in p->in. */
static void fill(struct tsr_conformance_problem *p, struct dice *d, uint64_t parts)
{
    struct tsr_solver_instance *in = &p->in;
    in->struct_size = sizeof *in;
    in->objective = below(d, 2) ? TSR_OBJECTIVE_STEADY : TSR_OBJECTIVE_PAPER;
    in->theta = (double)below(d, 3);
    in->max_omega = -1;
    in->batch = 1 + below(d, 6);
    in->tokens = 1 + below(d, 5);
    in->allow_unused = 1;
    in->gap = 1e-4;
    in->seed = 7;
    in->deadline_us = 60000000; /* no small problem needs it, and the rule's limit is shorter */
    in->cutoff = INFINITY;
    for (uint64_t l = 0; l < in->layers; l++)
        p->layer_class[l] = (uint32_t)below(d, in->classes);
    for (uint64_t cl = 0; cl < in->classes; cl++)
        for (uint64_t q = 0; q < in->bits; q++)
            p->layer_bytes[cl * in->bits + q] = 20 * (q + 1) + below(d, 10) + 5 * cl;
    for (uint64_t i = 0; i < in->layers * in->bits; i++)
        p->omega[i] = (double)(in->bits - i % in->bits) + (double)below(d, 8) / 8;
    if (has(parts, TSR_SOLVER_ENDS)) {
        in->embed_bytes = below(d, 30);
        in->head_bytes = below(d, 30);
    }
    in->n_links = has(parts, TSR_SOLVER_LINK_CODECS) ? 2 : 0;
    for (uint64_t o = 0; o < in->n_options; o++)
        fill_option(p, d, o, parts);
    for (uint64_t i = 0; has(parts, TSR_SOLVER_KIND_OMEGA) && i < in->n_kinds * in->layers; i++)
        p->kind_omega[i] = (double)below(d, 12) / 8;
    for (uint64_t i = 0; i < in->n_links * in->layers; i++)
        p->link_omega[i] = (double)below(d, 12) / 8;
    if (has(parts, TSR_SOLVER_MAX_FIRST) && below(d, 2))
        in->max_first_ms = (double)(in->layers * (4 + below(d, 60)) * (1 + below(d, 3))) / 8;
}

static void devices(struct tsr_conformance_problem *p, uint64_t k, uint32_t count,
                    uint64_t capacity)
{
    static const char *const names[TSR_PROBLEM_KINDS] = { "a", "b", "c", "d" };
    p->kind[k] = (struct tsr_solver_kind){ .struct_size = sizeof p->kind[k],
                                           .count = count,
                                           .name = names[k],
                                           .capacity_bytes = capacity };
    p->devices += count;
}

/* Some candidates take memory of hosts, of which kinds have from none to more than enough. */
static void set_hosts(struct tsr_conformance_problem *p, struct dice *d)
{
    for (uint64_t i = 0; i < p->in.classes * p->in.bits; i++)
        p->host_bytes[i] = below(d, 3) ? 0 : 10 + below(d, 30);
    for (uint64_t k = 0; k < p->in.n_kinds; k++)
        p->kind[k].host_capacity_bytes = below(d, 30 * p->in.layers);
}

/* One or two pools of at most 3 devices, from which the kinds take one device or more. */
static void set_pools(struct tsr_conformance_problem *p, struct dice *d)
{
    p->in.n_pools = p->in.n_kinds > 1 ? 1 + below(d, 2) : 1;
    p->pool_devices[0] = p->in.n_pools == 1 ? 2 + below(d, 2) : 2;
    p->pool_devices[1] = 1;
    p->devices = 0;
    for (uint64_t g = 0; g < p->in.n_pools; g++)
        p->devices += p->pool_devices[g];
    for (uint64_t k = 0; k < p->in.n_kinds; k++) {
        p->kind[k].pool = k % p->in.n_pools;
        p->kind[k].takes = 1 + below(d, p->pool_devices[p->kind[k].pool]);
        p->kind[k].count = (uint32_t)(p->pool_devices[p->kind[k].pool] / p->kind[k].takes);
    }
}

/* A fixed order: kinds, or pools, in turn while they last. */
static void set_order(struct tsr_conformance_problem *p, struct dice *d)
{
    uint64_t left[TSR_PROBLEM_KINDS] = { 0 }, n = p->in.n_pools ? p->in.n_pools : p->in.n_kinds;
    uint64_t k = below(d, n);
    for (uint64_t i = 0; i < n; i++)
        left[i] = p->in.n_pools ? p->pool_devices[i] : p->kind[i].count;
    for (uint64_t i = 0; i < p->devices; i++) {
        while (left[k] == 0)
            k = k + 1 < n ? k + 1 : 0;
        p->order[i] = (uint32_t)k;
        left[k]--;
        k = k + 1 < n ? k + 1 : 0;
    }
    p->in.order_len = p->devices;
}

/* ---- every plan ----------------------------------------------------------------- */

struct search {
    struct tsr_conformance_problem *p;
    struct tsr_solver_solution      s;
    uint32_t                        stage_kind[3], stage_link[3], layer_bits[8];
    uint64_t                        stage_first[3], stage_count[3];
};

static void every_bit(struct search *f)
{
    const struct tsr_solver_instance *in = &f->p->in;
    memset(f->layer_bits, 0, sizeof f->layer_bits);
    for (uint64_t l = 0; l < in->layers;) {
        double v;
        if (tsr_plan_evaluate(in, &f->s, &v, NULL) == TSR_OK) {
            f->p->best = f->p->feasible ? fmin(f->p->best, v) : v;
            f->p->feasible = true;
        }
        for (l = 0; l < in->layers && ++f->layer_bits[l] == in->bits; l++)
            f->layer_bits[l] = 0; /* the next number in base `bits` */
    }
}

static void every_codec(struct search *f)
{
    uint64_t links = f->p->in.n_links, i = 0;
    memset(f->stage_link, 0, sizeof f->stage_link);
    do {
        every_bit(f);
        for (i = 0; i + 1 < f->s.stages && ++f->stage_link[i] >= links; i++)
            f->stage_link[i] = 0; /* the next number in base `links` */
    } while (i + 1 < f->s.stages);
}

static void every_stage(struct search *f, uint64_t first)
{
    const struct tsr_solver_instance *in = &f->p->in;
    uint64_t                          i = f->s.stages;
    if (first == in->layers) {
        every_codec(f);
        return;
    }
    if (i == f->p->devices)
        return;
    f->s.stages = i + 1;
    for (uint64_t k = 0; k < in->n_kinds; k++)
        for (uint64_t n = 1; n <= in->layers - first; n++) {
            f->stage_kind[i] = (uint32_t)k;
            f->stage_first[i] = first;
            f->stage_count[i] = n;
            every_stage(f, first + n);
        }
    f->s.stages = i;
}

static void brute_force(struct tsr_conformance_problem *p)
{
    struct search f = { .p = p };
    p->feasible = false;
    p->best = NAN;
    f.s = (struct tsr_solver_solution){ .struct_size = sizeof f.s,
                                        .max_stages = p->devices,
                                        .stage_kind = f.stage_kind,
                                        .stage_first = f.stage_first,
                                        .stage_count = f.stage_count,
                                        .stage_link = f.stage_link,
                                        .layer_bits = f.layer_bits };
    for (f.s.option = 0; f.s.option < p->in.n_options; f.s.option++)
        every_stage(&f, 0);
}

/* ---- the problems ----------------------------------------------------------------- */

void tsr_conformance_problem_small(struct tsr_conformance_problem    *p,
                                   const struct tsr_conformance_case *c, uint64_t index,
                                   uint64_t parts)
{
    struct dice d = { c, 100 + index, 0 };
    /* half of the problems use everything that the solver has */
    uint64_t use = index % 2 ? parts : parts & below(&d, UINT64_C(1) << 32);
    memset(p, 0, sizeof *p);
    p->in.layers = 2 + below(&d, 7);
    p->in.bits = p->in.layers > 5 ? 2 : 1 + below(&d, 3); /* at most 2^8 or 3^5 choices */
    p->in.classes = has(use, TSR_SOLVER_CLASSES) ? 2 : 1;
    p->in.n_kinds = 1 + below(&d, 3);
    p->in.n_options = 1 + below(&d, 2);
    fill(p, &d, use);
    /* from less than the smallest layers need to more than the largest do */
    uint64_t all = p->in.layers * 20 * p->in.bits;
    for (uint64_t k = 0; k < p->in.n_kinds; k++) {
        uint32_t count = p->in.n_kinds == 1 ? 2 : p->in.n_kinds == 2 && k == 0 ? 2 : 1;
        devices(p, k, count, all / 4 + below(&d, all));
    }
    if (has(use, TSR_SOLVER_MAX_OMEGA) && below(&d, 2))
        p->in.max_omega = (double)(p->in.layers * (1 + below(&d, 3 * p->in.bits))) / 2;
    if (has(use, TSR_SOLVER_USE_ALL) && below(&d, 2))
        p->in.allow_unused = 0;
    if (has(use, TSR_SOLVER_POOLS) && below(&d, 2))
        set_pools(p, &d);
    if (has(use, TSR_SOLVER_FIXED_ORDER) && below(&d, 2))
        set_order(p, &d);
    if (has(use, TSR_SOLVER_HOST))
        set_hosts(p, &d);
    tsr_conformance_problem_link(p);
    brute_force(p);
}

void tsr_conformance_problem_feasible(struct tsr_conformance_problem *p,
                                      struct tsr_conformance_case *c, uint64_t index,
                                      uint64_t parts)
{
    for (uint64_t i = 0; i < 64; i++) {
        tsr_conformance_problem_small(p, c, index + 1000 * i, parts);
        if (p->feasible)
            return;
    }
    tsr_conformance_rule_skip(c, "no problem with a plan was found for seed %llu",
                              (unsigned long long)c->seed);
}

void tsr_conformance_problem_large(struct tsr_conformance_problem    *p,
                                   const struct tsr_conformance_case *c, uint64_t parts)
{
    struct dice d = { c, 90, 0 };
    memset(p, 0, sizeof *p);
    p->in.layers = TSR_PROBLEM_LAYERS;
    p->in.bits = TSR_PROBLEM_BITS;
    p->in.classes = has(parts, TSR_SOLVER_CLASSES) ? 2 : 1;
    p->in.n_kinds = TSR_PROBLEM_KINDS;
    p->in.n_options = TSR_PROBLEM_OPTIONS;
    fill(p, &d, parts & (TSR_SOLVER_LINKS | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS));
    p->in.deadline_us = 0;
    p->in.batch = 16;
    p->in.tokens = 64;
    for (uint64_t k = 0; k < p->in.n_kinds; k++)
        devices(p, k, 4, 200 + 60 * k);
    tsr_conformance_problem_link(p);
}

void tsr_conformance_problem_easy(struct tsr_conformance_problem    *p,
                                  const struct tsr_conformance_case *c)
{
    struct dice d = { c, 91, 0 };
    memset(p, 0, sizeof *p);
    p->in.layers = 6;
    p->in.bits = 2;
    p->in.classes = 1;
    p->in.n_kinds = 1;
    p->in.n_options = 1;
    fill(p, &d, 0);
    devices(p, 0, 1, 100000);
    tsr_conformance_problem_link(p);
}

void tsr_conformance_problem_of_part(struct tsr_conformance_problem    *p,
                                     const struct tsr_conformance_case *c, uint64_t part)
{
    struct dice d = { c, 92, 0 };
    memset(p, 0, sizeof *p);
    p->in.layers = 4;
    p->in.bits = 2;
    p->in.classes = part == TSR_SOLVER_CLASSES ? 2 : 1;
    p->in.n_kinds = 2;
    p->in.n_options = 1;
    fill(p, &d, part);
    for (uint32_t l = 0; l < 4; l++)
        p->layer_class[l] = l % 2 * (part == TSR_SOLVER_CLASSES);
    devices(p, 0, 1, 100000);
    devices(p, 1, 1, 100000);
    if (part == TSR_SOLVER_FORBIDDEN)
        p->tables[0].pre[0] = NAN;
    if (part == TSR_SOLVER_WORKSPACE)
        p->tables[0].workspace[0] = p->tables[0].workspace[1] = 1000;
    if (part == TSR_SOLVER_ENDS)
        p->in.embed_bytes = p->in.head_bytes = 1000;
    if (part == TSR_SOLVER_MAX_OMEGA)
        p->in.max_omega = 6;
    if (part == TSR_SOLVER_USE_ALL)
        p->in.allow_unused = 0;
    if (part == TSR_SOLVER_FIXED_ORDER)
        set_order(p, &d);
    tsr_conformance_problem_link(p);
}
