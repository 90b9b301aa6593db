/* bench batch: sequences of several lengths that decode together, compared with as many tokens of one prompt: the same
 * products of matrices, without the rest of a step. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/f16.h"
#include "base/mem.h"
#include "engine/serve.h"

#include <math.h>
#include <stdlib.h>

#define SHORTEST 8u /* tokens of a prompt; the longest has --prompt */

struct batch {
    struct bench            *b;
    struct tsr_engine       *e;
    struct tsr_engine_token *tokens; /* [n] */
    float                   *logits; /* [n, vocab] */
    uint32_t                *prompt; /* [--prompt] */
    uint64_t                 n, vocab;
};

/* What a round gave: tokens a second together and of one prompt, and the part of the cores that it had. */
struct taken {
    double together, alone, busy;
};

/* n tokens of one prompt, each with its logits. */
static tsr_status one_prompt(struct batch *x, double *rate, struct tsr_err *err)
{
    for (uint64_t i = 0; i < x->n; i++)
        x->tokens[i] = (struct tsr_engine_token){ .id = (uint32_t)((i * 7919 + 3) % x->vocab),
                                                  .logits = true };
    tsr_engine_reset(x->e, 0);
    double t = tsr_now_s();
    TSR_TRY(tsr_engine_forward(x->e, x->tokens, x->n, x->logits, err));
    *rate = (double)x->n / (tsr_now_s() - t);
    tsr_engine_reset(x->e, 0);
    return TSR_OK;
}

static tsr_status submit(struct batch *x, struct tsr_server *s, uint64_t i, struct tsr_err *err)
{
    uint64_t most = (uint64_t)x->b->o->prompt, least = most < SHORTEST ? most : SHORTEST;
    struct tsr_engine_serve_request q = {
        .id = i,
        .prompt = x->prompt,
        .n_prompt = least + i * 7919 % (most - least + 1),
        .max_tokens = 1 + (uint64_t)x->b->o->tokens,
        .ignore_eos = true,
        .record = i,
        .sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
    };
    for (uint64_t k = 0; k < q.n_prompt; k++)
        x->prompt[k] = (uint32_t)((i * 104729 + k * 7919 + 3) % x->vocab);
    return tsr_engine_server_submit(s, &q, err);
}

/* Steps in which all sequences decode count; those with prompts, and the last ones of fewer sequences, do not. */
static tsr_status steps(struct batch *x, struct tsr_server *s, struct taken *to,
                        struct tsr_err *err)
{
    const struct tsr_engine_generate_timing *time = tsr_engine_server_timing(s);
    double                                   seconds = 0, cpu = 0;
    uint64_t                                 tokens = 0;
    while (tsr_engine_server_busy(s)) {
        uint64_t before = time->decode_tokens;
        double   t = tsr_now_s(), c = bench_cpu_s();
        TSR_TRY(tsr_engine_server_step(s, err));
        if (time->decode_tokens - before == x->n) {
            seconds += tsr_now_s() - t;
            cpu += bench_cpu_s() - c;
            tokens += x->n;
        }
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
    }
    if (!tokens)
        return tsr_fail(err, TSR_E_INPUT,
                        "--tokens: %lld steps end before all %llu sequences decode; take more",
                        (long long)x->b->o->tokens, (unsigned long long)x->n);
    to->together = (double)tokens / seconds;
    to->busy = cpu / (seconds * x->b->threads);
    return TSR_OK;
}

static tsr_status together(struct batch *x, struct taken *to, struct tsr_err *err)
{
    struct tsr_engine_serve_events none = { 0 };
    struct tsr_engine_pass         p;
    struct tsr_server             *s;
    tsr_engine_pass_engine(&p, x->e);
    TSR_TRY(tsr_engine_server_create(&s, &p, &none, err));
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < x->n && st == TSR_OK; i++)
        st = submit(x, s, i, err);
    if (st == TSR_OK)
        st = steps(x, s, to, err);
    tsr_engine_server_destroy(s);
    return st;
}

static tsr_status rounds(struct batch *x, const char *format, const char *act, struct tsr_err *err)
{
    uint64_t max = (uint64_t)x->b->o->repeats;
    double  *v = tsr_new(4 * max, sizeof *v), warm;
    if (!v)
        return tsr_fail_nomem(err, 4 * max * sizeof *v, "rounds");
    double          *rate = v, *peak = v + max, *share = v + 2 * max, *busy = v + 3 * max;
    struct bench_row row = { .rows = x->b->o->prompt > 0 ? (uint64_t)x->b->o->prompt : 0,
                             .cols = (uint64_t)x->b->o->tokens,
                             .m = x->n };
    tsr_status       st = one_prompt(x, &warm, err);
    for (uint64_t i = 0; i < max && st == TSR_OK; i++) {
        struct taken t = { 0 };
        double       after = 0;
        if ((st = one_prompt(x, &t.alone, err)) != TSR_OK ||
            (st = together(x, &t, err)) != TSR_OK || (st = one_prompt(x, &after, err)) != TSR_OK)
            break;
        rate[i] = t.together;
        peak[i] = 0.5 * (t.alone + after);
        share[i] = rate[i] / peak[i];
        busy[i] = t.busy;
        row.best = fmax(row.best, rate[i]);
    }
    if (st == TSR_OK) {
        (void)snprintf(row.what, sizeof row.what, "batch");
        (void)snprintf(row.format, sizeof row.format, "%s", format);
        (void)snprintf(row.act, sizeof row.act, "%s", act);
        (void)snprintf(row.unit, sizeof row.unit, "tokens/s");
        row.each = share;
        row.n_each = max;
        row.value = bench_median(rate, max);
        row.share = bench_median(share, max);
        row.probe = bench_median(peak, max);
        row.busy = bench_median(busy, max);
        row.milliseconds = 1e3 * (double)x->n / row.value;
        st = bench_add(x->b, &row, err);
    }
    free(v);
    return st;
}

static tsr_status run_model(struct bench *b, const struct tsr_model *m,
                            const struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct batch              x = { .b = b, .n = (uint64_t)b->o->slots, .vocab = m->hp.vocab };
    uint32_t                  act = bench_act(b->o);
    uint64_t                  ran[3], longest = (uint64_t)(b->o->prompt + b->o->tokens + 1);
    struct tsr_engine_options opt = { .on = { .backend = b->o->backend,
                                              .numerics = (uint32_t)b->o->numerics },
                                      .act = act,
                                      .kv_dtype = (uint32_t)b->o->kv,
                                      .slots = (uint32_t)b->o->slots,
                                      .context = longest > x.n ? longest : x.n };
    TSR_TRY(tsr_engine_create(&x.e, b->cli->registry, m, o, &opt, err));
    x.tokens = tsr_new(x.n, sizeof *x.tokens);
    x.logits = tsr_new_rows(x.n, x.vocab, sizeof *x.logits);
    x.prompt = tsr_new((uint64_t)b->o->prompt, sizeof *x.prompt);
    tsr_status st = x.tokens && x.logits && x.prompt
                        ? TSR_OK
                        : tsr_fail_nomem(err, x.n * x.vocab * sizeof *x.logits, "logits");
    tsr_engine_acts(x.e, ran);
    if (st == TSR_OK)
        st = rounds(&x,
                    *b->o->quantizer ? b->o->quantizer
                    : m->packed_as   ? m->packed_as
                                     : tsr_dtype_name(m->embed.dtype),
                    tsr_plugin_act_name(ran[act] ? act : TSR_ACT_F32), err);
    free(x.tokens);
    free(x.logits);
    free(x.prompt);
    tsr_engine_destroy(x.e);
    return st;
}

tsr_status bench_batch(struct bench *b, const char *path, struct tsr_err *err)
{
    struct tsr_model         *m = NULL;
    struct tsr_model_overlay *o = NULL;
    tsr_status                st = bench_model_open(b, path, b->o->quantizer, &m, &o, err);
    if (st == TSR_OK)
        st = run_model(b, m, o, err);
    tsr_model_overlay_destroy(o);
    tsr_model_destroy(m);
    return st;
}
