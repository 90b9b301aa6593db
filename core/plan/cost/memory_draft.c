/* A draft model: a whole stage beside the first one, on its device or elsewhere in its node. */
#include "base/mem.h"
#include "plan/cost/draft.h"
#include "plan/cost/memory_internal.h"

#include <stdlib.h>
#include <string.h>

/* A profile without a backend says nothing of its memory: the draft counts there. */
static bool is_elsewhere(const struct tsr_plan_draft *d, const struct tsr_plan_mesh *m)
{
    const char *backend = m->profile->backend;
    if (!backend || d->o.place == TSR_PLAN_DRAFT_ANY)
        return false;
    return (strcmp(backend, "cpu") == 0) != (d->o.place == TSR_PLAN_DRAFT_CPU);
}

/* The whole model as the only stage of one device. */
static tsr_status alone(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                        const struct tsr_plan_draft *d, struct tsr_plan_stage_memory *out,
                        struct tsr_err *err)
{
    const struct tsr_plan_shape *s = d->own ? d->own : j->shape;
    const struct tsr_plan_mesh   one = { .profile = m->profile, .tp = 1 };
    struct tsr_plan_memory_job   job = { .registry = j->registry,
                                         .numerics = j->numerics,
                                         .shape = s,
                                         .accounting = TSR_PLAN_ACCOUNT_EXACT,
                                         .batch = j->batch,
                                         .prompt = j->prompt,
                                         .generate = j->generate,
                                         .chunk = d->o.chunk,
                                         .kv = d->o.kv,
                                         .cache = j->cache };
    uint64_t                     most = s->max_positions;
    uint32_t                    *bits = tsr_new(s->layers, sizeof *bits); /* the one candidate */
    if (!bits)
        return tsr_fail_nomem(err, s->layers * sizeof *bits, "a draft model");
    /* its cache ends where its positions do */
    if (most && job.generate >= most)
        job.generate = most - 1;
    if (most && job.prompt > most - job.generate)
        job.prompt = most - job.generate;
    tsr_status st = tsr_plan_memory_own_stage(&job, &one, &d->candidates, bits, NULL, 0, s->layers,
                                              j->batch, j->batch, 0, out, err);
    free(bits);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "draft");
}

tsr_status tsr_plan_memory_draft(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 struct tsr_plan_stage_memory *most, struct tsr_err *err)
{
    *most = (struct tsr_plan_stage_memory){ 0 };
    for (uint64_t i = 0; j->accounting == TSR_PLAN_ACCOUNT_EXACT && i < j->n_drafts; i++) {
        struct tsr_plan_stage_memory one;
        if (is_elsewhere(&j->drafts[i], m))
            continue;
        TSR_TRY(alone(j, m, &j->drafts[i], &one, err));
        if (one.total > most->total)
            *most = one;
    }
    return TSR_OK;
}

tsr_status tsr_plan_memory_draft_beside(const struct tsr_plan_memory_job *j,
                                        const struct tsr_plan_mesh *m, uint64_t *bytes,
                                        struct tsr_err *err)
{
    struct tsr_plan_stage_memory most = { 0 };
    *bytes = 0;
    if (!m->mixed)
        return TSR_OK;
    TSR_TRY(tsr_plan_memory_draft(j, m, &most, err));
    return tsr_mul(most.total, m->tp, bytes) ? TSR_OK : tsr_plan_memory_too_large(err);
}

/* ---- in the memory of the node's CPU ---------------------------------------------------- */

tsr_status tsr_plan_memory_draft_host(const struct tsr_plan_memory_job *j,
                                      const struct tsr_plan_mesh       *m,
                                      struct tsr_plan_stage_memory *most, struct tsr_err *err)
{
    const struct tsr_plan_mesh   cpu = { .profile = m->cpu, .tp = 1 };
    struct tsr_plan_stage_memory one = { 0 };
    *most = (struct tsr_plan_stage_memory){ 0 };
    if (!m->cpu || j->accounting != TSR_PLAN_ACCOUNT_EXACT)
        return TSR_OK;
    for (uint64_t i = 0; i < j->n_drafts; i++) {
        if (j->drafts[i].o.place != TSR_PLAN_DRAFT_CPU || !is_elsewhere(&j->drafts[i], m))
            continue;
        TSR_TRY(alone(j, &cpu, &j->drafts[i], &one, err));
        if (one.total > most->total)
            *most = one;
    }
    return TSR_OK;
}

uint64_t tsr_plan_memory_host(const struct tsr_plan_mesh *m)
{
    const struct tsr_plan_mesh cpu = { .profile = m->cpu, .tp = 1 };
    return m->cpu ? (uint64_t)(m->cpu_share *
                               (double)tsr_plan_memory_capacity(&cpu, TSR_PLAN_ACCOUNT_EXACT))
                  : 0;
}

tsr_status tsr_plan_memory_host_left(const struct tsr_plan_memory_job *j,
                                     const struct tsr_plan_mesh *m, uint64_t *bytes, uint64_t *lack,
                                     struct tsr_err *err)
{
    const struct tsr_plan_mesh   cpu = { .profile = m->cpu, .tp = 1 };
    struct tsr_plan_stage_memory draft;
    uint64_t                     all, parts = m->parts ? m->parts : 1;
    *bytes = tsr_plan_memory_host(m);
    *lack = 0;
    TSR_TRY(tsr_plan_memory_draft_host(j, m, &draft, err));
    if (!draft.total)
        return TSR_OK;
    all = tsr_plan_memory_capacity(&cpu, TSR_PLAN_ACCOUNT_EXACT) / parts;
    *bytes = (uint64_t)(m->cpu_share * (double)parts * (double)tsr_capacity_left(all, draft.total));
    *lack = draft.total > all ? draft.total - all : 0;
    return TSR_OK;
}
