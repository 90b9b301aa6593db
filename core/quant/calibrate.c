/* Calibration: which runs of a text, and the statistics of all layers that stay in memory. */
#include "quant/calibrate.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/rng.h"
#include "quant/calibrate_internal.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT (UINT64_C(1) << 32)
#define SQUARES  (TSR_NEED_MEAN | TSR_NEED_VARIANCE)

void tsr_quant_calibration_destroy(struct tsr_quant_calibration *c)
{
    if (!c)
        return;
    for (uint64_t l = 0; c->site && l < c->layers; l++)
        for (uint64_t s = 0; s < c->sites; s++) {
            free((void *)(uintptr_t)c->site[l][s].absmax);
            free((void *)(uintptr_t)c->site[l][s].mean);
            free((void *)(uintptr_t)c->site[l][s].variance);
            free((void *)(uintptr_t)c->site[l][s].mean_abs);
        }
    tsr_quant_source_free(c->source);
    free(c->site);
    free(c->borrowed);
    free(c->ids);
    free(c);
}

/* What a stored file must match.  The tokens cover text and tokenizer. */
static tsr_status hash_of(struct tsr_quant_calibration *c, const struct tsr_model *m, uint64_t seed,
                          struct tsr_err *err)
{
    struct tsr_hasher *h;
    char               head[256];
    TSR_TRY(tsr_hasher_create(&h, err));
    int n = snprintf(head, sizeof head, "tessera.calibration/1 %s %llu %llu %llu ", m->hash,
                     (unsigned long long)c->sequences, (unsigned long long)c->seqlen,
                     (unsigned long long)seed);
    tsr_hasher_update(h, head, (uint64_t)n);
    tsr_hasher_update(h, c->ids, c->tokens * sizeof *c->ids);
    tsr_hasher_finish(h, c->hash);
    return TSR_OK;
}

/* Runs of seqlen tokens at places that the seed draws. */
static void draw(struct tsr_quant_calibration *c, const struct tsr_tokenizer_ids *ids,
                 uint64_t seed)
{
    uint64_t places = ids->n - c->seqlen + 1;
    for (uint64_t i = 0; i < c->sequences; i++) {
        uint64_t at = (uint64_t)(tsr_uniform(seed, 0, i) * (double)places);
        memcpy(c->ids + i * c->seqlen, ids->v + at, c->seqlen * sizeof *c->ids);
    }
}

static tsr_status choose(struct tsr_quant_calibration *c, struct tsr_registry *r,
                         const struct tsr_model *m, const struct tsr_tokenizer_ids *ids,
                         const struct tsr_quant_calibrate_options *opt, struct tsr_err *err)
{
    if (ids->n < opt->seqlen)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has %llu tokens, fewer than seqlen %llu; give a longer text or a "
                        "smaller seqlen",
                        opt->text, (unsigned long long)ids->n, (unsigned long long)opt->seqlen);
    struct tsr_quant_calibration_source *s = c->source = tsr_new(1, sizeof *s);
    bool                                 fits = tsr_mul(opt->samples, opt->seqlen, &c->tokens);
    c->layers = m->hp.layers;
    c->sites = m->hp.sites;
    c->sequences = opt->samples;
    c->seqlen = opt->seqlen;
    c->on = opt->on;
    c->ids = fits ? tsr_new(c->tokens, sizeof *c->ids) : NULL;
    if (!opt->defer) {
        c->site = tsr_new_rows(c->layers, c->sites, sizeof **c->site);
        c->borrowed = tsr_new_rows(c->layers, c->sites, sizeof **c->borrowed);
    }
    if (!s || !c->ids || (!opt->defer && (!c->site || !c->borrowed)))
        return tsr_fail_nomem(err, c->tokens * sizeof *c->ids, "calibration");
    uint64_t rows = opt->input_rows ? opt->input_rows : TSR_INPUT_ROWS;
    *s = (struct tsr_quant_calibration_source){ .registry = r,
                                                .model = m,
                                                .want = opt->need & TSR_COLLECTED };
    s->keep = rows / c->seqlen ? rows / c->seqlen : 1;
    if (s->keep > c->sequences)
        s->keep = c->sequences;
    if (opt->folder && !(s->folder = tsr_strdup(opt->folder)))
        return tsr_fail_nomem(err, strlen(opt->folder), "a path");
    draw(c, ids, opt->seed);
    return hash_of(c, m, opt->seed, err);
}

/* need of a layer of the original model, from the folder or collected.  A file that lacks some of
 * `must` is recreated, with its old content and the later needs. */
static tsr_status of_original(struct tsr_quant_calibration *c, uint64_t layer, uint64_t need,
                              uint64_t must, struct tsr_quant_layer_stats *out, struct tsr_err *err)
{
    const struct tsr_quant_calibration_source *s = c->source;
    uint64_t                                   have = 0;
    if (s->folder) {
        must |= need;
        TSR_TRY(tsr_quant_calibration_file_read(c, layer, need, must, &have, out, err));
        if (have && (have & must) == must)
            return TSR_OK;
        must |= have | TSR_MOMENTS | s->want;
    } else {
        must = need;
    }
    TSR_TRY(tsr_quant_collect_layer(c, layer, must, NULL, out, err));
    tsr_status st = s->folder ? tsr_quant_calibration_file_write(c, layer, out, err) : TSR_OK;
    if (st != TSR_OK) {
        tsr_quant_layer_stats_free(out);
        return st;
    }
    tsr_quant_layer_stats_limit(out, need);
    return TSR_OK;
}

/* Moments of all layers, and with a folder the other requested statistics, layer by layer. */
static tsr_status all_layers(struct tsr_quant_calibration *c, struct tsr_err *err)
{
    for (uint64_t l = 0; l < c->layers; l++) {
        struct tsr_quant_layer_stats s;
        /* later needs are stored in the folder; without one they would be discarded */
        TSR_TRY(of_original(c, l, TSR_MOMENTS, c->source->want, &s, err));
        tsr_quant_layer_stats_limit(&s, TSR_MOMENTS);
        memcpy(c->site[l], s.site, c->sites * sizeof *s.site); /* the arrays move */
        memcpy(c->borrowed[l], s.borrowed, c->sites * sizeof *s.borrowed);
        memset(s.site, 0, c->sites * sizeof *s.site);
        tsr_quant_layer_stats_free(&s);
        tsr_progress("calibrate", l + 1, c->layers);
    }
    tsr_quant_source_rest(c->source);
    return TSR_OK;
}

/* A copy of the resident moments that need names. */
static tsr_status copy_moments(const struct tsr_quant_calibration *c, uint64_t layer, uint64_t need,
                               struct tsr_quant_layer_stats *out, struct tsr_err *err)
{
    TSR_TRY(tsr_quant_layer_stats_new(out, c->sites, c->seqlen, err));
    memcpy(out->borrowed, c->borrowed[layer], c->sites * sizeof *out->borrowed);
    for (uint64_t i = 0; i < c->sites; i++) {
        struct tsr_quant_stats *to = &out->site[i],
                               from = tsr_quant_stats_for(need, &c->site[layer][i]);
        const float *const *source[] = { &from.absmax, &from.mean, &from.variance, &from.mean_abs };
        const float       **target[] = { &to->absmax, &to->mean, &to->variance, &to->mean_abs };
        to->struct_size = sizeof *to;
        to->cols = c->site[layer][i].cols;
        to->tokens = c->site[layer][i].tokens;
        for (int k = 0; k < 4; k++) {
            if (!*source[k])
                continue;
            float *copy = tsr_new(to->cols, sizeof *copy);
            if (!copy) {
                tsr_quant_layer_stats_free(out);
                return tsr_fail_nomem(err, to->cols * sizeof *copy, "statistics of the inputs");
            }
            memcpy(copy, *source[k], to->cols * sizeof *copy);
            *target[k] = copy;
        }
    }
    return TSR_OK;
}

static bool resident(const struct tsr_quant_calibration *c, uint64_t layer)
{
    return c->site && c->site[layer][0].absmax;
}

static tsr_status statistics(struct tsr_quant_calibration *c, uint64_t layer, uint64_t need,
                             const struct tsr_model_overlay *before,
                             struct tsr_quant_layer_stats *out, struct tsr_err *err)
{
    if (need & TSR_NEED_SENSITIVITY)
        return tsr_fail(err, TSR_E_INPUT,
                        "the sensitivity of every weight needs gradients, which calibration does "
                        "not compute");
    if (need & ~(TSR_COLLECTED | TSR_NEED_CROSS))
        return tsr_fail(err, TSR_E_INPUT,
                        "statistics 0x%llx are requested, which this version does not know",
                        (unsigned long long)(need & ~(TSR_COLLECTED | TSR_NEED_CROSS)));
    if (!c->source) /* mean squares, which are mean and variance together alone */
        return before || (need & SQUARES) != SQUARES || need & ~SQUARES
                   ? tsr_fail(err, TSR_E_INPUT,
                              "an importance matrix has the mean squares of the inputs and nothing "
                              "else; %s",
                              before ? "leave `sequential` out"
                                     : "the quantizer needs a calibrate step (the verb: --text "
                                       "FILE) in place of it")
                   : copy_moments(c, layer, need, out, err);
    if (!before && need & TSR_NEED_CROSS)
        return tsr_fail(err, TSR_E_INPUT,
                        "layer %llu: a quantizer compares the inputs after the quantized layers "
                        "with those of the original model; add `sequential: true`",
                        (unsigned long long)layer);
    if (!before && !(need & ~TSR_MOMENTS) && resident(c, layer))
        return copy_moments(c, layer, need, out, err);
    if (!before)
        return of_original(c, layer, need, 0, out, err);
    TSR_TRY(tsr_quant_collect_layer(c, layer, need, before, out, err));
    tsr_quant_layer_stats_limit(out, need);
    return TSR_OK;
}

/* The recording comes first: statistics of the original model move the hidden states past the layer. */
tsr_status tsr_quant_calibration_layer(struct tsr_quant_calibration *c, uint64_t layer,
                                       uint64_t need, const struct tsr_model_overlay *before,
                                       struct tsr_quant_layer_stats *out, struct tsr_err *err)
{
    struct tsr_quant_recording block = { 0 };
    if (layer >= c->layers)
        return tsr_fail(err, TSR_E_INVAL, "layer %llu, the calibration has %llu",
                        (unsigned long long)layer, (unsigned long long)c->layers);
    if (need & TSR_NEED_BLOCK)
        TSR_TRY(tsr_quant_calibration_record(c, layer, before, &block, err));
    tsr_status st = need == TSR_NEED_BLOCK
                        ? tsr_quant_layer_stats_new(out, c->sites, c->seqlen, err)
                        : statistics(c, layer, need & ~TSR_NEED_BLOCK, before, out, err);
    if (st != TSR_OK)
        tsr_quant_recording_free(&block);
    else
        out->block = block;
    return st;
}

const char *tsr_quant_calibration_folder(const struct tsr_quant_calibration *c)
{
    return c->source ? c->source->folder : NULL;
}

tsr_status tsr_quant_calibration_memory(const struct tsr_model                   *m,
                                        const struct tsr_quant_calibrate_options *opt,
                                        uint64_t need, uint64_t *bytes, struct tsr_err *err)
{
    uint64_t rows = opt->input_rows ? opt->input_rows : TSR_INPUT_ROWS, widest = m->hp.hidden;
    uint64_t tokens, n, total;
    TSR_TRY(tsr_engine_stream_estimate(m, opt->seqlen, &total, err));
    rows = rows > opt->seqlen ? rows : opt->seqlen;
    bool ok = tsr_mul(opt->samples, opt->seqlen, &tokens) && tsr_add(tokens, opt->seqlen, &n) &&
              tsr_mul(n, m->hp.hidden * sizeof(float), &n) && tsr_add(total, n, &total) &&
              tsr_add(total, tokens * sizeof(uint32_t), &total);
    if (need & (TSR_NEED_CROSS | TSR_NEED_BLOCK)) /* the hidden states of the original model */
        ok = ok && tsr_mul(tokens, m->hp.hidden * sizeof(float), &n) && tsr_add(total, n, &total);
    if (need & TSR_NEED_BLOCK) /* inputs and outputs of a layer */
        ok = ok && tsr_mul(2 * rows, m->hp.hidden * sizeof(float), &n) && tsr_add(total, n, &total);
    for (uint64_t i = 0; i < m->hp.sites && ok; i++) {
        uint64_t cols = tsr_model_site_cols(m, (enum tsr_site)i);
        widest = cols > widest ? cols : widest;
        ok = tsr_mul(cols, 28 + 16, &n) && tsr_add(total, n, &total); /* sums and results */
        if (need & TSR_NEED_HESSIAN)
            ok = ok && tsr_mul(cols, cols * sizeof(float), &n) && tsr_add(total, n, &total);
        if (need & TSR_NEED_TOP)
            ok = ok && tsr_mul(cols, cols * sizeof(double), &n) && tsr_add(total, n, &total);
        if (need & TSR_NEED_CROSS && i < TSR_MODEL_SITE_EXPERTS) /* sums, inputs, differences */
            ok = ok && tsr_add(cols, 2 * opt->seqlen, &n) && tsr_mul(cols * sizeof(float), n, &n) &&
                 tsr_add(total, n, &total);
        if (need & TSR_NEED_INPUTS && i < TSR_MODEL_SITE_EXPERTS)
            ok = ok && tsr_mul(cols, rows * sizeof(float), &n) && tsr_add(total, n, &total);
    }
    /* the rows that the tap sees */
    ok = ok && tsr_mul(widest, (opt->seqlen < 512 ? opt->seqlen : 512) * sizeof(float), &n) &&
         tsr_add(total, n, bytes);
    return ok ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "the sizes of a calibration overflow");
}

tsr_status tsr_quant_calibrate(struct tsr_quant_calibration **out, struct tsr_registry *r,
                               const struct tsr_model *m, const struct tsr_tokenizer *t,
                               const struct tsr_quant_calibrate_options *opt, struct tsr_err *err)
{
    char                    *text;
    uint64_t                 bytes;
    struct tsr_tokenizer_ids ids = { 0 };
    if (opt->samples == 0 || opt->seqlen == 0)
        return tsr_fail(err, TSR_E_INPUT, "calibrate: samples and seqlen must be 1 or more");
    TSR_TRY(tsr_model_context(m, opt->seqlen, err));
    struct tsr_quant_calibration *c = tsr_new(1, sizeof *c);
    if (!c)
        return tsr_fail_nomem(err, sizeof *c, "calibration");
    tsr_status st = tsr_tokenizer_text_load(opt->text, MAX_TEXT, &text, &bytes, err);
    if (st == TSR_OK) {
        st = tsr_tokenize(t, text, bytes, TSR_TOKENIZER_SPECIAL, &ids, err);
        free(text);
        if (st != TSR_OK)
            st = tsr_err_prefix(err, st, "%s", opt->text);
    }
    if (st == TSR_OK)
        st = choose(c, r, m, &ids, opt, err);
    tsr_tokenizer_ids_free(&ids);
    if (st == TSR_OK && opt->folder)
        st = tsr_make_dirs(opt->folder, err);
    if (st == TSR_OK && !opt->defer)
        st = all_layers(c, err);
    if (st != TSR_OK) {
        tsr_quant_calibration_destroy(c);
        return st;
    }
    *out = c;
    return TSR_OK;
}

tsr_status tsr_quant_calibrate_like(struct tsr_quant_calibration      **out,
                                    const struct tsr_quant_calibration *like,
                                    const struct tsr_model *m, struct tsr_err *err)
{
    if (!like->source || like->layers != m->hp.layers || like->sites != m->hp.sites)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the calibration has no sequences that could run through it", m->path);
    struct tsr_quant_calibration        *c = tsr_new(1, sizeof *c);
    struct tsr_quant_calibration_source *s = tsr_new(1, sizeof *s);
    uint32_t                            *ids = tsr_new(like->tokens, sizeof *ids);
    uint64_t                             bytes = like->tokens * sizeof *ids;
    if (!c || !s || !ids) {
        free(c);
        free(s);
        free(ids);
        return tsr_fail_nomem(err, bytes, "calibration");
    }
    memcpy(ids, like->ids, bytes);
    *s = (struct tsr_quant_calibration_source){ .registry = like->source->registry,
                                                .model = m,
                                                .keep = like->source->keep };
    *c = (struct tsr_quant_calibration){ .layers = like->layers,
                                         .sites = like->sites,
                                         .sequences = like->sequences,
                                         .seqlen = like->seqlen,
                                         .tokens = like->tokens,
                                         .ids = ids,
                                         .on = like->on,
                                         .source = s };
    tsr_status st = hash_of(c, m, 0, err);
    if (st != TSR_OK) {
        tsr_quant_calibration_destroy(c);
        return st;
    }
    *out = c;
    return TSR_OK;
}
