/* What arms are measured on: the tokens of a text or of a base file, questions, and the reference. */
#include "compare/compare.h"

#include <stdlib.h>
#include <string.h>

/* BOS if the tokenizer prepends one to a text, else -1. */
static tsr_status bos_of(const struct tsr_pipeline_job *job, int64_t *bos, struct tsr_err *err)
{
    struct tsr_tokenizer_ids ids = { 0 };
    *bos = -1;
    if (!job->tokenizer || job->model->hp.bos < 0)
        return TSR_OK;
    TSR_TRY(tsr_tokenize(job->tokenizer, "", 0, TSR_TOKENIZER_SPECIAL, &ids, err));
    if (ids.n && ids.v[0] == (uint32_t)job->model->hp.bos)
        *bos = job->model->hp.bos;
    tsr_tokenizer_ids_free(&ids);
    return TSR_OK;
}

static tsr_status open_base(struct compare *c, struct tsr_err *err)
{
    int64_t                 bos;
    const struct tsr_model *m = c->job->model;
    char                   *path = tsr_pipeline_job_input(c->job, c->measure.base);
    if (!path)
        return tsr_fail_nomem(err, strlen(c->measure.base), "a path");
    tsr_status st = tsr_eval_kld_open(&c->base, path, err);
    if (st == TSR_OK && c->base->vocab != m->hp.vocab)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s has a vocabulary of %llu, %s of %llu; they cannot be compared", path,
                      (unsigned long long)c->base->vocab, c->job->model_path,
                      (unsigned long long)m->hp.vocab);
    free(path);
    TSR_TRY(st);
    TSR_TRY(tsr_model_context(m, c->base->context, err));
    TSR_TRY(bos_of(c->job, &bos, err));
    return tsr_eval_kld_windows(c->base, bos, (uint64_t)c->eval.max_windows, &c->windows, err);
}

static tsr_status cut_text(const struct compare *c, const char *path, struct tsr_eval_windows **w,
                           struct tsr_err *err)
{
    char *text = tsr_pipeline_job_input(c->job, path);
    if (!text)
        return tsr_fail_nomem(err, strlen(path), "a path");
    tsr_status st =
        tsr_pipeline_eval_keys_windows(&c->eval, text, c->job->tokenizer, c->job->model, w, err);
    free(text);
    return st;
}

tsr_status compare_windows(struct compare *c, struct tsr_err *err)
{
    if (*c->measure.base)
        return open_base(c, err);
    TSR_TRY(tsr_pipeline_step_need_tokenizer(c->job, "perplexity", err));
    if (!c->n_texts)
        return cut_text(c, c->eval.text, &c->windows, err);
    for (uint64_t i = 0; i < c->n_texts; i++) {
        struct compare_text     *t = &c->texts[i];
        struct tsr_eval_windows *w = NULL;
        TSR_TRY(cut_text(c, t->path, &w, err));
        (void)snprintf(t->hash, sizeof t->hash, "%s", w->text_hash);
        t->first = c->windows ? c->windows->n : 0;
        t->at = c->windows ? c->windows->scored : 0;
        t->n = w->n;
        t->scored = w->scored;
        if (!c->windows) {
            c->windows = w;
            continue;
        }
        tsr_status st = tsr_eval_windows_append(c->windows, w, err);
        tsr_eval_windows_destroy(w);
        TSR_TRY(st);
    }
    return TSR_OK;
}

tsr_status compare_questions(struct compare *c, struct tsr_err *err)
{
    TSR_TRY(tsr_pipeline_step_need_tokenizer(c->job, "choices", err));
    char *path = tsr_pipeline_job_input(c->job, c->measure.choices);
    if (!path)
        return tsr_fail_nomem(err, strlen(c->measure.choices), "a path");
    tsr_status st = tsr_eval_choices_load(&c->choices, path, err);
    free(path);
    return st;
}

const struct tsr_eval_trace *compare_reference(const struct compare *c)
{
    if (c->base)
        return c->base_at.n ? &c->base_at : NULL;
    return c->arms[0].at.n ? &c->arms[0].at : NULL;
}

const char *compare_reference_name(const struct compare *c)
{
    return c->base ? c->measure.base : c->arms[0].name;
}
