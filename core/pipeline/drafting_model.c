/* drafting_model.c - the model that drafts: the step's own in fewer bits, or another one. */
#include "pipeline/drafting.h"

#include "base/log.h"
#include "quant/scheme.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model itself, in fewer bits ------------------------------------------------- */

/* What is drafted for. */
struct drafted_for {
    const struct tsr_model         *m; /* runs under the overlay */
    const struct tsr_model_overlay *overlay;
    uint64_t                        slots, context, vocab; /* of its pass */
    const char *why; /* NULL, or why it cannot have drafts: then a warning, and none */
};

/* `use: rtn, bits: N`; head and embedding stay those of the model. */
static tsr_status round_model(struct tsr_pipeline_drafting *d, struct tsr_pipeline_job *job,
                              const struct tsr_model *m, int64_t bits, struct tsr_err *err)
{
    struct tsr_config_doc   *doc = NULL;
    struct tsr_diag         *diag = NULL;
    struct tsr_quant_scheme *s = NULL;
    char                     text[48];
    int n = snprintf(text, sizeof text, "{use: rtn, bits: %lld, on_unsupported: keep}",
                     (long long)bits);
    TSR_TRY(tsr_config_diag_create(&diag, err));
    tsr_status st = tsr_config_doc_parse(&doc, "draft: self", text, (uint64_t)n, diag, err);
    if (st == TSR_OK)
        st = tsr_quant_scheme_create(&s, job->registry, tsr_config_doc_root(doc), NULL,
                                     "draft: self", diag, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(diag, err);
    if (st == TSR_OK)
        st = tsr_quant_scheme_apply(s, job->registry, m, NULL, &d->overlay, err);
    tsr_quant_scheme_destroy(s);
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(diag);
    return st;
}

static tsr_status open_self(struct tsr_pipeline_drafting *d, struct tsr_pipeline_job *job,
                            const struct tsr_pipeline_draft_keys *k, struct tsr_err *err)
{
    const struct tsr_model *m = job->model;
    if (m->packed || m->prepacked)
        return tsr_fail(err, TSR_E_INPUT,
                        "draft: self: %s is packed; name a model of fewer bits, packed from its "
                        "original",
                        m->path);
    tsr_status st =
        round_model(d, job, m, k->draft_bits ? k->draft_bits : TSR_PIPELINE_DRAFT_BITS, err);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "draft: self");
}

/* ---- another model ---------------------------------------------------------------------- */

/* Whether the ids that both have are the same texts. */
static tsr_status same_texts(const struct tsr_tokenizer *a, const struct tsr_tokenizer *b,
                             const char *path, const char *model, struct tsr_err *err)
{
    struct tsr_tokenizer_text s = { 0 }, t = { 0 };
    uint64_t   n = tsr_tokenizer_size(a) < tsr_tokenizer_size(b) ? tsr_tokenizer_size(a)
                                                                 : tsr_tokenizer_size(b);
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        s.n = t.n = 0;
        st = tsr_tokenizer_token_text(a, (uint32_t)i, &s, err);
        if (st == TSR_OK)
            st = tsr_tokenizer_token_text(b, (uint32_t)i, &t, err);
        if (st == TSR_E_UNSUPPORTED)
            st = tsr_fail(err, TSR_E_INPUT,
                          "its tokenizer.json is not that of %s, and tokens of this kind of "
                          "tokenizer cannot be compared",
                          model);
        else if (st == TSR_OK && (s.n != t.n || (s.n && memcmp(s.v, t.v, s.n) != 0)))
            st = tsr_fail(err, TSR_E_INPUT,
                          "token %llu is another text than in %s; a draft model has the "
                          "vocabulary of the model",
                          (unsigned long long)i, model);
    }
    tsr_tokenizer_text_free(&s);
    tsr_tokenizer_text_free(&t);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "draft: %s", path);
}

/* Sizes may differ by padding where tokenizers say what the ids are. */
static tsr_status check_vocabulary(struct tsr_pipeline_drafting *d, struct tsr_pipeline_job *job,
                                   const char *path, struct tsr_err *err)
{
    struct tsr_tokenizer *t = NULL;
    TSR_TRY(tsr_pipeline_job_find_tokenizer(job, err));
    TSR_TRY(tsr_pipeline_job_load_tokenizer(&t, path, err));
    tsr_status st = TSR_OK;
    if (!t || !job->tokenizer) {
        if (d->own->hp.vocab != job->model->hp.vocab)
            st = tsr_fail(err, TSR_E_INPUT,
                          "draft: %s: a vocabulary of %llu tokens, and %s has %llu; without two "
                          "tokenizers they must be equal",
                          path, (unsigned long long)d->own->hp.vocab, job->model->path,
                          (unsigned long long)job->model->hp.vocab);
    } else if (strcmp(tsr_tokenizer_hash(t), tsr_tokenizer_hash(job->tokenizer)) != 0) {
        st = same_texts(t, job->tokenizer, path, job->model->path, err);
    }
    tsr_tokenizer_destroy(t);
    return st;
}

static tsr_status open_own(struct tsr_pipeline_drafting *d, struct tsr_pipeline_job *job,
                           const struct tsr_pipeline_draft_keys *k, struct tsr_err *err)
{
    char *path = tsr_pipeline_draft_path(job, k);
    if (!path)
        return tsr_fail_nomem(err, strlen(k->draft), "a path");
    tsr_logf(TSR_LOG_INFO, "loading the draft model %s", path);
    tsr_status st = tsr_model_load(&d->own, path, false, err);
    if (st != TSR_OK)
        st = tsr_err_prefix(err, st, "draft");
    else
        st = check_vocabulary(d, job, path, err);
    free(path);
    return st;
}

/* ---- at work ------------------------------------------------------------------------------ */

static double bytes_of(const struct tsr_model *m, const struct tsr_model_overlay *o)
{
    uint64_t weights, bytes;
    tsr_model_overlay_size(m, o ? o : m->packed, &weights, &bytes);
    return bytes ? (double)bytes : (double)m->bytes;
}

static tsr_status start(struct tsr_pipeline_drafting *d, struct tsr_pipeline_job *job,
                        const struct tsr_engine_options *eo, const struct drafted_for *of,
                        struct tsr_err *err)
{
    const struct tsr_model   *m = d->own ? d->own : job->model;
    struct tsr_engine_options o = *eo;
    uint64_t                  most = m->hp.max_positions;
    o.slots = (uint32_t)of->slots;
    o.context = most && most < of->context ? most : of->context;
    o.tp = NULL;
    o.split = NULL;
    o.compensate = NULL;
    o.kv_layers = d->own ? NULL : eo->kv_layers;
    TSR_TRY(tsr_engine_create(&d->engine, job->registry, m, d->overlay, &o, err));
    struct tsr_engine_draft_size size = {
        .bytes = bytes_of(m, d->overlay) / bytes_of(of->m, of->overlay),
        .work = of->m->parameters ? (double)m->parameters / (double)of->m->parameters : 1
    };
    TSR_TRY(tsr_engine_draft_model_create(&d->by, d->engine, of->vocab, &size, err));
    tsr_logf(TSR_LOG_INFO, "the draft model takes %.1f MB of weights and cache",
             (double)d->by->bytes / 1e6);
    return TSR_OK;
}

static tsr_status open_drafting(struct tsr_pipeline_drafting *d, struct tsr_pipeline_job *job,
                                const struct tsr_pipeline_draft_keys *k,
                                const struct tsr_engine_options *eo, const struct drafted_for *of,
                                struct tsr_err *err)
{
    *d = (struct tsr_pipeline_drafting){ 0 };
    if (!tsr_pipeline_draft_wanted(k))
        return TSR_OK;
    if (of->why) {
        tsr_logf(TSR_LOG_WARN, "no drafts: %s", of->why);
        return TSR_OK;
    }
    d->draft = k->draft_tokens ? (uint32_t)k->draft_tokens : TSR_ENGINE_DRAFT_CHOSEN;
    if (strcmp(k->draft, "lookup") == 0)
        return TSR_OK;
    TSR_TRY(strcmp(k->draft, "self") == 0 ? open_self(d, job, k, err) : open_own(d, job, k, err));
    tsr_status st = start(d, job, eo, of, err);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "draft: %s", k->draft);
}

tsr_status tsr_pipeline_drafting_on(struct tsr_pipeline_drafting *d, struct tsr_pipeline_job *job,
                                    const struct tsr_pipeline_draft_keys *k,
                                    const struct tsr_engine_options *eo, const struct tsr_model *m,
                                    const struct tsr_model_overlay *overlay, struct tsr_err *err)
{
    struct drafted_for of = {
        .m = m, .overlay = overlay, .slots = eo->slots, .context = eo->context, .vocab = m->hp.vocab
    };
    (void)tsr_engine_drafts(&m->hp, eo, &of.why);
    return open_drafting(d, job, k, eo, &of, err);
}

tsr_status tsr_pipeline_drafting_ranks(struct tsr_pipeline_drafting           *d,
                                       struct tsr_pipeline_job                *job,
                                       const struct tsr_pipeline_draft_keys   *k,
                                       const struct tsr_pipeline_running_keys *run,
                                       const struct tsr_engine_pass *pass, const char *why,
                                       void (*on_layer)(void *ctx, uint64_t layer, bool load),
                                       struct tsr_err *err)
{
    struct drafted_for        of = { .m = job->model,
                                     .overlay = job->overlay,
                                     .slots = pass->slots,
                                     .context = pass->context,
                                     .vocab = pass->vocab,
                                     .why = why };
    struct tsr_engine_options eo = { .on = tsr_pipeline_run_on_of(&run->on),
                                     .act = (uint32_t)run->act,
                                     .kv_dtype = (uint32_t)run->kv,
                                     .kv_layers = run->kv_layers,
                                     .chunk = (uint64_t)run->chunk,
                                     .on_layer = on_layer };
    return open_drafting(d, job, k, &eo, &of, err);
}

void tsr_pipeline_drafting_close(struct tsr_pipeline_drafting *d)
{
    tsr_engine_draft_model_destroy(d->by);
    tsr_engine_destroy(d->engine);
    tsr_model_overlay_destroy(d->overlay);
    tsr_model_destroy(d->own);
    *d = (struct tsr_pipeline_drafting){ 0 };
}
