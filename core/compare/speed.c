/* Speed of the arms: one sequence, rounds A B C A B C so that a slow second of the machine hits
 * all alike, one round to warm up, medians. */
#include "base/mem.h"
#include "base/rng.h"
#include "compare/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tsr_status measure(struct compare *c, struct compare_arm *a, const uint32_t *prompt,
                          uint32_t *out, int64_t round, struct tsr_err *err)
{
    struct tsr_engine_generate_timing t = { 0 };
    struct tsr_engine_request         r = { .prompt = prompt,
                                            .n_prompt = (uint64_t)c->speed.prompt,
                                            .max_tokens = (uint64_t)c->speed.generate + 1,
                                            .ignore_eos = true,
                                            .sampling = { .top_p = 1, .repetition_penalty = 1 },
                                            .tokens = out };
    TSR_TRY(tsr_engine_generate(a->engine, &r, 1, &t, err));
    if (round < 0)
        return TSR_OK;
    /* a zero interval gives no figure; the median sorts zeros last */
    a->prefill[round] = t.prefill_s > 0 ? (double)t.prefill_tokens / t.prefill_s : 0;
    a->decode[round] = t.decode_s > 0 ? (double)t.decode_tokens / t.decode_s : 0;
    return TSR_OK;
}

static tsr_status start(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    struct tsr_engine_options eo = { .on = c->job->on,
                                     .act = (uint32_t)c->speed.act,
                                     .kv_dtype = a->kv,
                                     .kv_layers = a->kv_layers,
                                     .slots = 1,
                                     .context =
                                         (uint64_t)(c->speed.prompt + c->speed.generate) + 1 };
    uint64_t                  n = (uint64_t)c->speed.repeats;
    a->prefill = tsr_new(n, sizeof *a->prefill);
    a->decode = tsr_new(n, sizeof *a->decode);
    if (!a->prefill || !a->decode)
        return tsr_fail_nomem(err, n * sizeof *a->decode, "timings");
    TSR_TRY(compare_arm_ready(c, a, err)); /* not if an earlier run has evaluated it */
    TSR_TRY(tsr_engine_create(&a->engine, c->job->registry, compare_arm_model(c, a), a->overlay,
                              &eo, err));
    tsr_engine_acts(a->engine, a->ran);
    if (!compare_put_resident(a->json, a, a->engine))
        return tsr_fail_nomem(err, 64, "the results");
    (void)snprintf(c->device, sizeof c->device, "%s", tsr_engine_device(a->engine));
    return TSR_OK;
}

static tsr_status rounds(struct compare *c, const uint32_t *prompt, uint32_t *out,
                         struct tsr_err *err)
{
    for (int64_t round = -1; round < c->speed.repeats; round++)
        for (uint64_t i = 0; i < c->n; i++) {
            struct compare_arm *a = &c->arms[i];
            struct tsr_errbuf   e = TSR_ERRBUF(e);
            if (a->status != TSR_OK)
                continue;
            if (tsr_plugin_cancelled())
                return tsr_fail(err, TSR_E_CANCELLED, "stopped");
            tsr_status st = round == -1 ? start(c, a, &e.err) : TSR_OK;
            if (st == TSR_OK)
                st = measure(c, a, prompt, out, round, &e.err);
            if (st != TSR_OK)
                TSR_TRY(compare_arm_failed(a, st, e.text, err));
        }
    for (uint64_t i = 0; i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        if (a->status != TSR_OK)
            continue;
        a->has_speed = true;
    }
    return TSR_OK;
}

/* ---- medians and ratios ------------------------------------------------------------------ */

/* Room for a bootstrap of `n` repeats. */
struct room {
    double  *v, *picked, *sorted;
    uint64_t n;
};

static double median_of(struct room *r, const double *v)
{
    memcpy(r->v, v, r->n * sizeof *v);
    return tsr_eval_median(r->v, r->n);
}

/* Rates of the same round over each other: what slows a round slows both. */
static void ratio_of(const struct compare *c, struct room *r, const double *arm,
                     const double *original, struct compare_ratio *out)
{
    *out = (struct compare_ratio){ NAN, NAN, NAN };
    for (uint64_t i = 0; i < r->n; i++) {
        r->v[i] = arm[i] / original[i];
        if (!isfinite(r->v[i]))
            return; /* a clock that saw no time pass */
    }
    tsr_eval_bootstrap_median(r->v, r->n, TSR_COMPARE_DRAWS, c->job->seed, c->keys.alpha, r->sorted,
                              r->picked, &out->low, &out->high);
    out->median = tsr_eval_median(r->v, r->n);
}

static bool open_room(struct room *r, uint64_t n)
{
    *r = (struct room){ tsr_new(n, sizeof(double)), tsr_new(n, sizeof(double)),
                        tsr_new(TSR_COMPARE_DRAWS, sizeof(double)), n };
    return r->v && r->picked && r->sorted;
}

/* ok is handed on as a status. */
static tsr_status close_room(struct room *r, bool ok, struct tsr_err *err)
{
    free(r->v);
    free(r->picked);
    free(r->sorted);
    return ok ? TSR_OK : tsr_fail_nomem(err, (uint64_t)TSR_COMPARE_DRAWS * 8, "ratios of speed");
}

static tsr_status summarize(struct compare *c, struct tsr_err *err)
{
    struct room r;
    bool        ok = open_room(&r, (uint64_t)c->speed.repeats);
    for (uint64_t i = 0; ok && i < c->n; i++) {
        struct compare_arm *a = &c->arms[i], *o = &c->arms[0];
        if (!a->has_speed)
            continue;
        a->prefill_median = median_of(&r, a->prefill);
        a->decode_median = median_of(&r, a->decode);
        a->prefill_ratio = a->decode_ratio = (struct compare_ratio){ NAN, NAN, NAN };
        if (i && o->has_speed) {
            ratio_of(c, &r, a->prefill, o->prefill, &a->prefill_ratio);
            ratio_of(c, &r, a->decode, o->decode, &a->decode_ratio);
        }
    }
    return close_room(&r, ok, err);
}

tsr_status compare_speed_ratios(const struct compare *c, const struct compare_arm *a,
                                const struct compare_arm *b, struct compare_ratio *prefill,
                                struct compare_ratio *decode, struct tsr_err *err)
{
    struct room r;
    bool        ok = open_room(&r, (uint64_t)c->speed.repeats);
    if (ok) {
        ratio_of(c, &r, a->prefill, b->prefill, prefill);
        ratio_of(c, &r, a->decode, b->decode, decode);
    }
    return close_room(&r, ok, err);
}

const char *compare_speed_word(const struct compare_ratio *r)
{
    if (r->low > 1)
        return "faster";
    if (r->high < 1)
        return "slower";
    return r->low <= 1 && r->high >= 1 ? "alike" : NULL;
}

tsr_status compare_speed(struct compare *c, struct tsr_err *err)
{
    uint64_t need = (uint64_t)(c->speed.prompt + c->speed.generate) + 1;
    TSR_TRY(tsr_model_context(c->job->model, need, err));
    uint32_t  *prompt = tsr_new((uint64_t)c->speed.prompt, sizeof *prompt);
    uint32_t  *out = tsr_new((uint64_t)c->speed.generate + 1, sizeof *out);
    tsr_status st = prompt && out ? TSR_OK : tsr_fail_nomem(err, need * 4, "a prompt");
    for (int64_t i = 0; st == TSR_OK && i < c->speed.prompt; i++)
        prompt[i] =
            (uint32_t)(tsr_uniform(c->job->seed, 1, (uint64_t)i) * (double)c->job->model->hp.vocab);
    if (st == TSR_OK)
        st = rounds(c, prompt, out, err);
    if (st == TSR_OK)
        st = summarize(c, err);
    for (uint64_t i = 0; i < c->n; i++) {
        tsr_engine_destroy(c->arms[i].engine);
        c->arms[i].engine = NULL;
    }
    free(prompt);
    free(out);
    return st;
}
