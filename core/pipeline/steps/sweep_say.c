/* Output of a sweep: differences from k = 0, trends and comparisons, as JSON and as text. */
#include "pipeline/steps/sweep.h"

#include "compare/compare.h"
#include "pipeline/steps/sweep_trend.h"

#include "compensate/select.h"

#include <math.h>
#include <string.h>

static void difference(const struct tsr_step_sweep_run *x, const struct tsr_step_sweep_point *a,
                       const struct tsr_step_sweep_point *b, struct tsr_eval_difference *out)
{
    for (uint64_t i = 0; i < x->w->scored; i++)
        x->d[i] = (double)a->nll[i] - (double)b->nll[i];
    tsr_eval_paired_difference(x->d, x->start, x->w->n, TSR_SWEEP_ALPHA, out);
}

static bool put_difference(json_t *j, const char *key, const struct tsr_eval_difference *d)
{
    json_t *o = json_object();
    bool    ok = tsr_pipeline_json_put_real(o, "mean", d->mean) &&
              tsr_pipeline_json_put_real(o, "low", d->low) &&
              tsr_pipeline_json_put_real(o, "high", d->high) &&
              tsr_pipeline_json_put_real(o, "p", d->p);
    return tsr_pipeline_json_put(j, key, o) && ok;
}

static json_t *point_json(const struct tsr_step_sweep_run *x, const struct tsr_step_sweep_point *p)
{
    static const char *const kinds[TSR_MODEL_SITES] = { "qkv", "o", "gate_up", "down" };
    json_t                  *j = json_object(), *k = json_object();
    bool                     ok = tsr_pipeline_json_put(j, "channels", k);
    for (int s = 0; s < TSR_MODEL_SITES && ok; s++)
        ok = tsr_pipeline_json_put_int(k, kinds[s], p->site[s]);
    if (p->select < 0)
        ok = ok && tsr_pipeline_json_put_real(j, "target", p->k) &&
             tsr_pipeline_json_put_real(j, "ms", p->ms) &&
             tsr_pipeline_json_put_real(j, "base_ms", p->base) &&
             tsr_pipeline_json_put_real(j, "slower", p->ms / p->base - 1) &&
             tsr_pipeline_json_put_real(j, "decode_ms", 1e3 * p->decoded.with) &&
             tsr_pipeline_json_put_real(j, "decode_base_ms", 1e3 * p->decoded.bare) &&
             tsr_pipeline_json_put_real(j, "decode_slower", p->decoded.with / p->decoded.bare - 1);
    else
        ok = ok &&
             tsr_pipeline_json_put_text(j, "select",
                                        tsr_compensate_select_choices[p->select].name) &&
             tsr_pipeline_json_put_int(j, "k", (uint64_t)p->k);
    ok = ok && tsr_pipeline_json_put_real(j, "perplexity", p->result.perplexity) &&
         tsr_pipeline_json_put_real(j, "mean_nll", p->result.mean_nll) &&
         tsr_pipeline_json_put_real(j, "recall", p->recall);
    if (ok && x->questions)
        ok = tsr_pipeline_json_put(j, "choices",
                                   tsr_compare_choices_json(&p->marks,
                                                            p->k > 0 ? &x->point[0].marks : NULL,
                                                            TSR_SWEEP_ALPHA));
    if (ok && p->same)
        ok = tsr_pipeline_json_put_real(j, "agreement", p->agreement);
    if (ok && p->same && p->k > 0)
        ok = put_difference(j, "agreement_delta", &p->agreement_delta);
    if (ok && p->k > 0)
        ok = put_difference(j, "delta", &p->delta);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* Dynamic selection of k against a static one of four times as many. */
static bool put_quarter(const struct tsr_step_sweep_run *x, json_t *list)
{
    for (uint64_t i = 0; i < x->n; i++)
        for (uint64_t j = 0; j < x->n; j++) {
            const struct tsr_step_sweep_point *a = &x->point[i], *b = &x->point[j];
            struct tsr_eval_difference         d;
            if (a->select != TSR_COMPENSATE_SELECT_DYNAMIC ||
                b->select < TSR_COMPENSATE_SELECT_STATIC_MEANSQ || !(a->k > 0) || b->k != 4 * a->k)
                continue;
            difference(x, a, b, &d);
            json_t *o = json_object();
            bool    ok = tsr_pipeline_json_put_int(o, "k", (uint64_t)a->k) &&
                      tsr_pipeline_json_put_text(o, "against",
                                                 tsr_compensate_select_choices[b->select].name) &&
                      tsr_pipeline_json_put_int(o, "against_k", (uint64_t)b->k) &&
                      put_difference(o, "delta", &d);
            if (json_array_append_new(list, o) != 0 || !ok)
                return false;
        }
    return true;
}

/* With each way to select: does perplexity fall as k grows? */
static bool put_trends(const struct tsr_step_sweep_run *x, json_t *list)
{
    static const char *const verdicts[] = { "falls", "open", "rises" };
    for (uint64_t s = 0; s < x->n_select; s++) {
        const float                *nll[TSR_TREND_MOST] = { x->point[0].nll };
        uint64_t                    n = 1;
        struct tsr_step_sweep_trend t;
        for (uint64_t i = 1; i < x->n; i++)
            if (x->point[i].select == x->select[s])
                nll[n++] = x->point[i].nll;
        if (n < 2)
            continue;
        tsr_step_sweep_trend(nll, n, x->start, x->w->n, TSR_SWEEP_ALPHA, x->d, &t);
        json_t *o = json_object(), *steps = json_array();
        bool    ok = tsr_pipeline_json_put(o, "steps", steps) &&
                  tsr_pipeline_json_put_text(o, "select",
                                             tsr_compensate_select_choices[x->select[s]].name) &&
                  tsr_pipeline_json_put_text(o, "verdict", verdicts[t.verdict]) &&
                  tsr_pipeline_json_put_int(o, "rises", t.rises) &&
                  tsr_pipeline_json_put_int(o, "proven", t.proven) &&
                  put_difference(o, "slope", &t.slope);
        for (uint64_t i = 0; i < t.steps && ok; i++) {
            json_t *step = json_object();
            ok = put_difference(step, "delta", &t.step[i]);
            ok = json_array_append_new(steps, step) == 0 && ok;
        }
        if (json_array_append_new(list, o) != 0 || !ok)
            return false;
    }
    return true;
}

/* Seconds of a token without compensation, which was measured with each target. */
static double fastest(const struct tsr_step_sweep_run *x)
{
    double least = INFINITY;
    for (uint64_t i = 0; i < x->n; i++)
        if (x->point[i].select < 0)
            least = fmin(least, x->point[i].decoded.bare);
    return least;
}

json_t *tsr_step_sweep_json(struct tsr_step_sweep_run *x)
{
    uint64_t weights, bytes;
    json_t  *j = tsr_pipeline_windows_json(x->w, x->o->eval.text, x->job->tokenizer);
    json_t  *points = json_array(), *quarter = json_array(), *trends = json_array();
    tsr_model_overlay_size(x->job->model, x->job->overlay ? x->job->overlay : x->job->model->packed,
                           &weights, &bytes);
    bool ok =
        tsr_pipeline_json_put_act(j, tsr_pipeline_act_ran((uint32_t)x->o->act, x->ran), x->ran) &&
        tsr_pipeline_json_put_real(j, "bits_per_weight", 8 * (double)bytes / (double)weights) &&
        tsr_pipeline_json_put_int(j, "residual_bits", x->c->bits) &&
        tsr_pipeline_json_put_int(j, "host_bytes", x->c->bytes);
    if (ok && x->n_target)
        ok = tsr_pipeline_json_put_real(j, "decode_ms", 1e3 * fastest(x));
    for (uint64_t i = 0; i < x->n && ok; i++) {
        if (x->point[i].k > 0)
            difference(x, &x->point[i], &x->point[0], &x->point[i].delta);
        ok = json_array_append_new(points, point_json(x, &x->point[i])) == 0;
    }
    ok = ok && put_trends(x, trends) && put_quarter(x, quarter);
    ok = tsr_pipeline_json_put(j, "points", points) && ok;
    ok = tsr_pipeline_json_put(j, "trends", trends) && ok;
    ok = tsr_pipeline_json_put(j, "quarter", quarter) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

void tsr_step_sweep_print(const json_t *r, FILE *to)
{
    const json_t *p;
    size_t        i;
    char          also[64];
    (void)fprintf(to, "%.4g bits per weight, residuals of %lld bits, act %s%s\n",
                  json_number_value(json_object_get(r, "bits_per_weight")),
                  (long long)json_integer_value(json_object_get(r, "residual_bits")),
                  json_string_value(json_object_get(r, "act")), tsr_pipeline_act_also(r, also));
    json_array_foreach (json_object_get(r, "points"), i, p) {
        const char   *select = json_string_value(json_object_get(p, "select"));
        const json_t *d = json_object_get(p, "delta"), *recall = json_object_get(p, "recall"),
                     *questions = json_object_get(p, "choices");
        if (select)
            (void)fprintf(to, "  %-14s k %4lld", select,
                          (long long)json_integer_value(json_object_get(p, "k")));
        else
            (void)fprintf(to, "  target %5.3g %%      ",
                          json_number_value(json_object_get(p, "target")));
        (void)fprintf(to, "  perplexity %.5g", json_number_value(json_object_get(p, "perplexity")));
        if (d)
            (void)fprintf(to, "  nll %+.4f (p %.2g)", json_number_value(json_object_get(d, "mean")),
                          json_number_value(json_object_get(d, "p")));
        if (json_is_number(recall))
            (void)fprintf(to, "  recall %.1f %%", 100 * json_number_value(recall));
        if (json_is_object(questions))
            (void)fprintf(to, "  accuracy %.1f %%",
                          100 * json_number_value(json_object_get(questions, "accuracy")));
        if (json_is_number(json_object_get(p, "agreement")))
            (void)fprintf(to, "  agreement %.1f %%",
                          100 * json_number_value(json_object_get(p, "agreement")));
        if (!select)
            (void)fprintf(to, "  linears %+.1f %%, tokens %+.1f %%",
                          100 * json_number_value(json_object_get(p, "slower")),
                          100 * json_number_value(json_object_get(p, "decode_slower")));
        (void)fprintf(to, "\n");
    }
    json_array_foreach (json_object_get(r, "trends"), i, p) {
        const json_t *d = json_object_get(p, "slope");
        const char   *verdict = json_string_value(json_object_get(p, "verdict"));
        (void)fprintf(to,
                      "  %s, perplexity with k: %s; nll %+.4f a step (p %.2g), higher at %lld of "
                      "%zu steps, at %lld beyond chance\n",
                      json_string_value(json_object_get(p, "select")),
                      strcmp(verdict, "open") == 0 ? "not told apart" : verdict,
                      json_number_value(json_object_get(d, "mean")),
                      json_number_value(json_object_get(d, "p")),
                      (long long)json_integer_value(json_object_get(p, "rises")),
                      json_array_size(json_object_get(p, "steps")),
                      (long long)json_integer_value(json_object_get(p, "proven")));
    }
    json_array_foreach (json_object_get(r, "quarter"), i, p) {
        const json_t *d = json_object_get(p, "delta");
        (void)fprintf(to, "  dynamic at %lld less %s at %lld: nll %+.4f (p %.2g)\n",
                      (long long)json_integer_value(json_object_get(p, "k")),
                      json_string_value(json_object_get(p, "against")),
                      (long long)json_integer_value(json_object_get(p, "against_k")),
                      json_number_value(json_object_get(d, "mean")),
                      json_number_value(json_object_get(d, "p")));
    }
}
