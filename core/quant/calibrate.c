/* Calibration: sampled runs of a text through the model, with a tap on every linear's input. */
#include "quant/calibrate.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT (UINT64_C(1) << 32)

struct run {
    struct tsr_registry *registry;
    uint64_t             layers;
    struct tsr_moments (*site)[TSR_SITES];
    uint32_t *ids; /* [samples][seqlen] */
};

static tsr_status tap(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                      uint64_t cols, struct tsr_err *err)
{
    struct run         *run = ctx;
    struct tsr_moments *s = &run->site[layer][site];
    if (s->cols == 0)
        TSR_TRY(tsr_moments_create(s, cols, err));
    if (s->cols != cols)
        return tsr_fail(err, TSR_E_BUG, "layer %llu site %d changed its width from %llu to %llu",
                        (unsigned long long)layer, (int)site, (unsigned long long)s->cols,
                        (unsigned long long)cols);
    tsr_status st = tsr_moments_add(s, tsr_registry_pool(run->registry), x, n, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "calibration, layer %llu", (unsigned long long)layer);
    return TSR_OK;
}

static tsr_status run_sample(struct tsr_engine *e, const uint32_t *ids, uint64_t n,
                             struct tsr_token *tokens, float *logits, struct tsr_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        tokens[i] = (struct tsr_token){ .id = ids[i], .slot = 0, .logits = i + 1 == n };
    tsr_engine_reset(e, 0);
    return tsr_engine_forward(e, tokens, n, logits, err);
}

static tsr_status run_samples(struct tsr_engine *e, const struct tsr_ids *ids,
                              const struct tsr_model *m, const struct tsr_calibrate_options *opt,
                              uint32_t *chosen, struct tsr_err *err)
{
    struct tsr_token *tokens = tsr_new(opt->seqlen, sizeof *tokens);
    float            *logits = tsr_new(m->hp.vocab, sizeof *logits);
    tsr_status        st = TSR_OK;
    if (!tokens || !logits)
        st = tsr_fail_nomem(err, m->hp.vocab * sizeof *logits, "calibration");
    uint64_t places = ids->n - opt->seqlen + 1;
    for (uint64_t i = 0; i < opt->samples && st == TSR_OK; i++) {
        if (tsr_cancelled()) {
            st = tsr_fail(err, TSR_E_CANCELLED, "stopped in calibration");
            break;
        }
        uint64_t at = (uint64_t)(tsr_uniform(opt->seed, 0, i) * (double)places);
        memcpy(chosen + i * opt->seqlen, ids->v + at, opt->seqlen * sizeof *chosen);
        st = run_sample(e, ids->v + at, opt->seqlen, tokens, logits, err);
        tsr_progress("calibrate", i + 1, opt->samples);
    }
    free(tokens);
    free(logits);
    return st;
}

static tsr_status collect(struct tsr_calibration **out, struct run *run,
                          const struct tsr_calibrate_options *opt, struct tsr_err *err)
{
    struct tsr_calibration *c = tsr_new(1, sizeof *c);
    if (c)
        c->site = tsr_new(run->layers, sizeof *c->site);
    if (!c || !c->site) {
        free(c);
        return tsr_fail_nomem(err, run->layers * sizeof *c->site, "calibration");
    }
    c->layers = run->layers;
    c->sequences = opt->samples;
    c->seqlen = opt->seqlen;
    c->tokens = opt->samples * opt->seqlen;
    for (uint64_t l = 0; l < run->layers; l++)
        for (int s = 0; s < TSR_SITES; s++) {
            const struct tsr_moments *sum = &run->site[l][s];
            tsr_status                st = sum->rows == c->tokens
                                               ? tsr_moments_finish(sum, &c->site[l][s], err)
                                               : tsr_fail(err, TSR_E_BUG, "layer %llu site %d saw %llu tokens",
                                                          (unsigned long long)l, s, (unsigned long long)sum->rows);
            if (st != TSR_OK) {
                tsr_calibration_destroy(c);
                return st;
            }
        }
    c->ids = run->ids;
    run->ids = NULL;
    *out = c;
    return TSR_OK;
}

static tsr_status hash_of(struct tsr_calibration *c, const struct tsr_model *m, const char *text,
                          uint64_t bytes, const struct tsr_calibrate_options *opt,
                          struct tsr_err *err)
{
    struct tsr_hasher *h;
    char               head[256];
    TSR_TRY(tsr_hasher_create(&h, err));
    int n = snprintf(head, sizeof head, "tessera.calibration/1 %s %llu %llu %llu ", m->hash,
                     (unsigned long long)opt->samples, (unsigned long long)opt->seqlen,
                     (unsigned long long)opt->seed);
    tsr_hasher_update(h, head, (uint64_t)n);
    tsr_hasher_update(h, text, bytes);
    tsr_hasher_finish(h, c->hash);
    return TSR_OK;
}

static tsr_status calibrate_ids(struct tsr_calibration **out, struct tsr_registry *r,
                                const struct tsr_model *m, const struct tsr_ids *ids,
                                const struct tsr_calibrate_options *opt, struct tsr_err *err)
{
    if (ids->n < opt->seqlen)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has %llu tokens, fewer than seqlen %llu; give a longer text or a "
                        "smaller seqlen",
                        opt->text, (unsigned long long)ids->n, (unsigned long long)opt->seqlen);
    struct tsr_engine_options eo = {
        .act = TSR_ACT_F32, .kv_dtype = TSR_F32, .slots = 1, .context = opt->seqlen
    };
    struct tsr_engine *e;
    struct run         run = { .registry = r, .layers = m->hp.layers };
    uint64_t           n = 0;
    run.site = tsr_new(run.layers, sizeof *run.site);
    run.ids = tsr_mul(opt->samples, opt->seqlen, &n) ? tsr_new(n, sizeof *run.ids) : NULL;
    if (!run.site || !run.ids) {
        free(run.site);
        free(run.ids);
        return tsr_fail_nomem(err, run.layers * sizeof *run.site + n * 4, "calibration");
    }
    tsr_status st = tsr_engine_create(&e, r, m, NULL, &eo, err);
    if (st == TSR_OK) {
        tsr_engine_set_tap(e, tap, &run);
        st = run_samples(e, ids, m, opt, run.ids, err);
        tsr_engine_destroy(e);
    }
    if (st == TSR_OK)
        st = collect(out, &run, opt, err);
    for (uint64_t l = 0; l < run.layers; l++)
        for (int s = 0; s < TSR_SITES; s++)
            tsr_moments_free(&run.site[l][s]);
    free(run.site);
    free(run.ids);
    return st;
}

tsr_status tsr_calibrate(struct tsr_calibration **c, struct tsr_registry *r,
                         const struct tsr_model *m, const struct tsr_tokenizer *t,
                         const struct tsr_calibrate_options *opt, struct tsr_err *err)
{
    char          *text;
    uint64_t       bytes;
    struct tsr_ids ids = { 0 };
    if (opt->samples == 0 || opt->seqlen == 0)
        return tsr_fail(err, TSR_E_INPUT, "calibrate: samples and seqlen must be 1 or more");
    if (opt->seqlen > m->hp.max_positions)
        return tsr_fail(err, TSR_E_INPUT,
                        "calibrate: seqlen %llu is more than the model's %llu "
                        "positions",
                        (unsigned long long)opt->seqlen, (unsigned long long)m->hp.max_positions);
    TSR_TRY(tsr_file_slurp(opt->text, MAX_TEXT, &text, &bytes, err));
    tsr_status st = tsr_tokenize(t, text, bytes, TSR_TOKENIZE_SPECIAL, &ids, err);
    if (st == TSR_OK)
        st = calibrate_ids(c, r, m, &ids, opt, err);
    else
        st = tsr_err_prefix(err, st, "%s", opt->text);
    if (st == TSR_OK) {
        st = hash_of(*c, m, text, bytes, opt, err);
        if (st != TSR_OK)
            tsr_calibration_destroy(*c);
    }
    tsr_ids_free(&ids);
    free(text);
    return st;
}
