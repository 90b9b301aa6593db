/* Speed of the arms: one sequence, rounds A B C A B C so that a slow second of the machine hits
 * all alike, one round to warm up, medians. */
#include "base/mem.h"
#include "base/rng.h"
#include "pipeline/compare.h"

#include <stdlib.h>

static tsr_status measure(struct compare *c, struct compare_arm *a, const uint32_t *prompt,
                          uint32_t *out, int64_t round, struct tsr_err *err)
{
    struct tsr_generate_timing t = { 0 };
    struct tsr_request         r = { .prompt = prompt,
                                     .n_prompt = (uint64_t)c->speed.prompt,
                                     .max_tokens = (uint64_t)c->speed.generate + 1,
                                     .ignore_eos = true,
                                     .sampling = { .top_p = 1, .repetition_penalty = 1 },
                                     .tokens = out };
    TSR_TRY(tsr_generate(a->engine, &r, 1, &t, err));
    if (round < 0)
        return TSR_OK;
    /* a clock that saw no time pass gives no figure; the median leaves zeros last */
    a->prefill[round] = t.prefill_s > 0 ? (double)t.prefill_tokens / t.prefill_s : 0;
    a->decode[round] = t.decode_s > 0 ? (double)t.decode_tokens / t.decode_s : 0;
    return TSR_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, uint64_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static tsr_status start(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    struct tsr_engine_options eo = { .act = (uint32_t)c->speed.act,
                                     .kv_dtype = TSR_F32,
                                     .slots = 1,
                                     .context =
                                         (uint64_t)(c->speed.prompt + c->speed.generate) + 1 };
    uint64_t                  n = (uint64_t)c->speed.repeats;
    a->prefill = tsr_new(n, sizeof *a->prefill);
    a->decode = tsr_new(n, sizeof *a->decode);
    if (!a->prefill || !a->decode)
        return tsr_fail_nomem(err, n * sizeof *a->decode, "timings");
    TSR_TRY(tsr_engine_create(&a->engine, c->job->registry, c->job->model, a->overlay, &eo, err));
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
            if (tsr_cancelled())
                return tsr_fail(err, TSR_E_CANCELLED, "stopped");
            tsr_status st = round == -1 ? start(c, a, &e.err) : TSR_OK;
            if (st == TSR_OK)
                st = measure(c, a, prompt, out, round, &e.err);
            if (st != TSR_OK)
                TSR_TRY(compare_arm_failed(a, st, e.text, err));
        }
    for (uint64_t i = 0; i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        tsr_engine_destroy(a->engine);
        a->engine = NULL;
        if (a->status != TSR_OK)
            continue;
        a->prefill_median = median(a->prefill, (uint64_t)c->speed.repeats);
        a->decode_median = median(a->decode, (uint64_t)c->speed.repeats);
        a->has_speed = true;
    }
    return TSR_OK;
}

tsr_status compare_speed(struct compare *c, struct tsr_err *err)
{
    uint64_t need = (uint64_t)(c->speed.prompt + c->speed.generate) + 1;
    if (need > c->job->model->hp.max_positions)
        return tsr_fail(err, TSR_E_INPUT,
                        "speed: prompt %lld and generate %lld do not fit the "
                        "model's %llu positions",
                        (long long)c->speed.prompt, (long long)c->speed.generate,
                        (unsigned long long)c->job->model->hp.max_positions);
    uint32_t  *prompt = tsr_new((uint64_t)c->speed.prompt, sizeof *prompt);
    uint32_t  *out = tsr_new((uint64_t)c->speed.generate + 1, sizeof *out);
    tsr_status st = prompt && out ? TSR_OK : tsr_fail_nomem(err, need * 4, "a prompt");
    for (int64_t i = 0; st == TSR_OK && i < c->speed.prompt; i++)
        prompt[i] =
            (uint32_t)(tsr_uniform(c->job->seed, 1, (uint64_t)i) * (double)c->job->model->hp.vocab);
    if (st == TSR_OK)
        st = rounds(c, prompt, out, err);
    free(prompt);
    free(out);
    return st;
}
