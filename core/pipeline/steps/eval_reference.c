/* What an evaluation compares its model with. */
#include "pipeline/job.h"
#include "pipeline/steps/eval_step.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

bool eval_is_kld(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".kld") == 0;
}

static tsr_status other_vocabulary(const struct eval_step *e, uint64_t theirs, struct tsr_err *err)
{
    const struct tsr_model *m = e->job->model;
    if (theirs == m->hp.vocab)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s has a vocabulary of %llu, %s of %llu; they cannot be compared",
                    e->o->against, (unsigned long long)theirs, e->job->model_path,
                    (unsigned long long)m->hp.vocab);
}

/* ---- a file of log-probabilities ---------------------------------------------------- */

/* Its text, under BOS where the tokenizer puts one. */
static tsr_status base_windows(struct eval_step *e, struct tsr_err *err)
{
    const struct tsr_model  *m = e->job->model;
    struct tsr_tokenizer_ids ids = { 0 };
    char                    *path = tsr_pipeline_job_input(e->job, e->o->against);
    if (!path)
        return tsr_fail_nomem(err, 0, "a path");
    tsr_status st = tsr_eval_kld_open(&e->base, path, err);
    free(path);
    TSR_TRY(st);
    TSR_TRY(other_vocabulary(e, e->base->vocab, err));
    TSR_TRY(tsr_model_context(m, e->base->context, err));
    TSR_TRY(tsr_tokenize(e->job->tokenizer, "", 0, TSR_TOKENIZER_SPECIAL, &ids, err));
    bool bos = m->hp.bos >= 0 && ids.n && ids.v[0] == (uint32_t)m->hp.bos;
    tsr_tokenizer_ids_free(&ids);
    return tsr_eval_kld_windows(e->base, bos ? m->hp.bos : -1, (uint64_t)e->o->eval.max_windows,
                                &e->windows, err);
}

tsr_status eval_open_windows(struct eval_step *e, struct tsr_err *err)
{
    struct tsr_pipeline_job *job = e->job;
    if (eval_is_kld(e->o->against))
        return base_windows(e, err);
    char *text = tsr_pipeline_job_input(job, e->o->eval.text);
    if (!text)
        return tsr_fail_nomem(err, 0, "a path");
    tsr_status st = tsr_pipeline_eval_keys_windows(&e->o->eval, text, job->tokenizer, job->model,
                                                   &e->windows, err);
    free(text);
    return st;
}

/* ---- a model ------------------------------------------------------------------------ */

/* The same tokens must mean the same. */
static tsr_status check_tokenizer(const struct eval_step *e, const char *path, struct tsr_err *err)
{
    const struct tsr_tokenizer *own = e->job->tokenizer;
    struct tsr_tokenizer       *t = NULL;
    bool                        agree = true;
    TSR_TRY(tsr_pipeline_job_load_tokenizer(&t, path, err));
    tsr_status st = TSR_OK;
    if (t && e->windows)
        st = tsr_eval_windows_agree(e->windows, own, t, &agree, err);
    else if (t)
        agree = strcmp(tsr_tokenizer_hash(t), tsr_tokenizer_hash(own)) == 0;
    tsr_tokenizer_destroy(t);
    if (st == TSR_OK && !agree)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s and %s have different tokenizers; KL needs the same tokens",
                      e->o->against, e->job->model_path);
    return st;
}

static tsr_status load_other(struct eval_step *e, const char *path, struct tsr_err *err)
{
    const struct tsr_eval_windows *w = e->windows;
    TSR_TRY(e->o->by_layers ? tsr_model_load_streamed(&e->other, path, err)
                            : tsr_model_load(&e->other, path, false, err));
    TSR_TRY(tsr_pipeline_job_note_model(e->job, path, e->other->hash, err));
    TSR_TRY(other_vocabulary(e, e->other->hp.vocab, err));
    TSR_TRY(check_tokenizer(e, path, err));
    return w ? tsr_model_context(e->other, w->window, err) : TSR_OK;
}

tsr_status eval_open_reference(struct eval_step *e, struct tsr_err *err)
{
    const char *name = e->o->against;
    if (e->o->kl)
        e->reference = e->job->model;
    if (!*name || e->base)
        return TSR_OK;
    char *path =
        tsr_model_is_name(name) ? tsr_strdup(name) : tsr_path_join(e->job->state->dir, name);
    if (!path)
        return tsr_fail_nomem(err, strlen(name), "a path");
    tsr_status st = load_other(e, path, err);
    free(path);
    e->reference = e->other;
    return st;
}

void eval_close_reference(struct eval_step *e)
{
    tsr_eval_kld_close(e->base);
    tsr_model_destroy(e->other);
}
