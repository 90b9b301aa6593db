#include "plan/search/problem_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "plugin/choices.h"
#include "plugin/kv_codec.h"
#include "tessera/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIFORM "uniform-"

static void names(const struct tsr_plan_problem *p, char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = '\0';
    for (uint64_t i = 0; i < p->candidates.n && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s" UNIFORM "%s", i ? ", " : "",
                               p->candidates.v[i].name);
}

tsr_status tsr_plan_problem_uniform(const struct tsr_plan_problem *p, const char *text,
                                    uint64_t *candidate, struct tsr_err *err)
{
    char        list[600];
    const char *name = text + strlen(UNIFORM);
    if (strncmp(text, UNIFORM, strlen(UNIFORM)) == 0) {
        for (uint64_t i = 0; i < p->candidates.n; i++)
            if (strcmp(p->candidates.v[i].name, name) == 0) {
                *candidate = i;
                return TSR_OK;
            }
        char         *end;
        unsigned long bits = strtoul(name, &end, 10);
        for (uint64_t i = 0; *name && !*end && i < p->candidates.n; i++)
            if (p->candidates.v[i].bits == bits && !p->candidates.v[i].mixed) {
                *candidate = i;
                return TSR_OK;
            }
    }
    names(p, list, sizeof list);
    return tsr_fail(err, TSR_E_INPUT, "quality: at_least: '%s' is not one of the candidates: %s",
                    text, list);
}

/* The prior knows bit widths, so that one scheme of the limit's width would pass for another. */
static tsr_status check_prior(const struct tsr_plan_problem *p, uint64_t limit, struct tsr_err *err)
{
    const struct tsr_plan_candidate *v = p->candidates.v, *c = &v[limit];
    for (uint64_t i = 0; i < p->candidates.n && p->quality.prior && c->q.self; i++)
        if (i != limit && v[i].q.self && !v[i].mixed && v[i].bits == c->bits)
            return tsr_fail(err, TSR_E_INPUT,
                            "quality: at_least: the prior cannot tell '%s' from '%s', which both "
                            "have %u bits; give indicators by scheme (tessera indicators --measure "
                            "kl), max_omega or theta",
                            v[i].name, c->name, c->bits);
    return TSR_OK;
}

/* The limit on omega that holds: the smallest of those that can be given. */
static tsr_status set_limit(struct tsr_plan_problem *p, struct tsr_err *err)
{
    uint64_t c;
    p->max_omega = p->o.max_omega;
    if (p->o.max_kl > 0) {
        double w = tsr_plan_quality_sum_of(&p->quality, p->o.max_kl);
        p->max_omega = p->max_omega >= 0 && p->max_omega < w ? p->max_omega : w;
    }
    if (!p->o.at_least) {
        const struct tsr_plan_candidate *v = p->candidates.v;
        bool                             given =
            p->o.theta > 0 || p->o.max_omega >= 0 || p->o.max_kl > 0 || p->candidates.n == 1;
        p->knee = !given && p->o.knee && p->quality.kl.on;
        given = given || p->knee;
        p->o.at_least = given ? "" : UNIFORM "4";
        for (c = 0; !given && c < p->candidates.n && (v[c].bits != 4 || v[c].mixed); c++)
            ;
        if (!given && c == p->candidates.n)
            return tsr_fail(err, TSR_E_INPUT,
                            "no candidate has 4 bits, and 'quality' does not say what is good "
                            "enough: give at_least, max_omega or theta");
    }
    if (!*p->o.at_least)
        return TSR_OK;
    TSR_TRY(tsr_plan_problem_uniform(p, p->o.at_least, &c, err));
    TSR_TRY(check_prior(p, c, err));
    double w = tsr_plan_quality_uniform(&p->quality, c) + tsr_plan_problem_kl_base(p);
    if (!(p->max_omega >= 0 && p->max_omega < w))
        p->max_omega = w;
    return TSR_OK;
}

void tsr_plan_problem_refresh(struct tsr_plan_problem *p)
{
    const struct tsr_plan_workload *w = &p->work;
    p->memory.batch = w->concurrency ? w->concurrency : w->batch;
    /* a distribution is planned with its means; memory must fit the longest of each */
    bool paper = p->o.accounting == TSR_PLAN_ACCOUNT_PAPER;
    p->memory.prompt =
        paper || !w->distribution ? w->s : w->context - w->generate.length[w->generate.n - 1];
    p->memory.generate = paper || !w->distribution ? w->n : w->context - p->memory.prompt;
    p->memory.chunk = w->chunk;
    p->memory.kv = w->kv;
    p->latency.kv_bits = tsr_plugin_kv_bits(w->kv);
    p->latency.forward = paper ? 0 : w->chunk ? w->chunk : TSR_PLAN_FORWARD;
}

double tsr_plan_problem_rounds(const struct tsr_plan_problem *p)
{
    return ceil((double)p->work.batch / (double)p->memory.batch);
}

void tsr_plan_problem_put_head(struct tsr_plan_problem *p, enum tsr_head_place place)
{
    p->o.head = place;
    p->memory.place = place;
}

/* Only learned positions end: rope and ALiBi go on by their law. */
static tsr_status check_context(const struct tsr_plan_problem *p, struct tsr_err *err)
{
    uint64_t context = p->work.distribution ? p->work.context : p->work.s + p->work.n;
    if (!p->shape->max_positions || context <= p->shape->max_positions)
        return TSR_OK;
    if (p->shape->positions.rows == 0) {
        tsr_logf(TSR_LOG_WARN,
                 "workload: a request takes up to %llu positions with its prompt, %s was trained "
                 "for %llu",
                 (unsigned long long)context, p->shape->name,
                 (unsigned long long)p->shape->max_positions);
        return TSR_OK;
    }
    return tsr_fail(err, TSR_E_INPUT,
                    "workload: a request takes up to %llu positions with its prompt, %s has %llu; "
                    "make prompt or generate shorter",
                    (unsigned long long)context, p->shape->name,
                    (unsigned long long)p->shape->max_positions);
}

/* The groups of a plan file, or those of the option. */
static tsr_status group_experts(struct tsr_plan_problem *p, struct tsr_err *err)
{
    const struct tsr_plan_problem_options *o = &p->o;
    uint64_t                               n;
    if (*p->shape->packed) /* its layouts say which experts are alike */
        return TSR_OK;
    if (o->group_of) {
        uint8_t *of = tsr_mul(p->shape->layers, p->shape->experts, &n) ? tsr_new(n, 1) : NULL;
        if (!of)
            return tsr_fail_nomem(err, p->shape->layers, "groups of experts");
        memcpy(of, o->group_of, n);
        return tsr_plan_shape_put_groups(p->shape, of, err);
    }
    if (o->expert_groups <= 1)
        return TSR_OK;
    if (o->accounting == TSR_PLAN_ACCOUNT_PAPER)
        return tsr_fail(err, TSR_E_INPUT,
                        "expert_groups: accounting: paper counts whole layers; use accounting: "
                        "exact");
    if (*o->indicators)
        TSR_TRY(tsr_plan_quality_order(p->shape, o->indicators, o->table, err));
    return tsr_plan_shape_group(p->shape, o->expert_groups, err);
}

/* A packed model's layers stay unchanged. */
static tsr_status open_candidates(struct tsr_plan_problem *p, struct tsr_err *err)
{
    static const char *const               kept[] = { "original" };
    const struct tsr_plan_problem_options *o = &p->o;
    if (!*p->shape->packed) {
        TSR_TRY(tsr_plan_candidates_open(&p->candidates, p->registry, p->shape, o->candidates,
                                         o->n_candidates, err));
        return o->group_of || tsr_plan_shape_groups(p->shape) == 1
                   ? TSR_OK /* a plan file has its mixes */
                   : tsr_plan_candidates_groups(&p->candidates, p->shape, err);
    }
    if (o->chosen)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its weights are packed already (%s), a plan only places them; leave "
                        "'bits', 'candidates' and 'expert_groups' out",
                        p->shape->name, p->shape->packed);
    return tsr_plan_candidates_open(&p->candidates, p->registry, p->shape, kept, 1, err);
}

/* Types of caches as plans count them: that of backends where a codec states one, else the codec, whose sizes are known then. */
static tsr_status learn_caches(struct tsr_plan_problem *p, struct tsr_err *err)
{
    for (uint32_t i = 0; i <= p->o.n_kv; i++) {
        uint32_t *kv = i < p->o.n_kv ? &p->o.kv[i] : &p->work.kv;
        TSR_TRY(tsr_plugin_kv_learn(p->registry, *kv, p->shape->head_dim, err));
        *kv = (uint32_t)tsr_plugin_kv_type(*kv);
    }
    return TSR_OK;
}

static tsr_status open_drafts(struct tsr_plan_problem *p, struct tsr_err *err)
{
    if (!p->o.n_drafts)
        return TSR_OK;
    p->drafts = tsr_new(p->o.n_drafts, sizeof *p->drafts);
    if (!p->drafts)
        return tsr_fail_nomem(err, p->o.n_drafts * sizeof *p->drafts, "draft models");
    p->memory.drafts = p->drafts;
    for (; p->memory.n_drafts < p->o.n_drafts; p->memory.n_drafts++)
        TSR_TRY(tsr_plan_draft_open(&p->drafts[p->memory.n_drafts], p->registry,
                                    &p->o.drafts[p->memory.n_drafts], p->shape, err));
    return TSR_OK;
}

static tsr_status fill(struct tsr_plan_problem *p, struct tsr_err *err)
{
    const struct tsr_plan_problem_options *o = &p->o;
    TSR_TRY(tsr_plan_shape_load(&p->shape, o->model, err));
    if (o->routing && *o->routing)
        TSR_TRY(tsr_plan_shape_measured(p->shape, o->routing, err));
    TSR_TRY(learn_caches(p, err));
    TSR_TRY(check_context(p, err));
    TSR_TRY(group_experts(p, err));
    TSR_TRY(open_candidates(p, err));
    if (*o->indicators)
        TSR_TRY(tsr_plan_quality_load(&p->quality, o->indicators, o->table, p->shape,
                                      &p->candidates, err));
    else
        TSR_TRY(tsr_plan_quality_prior(&p->quality, p->shape, &p->candidates, err));
    p->memory = (struct tsr_plan_memory_job){ .registry = p->registry,
                                              .numerics = o->numerics,
                                              .shape = p->shape,
                                              .accounting = (enum tsr_accounting)o->accounting,
                                              .place = (enum tsr_head_place)o->head };
    p->latency = (struct tsr_plan_latency_job){ .shape = p->shape,
                                                .mode = (enum tsr_latency_mode)o->latency };
    TSR_TRY(open_drafts(p, err));
    TSR_TRY(tsr_plan_problem_open_codecs(p, err));
    tsr_plan_problem_refresh(p);
    TSR_TRY(tsr_plan_problem_kl_open(p, err));
    TSR_TRY(tsr_plan_problem_compensate_open(p, err));
    TSR_TRY(tsr_plan_problem_ends_open(p, err));
    TSR_TRY(set_limit(p, err));
    p->more_bytes = tsr_new(p->cluster->n_groups, sizeof *p->more_bytes);
    p->more = tsr_new(p->cluster->n_groups, sizeof *p->more);
    if (!p->more_bytes || !p->more)
        return tsr_fail_nomem(err, p->cluster->n_groups * 16, "a planning problem");
    return tsr_plan_memory_open(&p->memory, err);
}

tsr_status tsr_plan_problem_open(struct tsr_plan_problem *p, struct tsr_registry *r,
                                 const struct tsr_plan_problem_options *o,
                                 struct tsr_plan_cluster               *cluster,
                                 const struct tsr_plan_workload *work, struct tsr_err *err)
{
    *p = (struct tsr_plan_problem){ .registry = r, .o = *o, .cluster = cluster, .work = *work };
    tsr_status st = fill(p, err);
    if (st != TSR_OK)
        tsr_plan_problem_close(p);
    return st;
}

void tsr_plan_problem_close(struct tsr_plan_problem *p)
{
    for (uint64_t i = 0; i < p->memory.n_drafts; i++)
        tsr_plan_draft_close(&p->drafts[i]);
    free(p->drafts);
    tsr_plan_memory_close(&p->memory);
    tsr_plan_problem_close_codecs(p);
    for (int k = 0; k < 2; k++)
        tsr_plan_wire_close(&p->back[k]);
    tsr_plan_quality_free(&p->quality);
    tsr_plan_candidates_close(&p->candidates);
    tsr_plan_candidates_close(&p->ends);
    tsr_plan_shape_destroy(p->shape);
    free(p->more_bytes);
    free(p->more);
    free(p->kv_of);
    free(p->k_of);
    *p = (struct tsr_plan_problem){ 0 };
}

bool tsr_plan_problem_cpu_experts(const struct tsr_plan_problem *p)
{
    bool any = false;
    for (uint64_t i = 0; i < p->cluster->n_nodes; i++)
        any = any || p->cluster->nodes[i].cpu;
    return any && p->shape->experts && p->memory.accounting == TSR_PLAN_ACCOUNT_EXACT;
}

uint64_t tsr_plan_problem_devices(const struct tsr_plan_problem *p, uint64_t group)
{
    int64_t n = (int64_t)p->cluster->groups[group].count + p->more[group];
    return n > 0 ? (uint64_t)n : 0;
}

tsr_status tsr_plan_problem_back(const struct tsr_plan_problem *p, const struct tsr_plan_mesh *last,
                                 const struct tsr_plan_mesh *first, enum tsr_phase phase,
                                 uint64_t rows, struct tsr_plan_send *out, struct tsr_err *err)
{
    return tsr_plan_latency_back(p->cluster, last, first, phase, &p->back[phase], rows,
                                 p->shape->hidden, out, err);
}

uint64_t tsr_plan_problem_capacity(const struct tsr_plan_problem *p, uint64_t group,
                                   const struct tsr_plan_mesh *m)
{
    uint64_t bytes = tsr_plan_memory_capacity(m, p->memory.accounting);
    int64_t  more = p->more_bytes[group] * (int64_t)m->tp;
    if (more < 0)
        return bytes > (uint64_t)-more ? bytes - (uint64_t)-more : 0;
    return bytes + (uint64_t)more;
}
