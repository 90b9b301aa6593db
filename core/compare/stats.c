/* Differences between arms, with intervals and verdicts. */
#include "base/json.h"
#include "base/mem.h"
#include "compare/compare.h"
#include "compare/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VERDICT 1000u

/* ---- measuring ----------------------------------------------------------------------- */

static tsr_status correct(struct compare *c, struct tsr_err *err)
{
    double   *p = tsr_new(c->n, sizeof *p), *adjusted = tsr_new(c->n, sizeof *adjusted);
    uint64_t *order = tsr_new(c->n, sizeof *order), n = 0;
    bool      ok = p && adjusted && order;
    for (uint64_t i = 0; ok && i < c->n; i++)
        if (c->arms[i].has_paired)
            p[n++] = c->arms[i].paired.delta.p;
    if (ok)
        tsr_eval_holm(p, n, adjusted, order);
    n = 0;
    for (uint64_t i = 0; ok && i < c->n; i++)
        c->arms[i].p_holm = c->arms[i].has_paired ? adjusted[n++] : (double)NAN;
    free(p);
    free(adjusted);
    free(order);
    return ok ? TSR_OK : tsr_fail_nomem(err, c->n * 24, "arms");
}

static tsr_status correct_texts(struct compare *c, struct tsr_err *err)
{
    struct compare_text_test **lists = tsr_new(c->n, sizeof(struct compare_text_test *));
    if (!lists)
        return tsr_fail_nomem(err, c->n * sizeof *lists, "arms");
    for (uint64_t i = 0; i < c->n; i++)
        lists[i] = c->arms[i].on;
    tsr_status st = c->n_texts ? compare_texts_correct(c, lists, c->n, err) : TSR_OK;
    free(lists);
    return st;
}

tsr_status compare_stats(struct compare *c, struct tsr_err *err)
{
    const struct tsr_eval_trace *reference = compare_reference(c);
    for (uint64_t i = 0; reference && i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        if (a->status != TSR_OK || !a->at.n || &a->at == reference)
            continue;
        TSR_TRY(
            tsr_eval_paired_measure(&a->paired, c->windows, &a->at, reference, c->keys.alpha, err));
        TSR_TRY(compare_texts_measure(c, &a->at, reference, &a->on, err));
        a->has_paired = true;
    }
    TSR_TRY(correct_texts(c, err));
    return correct(c, err);
}

/* ---- as JSON --------------------------------------------------------------------------- */

static bool put_spread(json_t *j, const struct tsr_eval_spread *s)
{
    json_t *p = json_object();
    bool    ok = tsr_pipeline_json_put_real(j, "mean", s->d.mean) &&
              tsr_pipeline_json_put_real(j, "se", s->d.se) &&
              tsr_pipeline_json_put_real(j, "naive_se", s->d.naive_se) &&
              tsr_pipeline_json_put_real(j, "low", s->d.low) &&
              tsr_pipeline_json_put_real(j, "high", s->d.high) &&
              tsr_pipeline_json_put_real(j, "min", s->min) &&
              tsr_pipeline_json_put_real(j, "max", s->max) &&
              tsr_pipeline_json_put_real(j, "median", s->percentile[4]) &&
              tsr_pipeline_json_put_real(j, "p99", s->percentile[1]);
    for (int i = 0; i < TSR_EVAL_PERCENTILES; i++)
        ok = ok && tsr_pipeline_json_put_real(p, tsr_percentile_names[i], s->percentile[i]);
    return tsr_pipeline_json_put(j, "percentiles", p) && ok;
}

static bool put_kl(json_t *j, const struct tsr_eval_spread *s)
{
    json_t *kl = json_object(), *h = json_object(), *counts = json_array();
    bool ok = put_spread(kl, s) && tsr_pipeline_json_put_real(h, "low", TSR_EVAL_HISTOGRAM_LOW) &&
              tsr_pipeline_json_put_int(h, "per_decade", TSR_EVAL_HISTOGRAM_PER_DECADE);
    for (int i = 0; ok && i < TSR_EVAL_HISTOGRAM_BINS; i++)
        ok = json_array_append_new(counts, json_integer((json_int_t)s->histogram[i])) == 0;
    ok = tsr_pipeline_json_put(h, "counts", counts) && ok;
    ok = tsr_pipeline_json_put(kl, "histogram", h) && ok;
    return tsr_pipeline_json_put(j, "kl", kl) && ok;
}

static bool put_paired(json_t *j, const struct compare_arm *a)
{
    const struct tsr_eval_paired *p = &a->paired;
    json_t                       *ratio = json_object(), *top1 = json_object(), *dp = json_object();
    bool                          ok = tsr_compare_json_put_difference(j, "delta", &p->delta) &&
              tsr_pipeline_json_put_real(json_object_get(j, "delta"), "p_holm", a->p_holm);
    ok = tsr_pipeline_json_put_real(ratio, "value", exp(p->delta.mean)) &&
         tsr_pipeline_json_put_real(ratio, "low", exp(p->delta.low)) &&
         tsr_pipeline_json_put_real(ratio, "high", exp(p->delta.high)) && ok;
    ok = tsr_pipeline_json_put(j, "ratio", ratio) && ok;
    ok = tsr_pipeline_json_put_real(j, "top1", p->top1.mean) && ok;
    ok = tsr_pipeline_json_put_real(top1, "se", p->top1.se) &&
         tsr_pipeline_json_put_real(top1, "low", p->top1.low < 0 ? 0 : p->top1.low) &&
         tsr_pipeline_json_put_real(top1, "high", p->top1.high > 1 ? 1 : p->top1.high) && ok;
    ok = tsr_pipeline_json_put(j, "top1_interval", top1) && ok;
    ok = put_spread(dp, &p->delta_p) && tsr_pipeline_json_put_real(dp, "rms", p->delta_p.rms) && ok;
    ok = tsr_pipeline_json_put(j, "delta_p", dp) && ok;
    if (!isnan(p->kl.d.mean))
        ok = ok && put_kl(j, &p->kl);
    return ok;
}

bool compare_put_ratio(json_t *s, const char *key, const struct compare_ratio *r)
{
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_real(j, "median", r->median) &&
              tsr_pipeline_json_put_real(j, "low", r->low) &&
              tsr_pipeline_json_put_real(j, "high", r->high);
    return tsr_pipeline_json_put(s, key, j) && ok;
}

static bool put_speed(json_t *j, const struct compare *c, const struct compare_arm *a)
{
    json_t *s = json_object(), *prefill = json_array(), *decode = json_array();
    bool    ok =
        tsr_pipeline_json_put_real(s, "prefill_tokens_per_s", a->prefill_median) &&
        tsr_pipeline_json_put_real(s, "decode_tokens_per_s", a->decode_median) &&
        tsr_pipeline_json_put_act(s, tsr_pipeline_act_ran((uint32_t)c->speed.act, a->ran), a->ran);
    for (int64_t i = 0; ok && i < c->speed.repeats; i++)
        ok = json_array_append_new(prefill, json_real(a->prefill[i])) == 0 &&
             json_array_append_new(decode, json_real(a->decode[i])) == 0;
    ok = tsr_pipeline_json_put(s, "prefill_runs", prefill) && ok;
    ok = tsr_pipeline_json_put(s, "decode_runs", decode) && ok;
    if (a != &c->arms[0])
        ok = ok && compare_put_ratio(s, "prefill_ratio", &a->prefill_ratio) &&
             compare_put_ratio(s, "decode_ratio", &a->decode_ratio);
    return tsr_pipeline_json_put(j, "speed", s) && ok;
}

/* ---- verdicts --------------------------------------------------------------------------- */

static const char *size_word(const json_t *arm, double *times)
{
    double a = json_number_value(json_object_get(arm, "bytes"));
    double o = json_number_value(json_object_get(arm, "original_bytes"));
    *times = a < o ? o / a : a / o;
    return a < o ? "smaller" : a > o ? "larger" : "alike";
}

static bool put_verdict(json_t *j, const struct compare *c, const struct compare_arm *a)
{
    char        text[MAX_VERDICT] = "";
    double      times;
    json_t     *v = json_object();
    const char *size = size_word(j, &times);
    const char *speed =
        a->has_speed && a != &c->arms[0] ? compare_speed_word(&a->decode_ratio) : NULL;
    bool ok = true;
    if (a->has_paired) {
        const struct tsr_eval_difference *kl = &a->paired.kl.d;
        compare_say_perplexity(text, sizeof text, &a->paired.delta, a->p_holm, c->keys.alpha);
        if (isfinite(kl->low))
            compare_add(text, sizeof text, "; KL %.4g nats [%.4g, %.4g]", kl->mean,
                        kl->low < 0 ? 0 : kl->low, kl->high);
        ok = tsr_pipeline_json_put_text(v, "quality",
                                        compare_word(a->paired.delta.mean, a->p_holm,
                                                     c->keys.alpha));
    }
    if (a->tests)
        ok = tsr_pipeline_json_put_text(v, "tasks",
                                        compare_tasks_say(text, sizeof text, c, a->tests)) &&
             ok;
    if (strcmp(size, "alike") != 0)
        compare_add(text, sizeof text, "%s%.2f times %s", *text ? "; " : "", times, size);
    if (speed)
        compare_add(text, sizeof text, "%sdecode x%.2f [%.2f, %.2f], %s", *text ? "; " : "",
                    a->decode_ratio.median, a->decode_ratio.low, a->decode_ratio.high, speed);
    ok = tsr_pipeline_json_put_text(v, "size", size) &&
         tsr_pipeline_json_put_text(v, "speed", speed) &&
         tsr_pipeline_json_put_text(v, "text", text) && ok;
    return tsr_pipeline_json_put(j, "verdict", v) && ok;
}

bool compare_put_stats(json_t *j, const struct compare *c, const struct compare_arm *a)
{
    bool ok = !a->has_paired || put_paired(j, a);
    if (a->on)
        ok = ok && compare_put_texts(j, c, a->on, false);
    if (json_object_get(j, "choices"))
        ok = ok && compare_put_answers(j, c, a);
    if (c->tasks && json_object_get(j, "tasks"))
        ok = ok && compare_put_tasks(j, c, a->tests);
    if (a->has_speed)
        ok = ok && put_speed(j, c, a);
    if (a != &c->arms[0] || c->base)
        ok = ok && put_verdict(j, c, a);
    return ok;
}
