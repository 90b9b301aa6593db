/* Hidden states through layers, codecs and caches, and the KL of what they predict. */
#include "base/mem.h"
#include "eval/eval.h"
#include "eval/link.h"
#include "eval/simulate.h"
#include "eval/statistics.h"
#include "plugin/spec.h"
#include "quant/kl_internal.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONFIDENCE 0.975 /* one end of an interval of 95 % */

tsr_status tsr_kl_states_open(struct tsr_kl_states *s, struct tsr_registry *r,
                              const struct tsr_model *m, const struct tsr_quant_calibration *c,
                              uint64_t sequences, struct tsr_err *err)
{
    uint64_t n = 0, logits = 0;
    *s = (struct tsr_kl_states){ .model = m,
                                 .c = c,
                                 .registry = r,
                                 .pool = tsr_plugin_registry_pool(r),
                                 .sequences = sequences,
                                 .step = c->seqlen * m->hp.hidden };
    if (tsr_mul(sequences, s->step, &n) && tsr_mul(TSR_KL_ROWS, m->hp.vocab, &logits)) {
        s->end = tsr_new_aligned(n, sizeof *s->end);
        s->base = tsr_new_aligned(logits, sizeof *s->base);
        s->logits = tsr_new_aligned(logits, sizeof *s->logits);
        s->kl = tsr_new(TSR_KL_ROWS, sizeof *s->kl);
        s->mean = tsr_new(sequences, sizeof *s->mean);
    }
    if (!s->end || !s->base || !s->logits || !s->kl || !s->mean)
        return tsr_fail_nomem(err, n * sizeof *s->end,
                              "hidden states of the KL probes; fewer sequences take less");
    TSR_TRY(tsr_engine_stream_create(&s->stream, r, m, c->seqlen, TSR_ACT_F32, &c->on, err));
    TSR_TRY(tsr_kl_states_embed(s, s->end, err));
    return tsr_kl_states_rest(s, 0, s->end, err);
}

void tsr_kl_states_close(struct tsr_kl_states *s)
{
    tsr_engine_stream_destroy(s->stream);
    free(s->end);
    free(s->base);
    free(s->logits);
    free(s->kl);
    free(s->mean);
    *s = (struct tsr_kl_states){ 0 };
}

tsr_status tsr_kl_states_embed(struct tsr_kl_states *s, float *h, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->sequences; i++)
        TSR_TRY(tsr_engine_stream_embed(s->stream, s->c->ids + i * s->c->seqlen, s->c->seqlen,
                                        h + i * s->step, err));
    return TSR_OK;
}

tsr_status tsr_kl_states_layer(struct tsr_kl_states *s, uint64_t layer,
                               const struct tsr_model_overlay *o, const float *in, float *out,
                               struct tsr_err *err)
{
    TSR_TRY(tsr_engine_stream_open_layer(s->stream, layer, o, err));
    for (uint64_t i = 0; i < s->sequences; i++)
        TSR_TRY(tsr_engine_stream_run(s->stream, in + i * s->step, s->c->seqlen, out + i * s->step,
                                      err));
    return TSR_OK;
}

tsr_status tsr_kl_states_rest(struct tsr_kl_states *s, uint64_t first, float *h,
                              struct tsr_err *err)
{
    for (uint64_t l = first; l < s->model->hp.layers; l++)
        TSR_TRY(tsr_kl_states_layer(s, l, NULL, h, h, err));
    return TSR_OK;
}

/* ---- KL ---------------------------------------------------------------------------------- */

static tsr_status score_rows(void *arg, uint64_t begin, uint64_t end)
{
    struct tsr_kl_states *s = arg;
    uint64_t              vocab = s->model->hp.vocab;
    for (uint64_t i = begin; i < end; i++) {
        const float *p = s->base + i * vocab, *q = s->logits + i * vocab;
        double       p_lse, q_lse;
        (void)tsr_eval_nll(p, vocab, 0, &p_lse);
        (void)tsr_eval_nll(q, vocab, 0, &q_lse);
        s->kl[i] = tsr_eval_kl(p, p_lse, q, q_lse, vocab);
    }
    return TSR_OK;
}

tsr_status tsr_kl_states_score(struct tsr_kl_states *s, const float *h, struct tsr_kl_figure *f,
                               struct tsr_err *err)
{
    return tsr_kl_states_score_by(s, NULL, h, f, err);
}

tsr_status tsr_kl_states_score_by(struct tsr_kl_states *s, struct tsr_engine *head, const float *h,
                                  struct tsr_kl_figure *f, struct tsr_err *err)
{
    uint64_t seqlen = s->c->seqlen, hidden = s->model->hp.hidden, n = s->sequences;
    double   sum = 0, square = 0;
    for (uint64_t i = 0; i < n; i++) {
        s->mean[i] = 0;
        for (uint64_t first = 0; first < seqlen; first += TSR_KL_ROWS) {
            uint64_t rows = seqlen - first < TSR_KL_ROWS ? seqlen - first : TSR_KL_ROWS;
            uint64_t at = i * s->step + first * hidden;
            TSR_TRY(tsr_engine_stream_head(s->stream, s->end + at, rows, s->base, err));
            TSR_TRY(head ? tsr_engine_head(head, h + at, rows, s->logits, err)
                         : tsr_engine_stream_head(s->stream, h + at, rows, s->logits, err));
            TSR_TRY(tsr_pool_for(s->pool, rows, 8, score_rows, s));
            for (uint64_t k = 0; k < rows; k++)
                s->mean[i] += s->kl[k] / (double)seqlen;
        }
        sum += s->mean[i] / (double)n;
    }
    for (uint64_t i = 0; i < n; i++)
        square += (s->mean[i] - sum) * (s->mean[i] - sum);
    f->kl = sum;
    f->half = n > 1 ? tsr_eval_t_quantile(CONFIDENCE, (double)(n - 1)) *
                          sqrt(square / (double)(n - 1) / (double)n)
                    : (double)NAN;
    if (!isfinite(sum))
        return tsr_fail(err, TSR_E_NUMERIC, "the KL of a probe is not a number");
    return TSR_OK;
}

/* ---- links ------------------------------------------------------------------------------- */

tsr_status tsr_quant_kl_codec(struct tsr_registry *r, const char *text, struct tsr_err *err)
{
    struct tsr_plugin_spec spec = { 0 };
    tsr_status             st = tsr_plugin_spec_open(&spec, r, TSR_KIND_CODEC, text, err);
    tsr_plugin_spec_close(&spec);
    return st;
}

tsr_status tsr_kl_states_send(struct tsr_kl_states *s, const char *codec, uint64_t layer, float *h,
                              struct tsr_err *err)
{
    struct tsr_eval_link link;
    TSR_TRY(tsr_eval_link_open(&link, s->registry, codec, err));
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; st == TSR_OK && i < s->sequences; i++)
        st = tsr_eval_link_send(&link, (uint32_t)(2 * layer + 1), s->c->seqlen, s->model->hp.hidden,
                                h + i * s->step, err);
    tsr_eval_link_close(&link);
    return st;
}

/* ---- caches and sums --------------------------------------------------------------------- */

tsr_status tsr_kl_states_run(struct tsr_kl_states *s, struct tsr_engine *e, float *h,
                             struct tsr_err *err)
{
    uint64_t                 n = s->c->seqlen;
    struct tsr_engine_token *tokens = tsr_new(n, sizeof *tokens);
    tsr_status st = tokens ? TSR_OK : tsr_fail_nomem(err, n * sizeof *tokens, "a sequence");
    for (uint64_t i = 0; st == TSR_OK && i < s->sequences; i++) {
        for (uint64_t k = 0; k < n; k++)
            tokens[k] = (struct tsr_engine_token){ .id = s->c->ids[i * n + k] };
        tsr_engine_reset(e, 0);
        st = tsr_plugin_cancelled()
                 ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                 : tsr_engine_stage(e, tokens, n, NULL, h + i * s->step, NULL, err);
    }
    free(tokens);
    return st;
}

tsr_status tsr_kl_states_engine(struct tsr_kl_states *s, uint32_t kv, const char *sum,
                                uint32_t ranks, float *h, struct tsr_kl_figure *f,
                                struct tsr_err *err)
{
    struct tsr_engine        *e = NULL;
    struct tsr_tp            *tp = NULL;
    struct tsr_engine_options o = {
        .on = s->c->on, .act = TSR_ACT_F32, .kv_dtype = kv, .slots = 1, .context = s->c->seqlen
    };
    tsr_status st = TSR_OK;
    if (sum) {
        struct tsr_eval_tp_options to = { .ranks = ranks, .codec = sum };
        st = tsr_eval_tp_open(&tp, s->registry, &to, err);
        if (st == TSR_OK && tsr_eval_tp_needs(tp))
            st = tsr_eval_tp_calibrate(tp, s->registry, s->model, NULL, &o, s->c->ids, s->sequences,
                                       s->c->seqlen, err);
        o.split = st == TSR_OK ? tsr_eval_tp_split(tp) : NULL;
    }
    if (st == TSR_OK)
        st = tsr_engine_create(&e, s->registry, s->model, NULL, &o, err);
    if (st == TSR_OK)
        st = tsr_kl_states_run(s, e, h, err);
    tsr_engine_destroy(e);
    tsr_eval_tp_close(tp);
    return st == TSR_OK ? tsr_kl_states_score(s, h, f, err) : st;
}
