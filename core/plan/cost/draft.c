#include "plan/cost/draft.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_plan_draft_open(struct tsr_plan_draft *d, struct tsr_registry *r,
                               const struct tsr_plan_draft_options *o,
                               const struct tsr_plan_shape *planned, struct tsr_err *err)
{
    char        text[32];
    const char *texts[1] = { "original" };
    *d = (struct tsr_plan_draft){ .o = *o };
    if (o->model) {
        tsr_status st = tsr_plan_shape_load(&d->own, o->model, err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "draft");
    } else {
        if (*planned->packed)
            return tsr_fail(err, TSR_E_INPUT,
                            "draft: self: %s is packed (%s); name a model of fewer bits, packed "
                            "from its original",
                            planned->name, planned->packed);
        (void)snprintf(text, sizeof text, "rtn:bits=%u", o->bits);
        texts[0] = text;
    }
    tsr_status st =
        tsr_plan_candidates_open(&d->candidates, r, d->own ? d->own : planned, texts, 1, err);
    if (st != TSR_OK)
        tsr_plan_draft_close(d);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "draft");
}

void tsr_plan_draft_close(struct tsr_plan_draft *d)
{
    tsr_plan_candidates_close(&d->candidates);
    tsr_plan_shape_destroy(d->own);
    *d = (struct tsr_plan_draft){ 0 };
}

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
    tsr_status st = tsr_plan_memory_stage(&job, &one, &d->candidates, bits, NULL, 0, s->layers,
                                          j->batch, j->batch, out, err);
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
