/* bench dec of a model: the cost of compensation in whole decode steps, including attention, norms and
 * head. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "compensate/compensation.h"
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEARN 32u /* tokens of the prompt whose inputs the selection's borders are taken from */

struct token {
    struct bench            *b;
    const struct tsr_model  *m;
    struct tsr_compensation  made; /* residuals of random codes for every linear */
    struct tsr_engine       *e;
    struct tsr_engine_token *prompt;
    float                   *logits;
    double                  *seconds; /* of the steps of a round */
    double                   bytes;   /* of weights that a step reads */
};

static void token_free(struct token *x)
{
    tsr_engine_destroy(x->e);
    for (uint64_t l = 0; x->made.site && l < x->made.layers; l++)
        for (uint64_t s = 0; s < x->made.sites; s++)
            free((void *)(uintptr_t)x->made.site[l][s].top);
    if (x->made.lin) { /* the first linear has the memory of all */
        free(x->made.lin[0][TSR_MODEL_Q].codes);
        free(x->made.lin[0][TSR_MODEL_Q].scales);
    }
    free(x->made.lin);
    free(x->made.site);
    free(x->prompt);
    free(x->logits);
    free(x->seconds);
}

/* ---- residuals ------------------------------------------------------------------------------ */

static tsr_status shape_site(struct token *x, uint64_t layer, enum tsr_linear_id id,
                             struct tsr_err *err)
{
    struct tsr_compensate_site_profile *p = &x->made.site[layer][tsr_model_linear_site(id)];
    if (p->top)
        return TSR_OK;
    p->cols = x->m->layers[layer].lin[id].w.cols;
    p->top = tsr_new(p->cols, sizeof *p->top); /* zeros until learn() */
    return p->top ? TSR_OK : tsr_fail_nomem(err, p->cols * 4, "ranks of inputs");
}

/* Shapes of all residuals; the bytes of their codes, and the most outputs. */
static tsr_status shape(struct token *x, uint64_t *bytes, uint64_t *outputs, struct tsr_err *err)
{
    uint64_t one;
    *bytes = *outputs = 0;
    for (uint64_t l = 0; l < x->made.layers; l++)
        for (uint64_t i = 0; i < x->made.linears; i++) {
            const struct tsr_matrix        *w = &x->m->layers[l].lin[i].w;
            struct tsr_compensate_residual *r = &x->made.lin[l][i];
            if (!w->rows)
                continue;
            *r = (struct tsr_compensate_residual){ .bits = x->made.bits,
                                                   .inputs = w->cols,
                                                   .outputs = w->rows };
            r->stride = tsr_compensate_residual_stride(r->bits, r->outputs);
            if (!tsr_mul(r->inputs, r->stride, &one) || !tsr_add(*bytes, one, bytes))
                return tsr_fail(err, TSR_E_INPUT, "%s: residuals are too large", w->name);
            *outputs = r->outputs > *outputs ? r->outputs : *outputs;
            TSR_TRY(shape_site(x, l, (enum tsr_linear_id)i, err));
        }
    return TSR_OK;
}

/* As in a file: rows of all linears of a site are contiguous. Returns the start of the next site. */
static unsigned char *place_site(struct token *x, uint64_t layer, enum tsr_site site,
                                 unsigned char *at, uint16_t *scales)
{
    uint64_t                        row, done = 0;
    struct tsr_compensation_linears of = tsr_compensation_linears(x->m, layer, site);
    (void)tsr_compensation_row(x->m, layer, site, x->made.bits, &row);
    for (uint32_t i = 0; i < of.n; i++) {
        struct tsr_compensate_residual *r = &x->made.lin[layer][of.id[i]];
        if (!r->inputs)
            continue;
        r->codes = at + done;
        r->scales = scales;
        done += r->stride;
        r->stride = row;
    }
    return at + tsr_model_layer_site_cols(x->m, layer, site) * done;
}

static tsr_status make_residuals(struct token *x, struct tsr_err *err)
{
    uint64_t bytes, outputs;
    x->made.bits = (uint32_t)x->b->o->residual;
    TSR_TRY(tsr_compensation_new_layers(&x->made, x->m, err));
    TSR_TRY(shape(x, &bytes, &outputs, err));
    struct tsr_compensate_residual *all = &x->made.lin[0][TSR_MODEL_Q];
    all->codes = bench_large_pages(bytes);
    all->scales = x->made.bits == 16 ? NULL : tsr_new(outputs, sizeof *all->scales);
    if (!all->codes || (x->made.bits != 16 && !all->scales))
        return tsr_fail_nomem(err, bytes, "residuals");
    bench_fill_residuals(all->codes, bytes, all->scales, outputs, x->made.bits);
    unsigned char *at = all->codes;
    uint16_t      *scales = all->scales;
    for (uint64_t l = 0; l < x->made.layers; l++)
        for (uint64_t s = 0; s < x->made.sites; s++)
            at = place_site(x, l, (enum tsr_site)s, at, scales);
    x->made.bytes = bytes;
    return TSR_OK;
}

/* ---- the engine ------------------------------------------------------------------------------- */

static tsr_status learn_site(void *ctx, uint64_t layer, enum tsr_site site, const float *rows,
                             uint64_t n, uint64_t cols, struct tsr_err *err)
{
    struct token                      *x = ctx;
    struct tsr_compensate_profile_sums sums = { 0 };
    float                             *top = (float *)(uintptr_t)x->made.site[layer][site].top;
    if (!top)
        return TSR_OK;
    tsr_status st = tsr_compensate_profile_create(&sums, cols, err);
    if (st == TSR_OK)
        st = tsr_compensate_profile_add(&sums, tsr_plugin_registry_pool(x->b->cli->registry), rows,
                                        n, NULL, err);
    if (st == TSR_OK)
        memcpy(top, sums.top, cols * sizeof *top);
    tsr_compensate_profile_free(&sums);
    return st;
}

/* The first tokens of the prompt into an empty slot. */
static tsr_status read_prompt(struct token *x, uint64_t n, struct tsr_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        x->prompt[i] = (struct tsr_engine_token){ .id = (uint32_t)((i * 7919 + 3) % x->m->hp.vocab),
                                                  .logits = i + 1 == n };
    tsr_engine_reset(x->e, 0);
    return tsr_engine_forward(x->e, x->prompt, n, x->logits, err);
}

/* Borders from inputs of the model itself. */
static tsr_status learn(struct token *x, struct tsr_err *err)
{
    uint64_t n = (uint64_t)x->b->o->prompt;
    tsr_engine_set_tap(x->e, learn_site, x);
    tsr_status st = read_prompt(x, n < LEARN ? n : LEARN, err);
    tsr_engine_set_tap(x->e, NULL, NULL);
    return st;
}

static tsr_status open_token(struct token *x, const struct tsr_model_overlay *o, uint32_t most,
                             struct tsr_err *err)
{
    const struct bench_options  *opt = x->b->o;
    uint64_t                     steps = 2 * (uint64_t)opt->tokens + 1, weights, cache;
    struct tsr_engine_compensate use = { .from = &x->made, .each = most };
    struct tsr_engine_options    eo = { .on = { .backend = opt->backend,
                                                .numerics = (uint32_t)opt->numerics },
                                        .act = bench_act(opt),
                                        .kv_dtype = (uint32_t)opt->kv,
                                        .slots = 1,
                                        .context = (uint64_t)opt->prompt + steps,
                                        .compensate = &use };
    TSR_TRY(make_residuals(x, err));
    x->prompt = tsr_new((uint64_t)opt->prompt, sizeof *x->prompt);
    x->logits = tsr_new(x->m->hp.vocab, sizeof *x->logits);
    x->seconds = tsr_new(steps, sizeof *x->seconds);
    if (!x->prompt || !x->logits || !x->seconds)
        return tsr_fail_nomem(err, x->m->hp.vocab * 4, "logits");
    TSR_TRY(tsr_engine_create(&x->e, x->b->cli->registry, x->m, o, &eo, err));
    tsr_engine_memory(x->e, &weights, &cache);
    x->bytes = bench_step_bytes(x->m, weights);
    return learn(x, err);
}

/* ---- measuring ---------------------------------------------------------------------------------- */

static tsr_status step(struct token *x, uint32_t k, double *seconds, struct tsr_err *err)
{
    uint32_t best = 0;
    TSR_TRY(tsr_engine_compensate_k(x->e, NULL, k, err));
    for (uint64_t v = 1; v < x->m->hp.vocab; v++)
        best = x->logits[v] > x->logits[best] ? (uint32_t)v : best;
    struct tsr_engine_token next = { .id = best, .logits = true, .decode = true };
    double                  t0 = tsr_now_s();
    TSR_TRY(tsr_engine_forward(x->e, &next, 1, x->logits, err));
    *seconds = tsr_now_s() - t0;
    return tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped") : TSR_OK;
}

struct one_round {
    double step, slower; /* seconds with compensation; percent */
};

/* Steps without and with compensation in turn, so that each step with it is between two without; medians
 * over them. */
static tsr_status steps(struct token *x, uint32_t k, struct one_round *r, struct tsr_err *err)
{
    uint64_t n = (uint64_t)x->b->o->tokens;
    TSR_TRY(read_prompt(x, (uint64_t)x->b->o->prompt, err));
    for (uint64_t i = 0; i <= 2 * n; i++)
        TSR_TRY(step(x, i % 2 ? k : 0, &x->seconds[i], err));
    double *with = tsr_new(2 * n, sizeof *with), *slower = with + n;
    if (!with)
        return tsr_fail_nomem(err, 2 * n * sizeof *with, "steps");
    for (uint64_t i = 0; i < n; i++) {
        double bare = 0.5 * (x->seconds[2 * i] + x->seconds[2 * i + 2]);
        with[i] = x->seconds[2 * i + 1];
        slower[i] = 100 * (with[i] / bare - 1);
    }
    r->step = bench_median(with, n);
    r->slower = bench_median(slower, n);
    free(with);
    return TSR_OK;
}

/* Bytes of residuals that a step reads. */
static double extra_bytes(const struct token *x, uint32_t k)
{
    double sum = 0;
    for (uint64_t l = 0; l < x->made.layers; l++)
        for (uint64_t i = 0; i < x->made.linears; i++) {
            const struct tsr_compensate_residual *r = &x->made.lin[l][i];
            sum += (double)tsr_compensate_select_count(k, r->inputs) *
                       (double)tsr_compensate_residual_stride(r->bits, r->outputs) +
                   2.0 * (double)r->outputs;
        }
    return sum;
}

static void name_row(const struct token *x, struct bench_row *r, const char *what, uint32_t k,
                     const char *unit)
{
    *r = (struct bench_row){ .rows = x->m->hp.hidden, .cols = x->m->hp.layers, .m = 1 };
    (void)snprintf(r->what, sizeof r->what, "%s-%u", what, k);
    (void)snprintf(r->format, sizeof r->format, "%s",
                   *x->b->o->quantizer ? x->b->o->quantizer : BENCH_DEC_QUANTIZER);
    (void)snprintf(r->act, sizeof r->act, "%s", tsr_plugin_act_name(bench_act(x->b->o)));
    (void)snprintf(r->unit, sizeof r->unit, "%s", unit);
}

/* Rounds of probe, steps, probe. */
static tsr_status measure(struct token *x, uint32_t k, struct tsr_err *err)
{
    uint64_t         n = (uint64_t)x->b->o->repeats;
    double           extra = extra_bytes(x, k), best = 0, least = INFINITY;
    double          *v = tsr_new(5 * n, sizeof *v);
    struct bench_row row;
    tsr_status       st = TSR_OK;
    if (!v)
        return tsr_fail_nomem(err, 5 * n * sizeof *v, "rounds");
    double *rate = v, *share = v + n, *probe = v + 2 * n, *slower = v + 3 * n, *busy = v + 4 * n;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        struct one_round r = { 0 };
        double           before = 0, after = 0, cpu, t0;
        st = bench_measure(x->b, BENCH_READ, &before, err);
        cpu = bench_cpu_s(), t0 = tsr_now_s();
        if (st == TSR_OK)
            st = steps(x, k, &r, err);
        busy[i] = (bench_cpu_s() - cpu) / ((tsr_now_s() - t0) * x->b->threads);
        if (st == TSR_OK)
            st = bench_measure(x->b, BENCH_READ, &after, err);
        rate[i] = 1 / r.step;
        probe[i] = 0.5 * (before + after) / (x->bytes + extra);
        share[i] = probe[i] > 0 ? rate[i] / probe[i] : 0;
        slower[i] = r.slower;
        best = fmax(best, rate[i]);
        least = fmin(least, slower[i]);
    }
    if (st == TSR_OK) {
        name_row(x, &row, "decode", k, "tokens/s");
        row.best = best;
        row.value = bench_median(rate, n);
        row.share = bench_median(share, n);
        row.probe = bench_median(probe, n);
        row.busy = bench_median(busy, n);
        row.milliseconds = 1e3 / row.value;
        st = bench_add(x->b, &row, err);
    }
    if (st == TSR_OK) { /* for comparison, the bytes alone */
        double ms = row.milliseconds, busiest = row.busy;
        name_row(x, &row, "slower", k, "%");
        row.best = least;
        row.value = bench_median(slower, n);
        row.probe = 100 * extra / x->bytes;
        row.share = row.value / row.probe;
        row.busy = busiest;
        row.milliseconds = ms;
        st = bench_add(x->b, &row, err);
    }
    free(v);
    return st;
}

tsr_status bench_dec_model(struct bench *b, const char *path, const uint32_t *k, uint32_t n,
                           struct tsr_err *err)
{
    struct tsr_model         *m = NULL;
    struct tsr_model_overlay *o = NULL;
    struct token              x = { .b = b };
    uint32_t                  most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = k[i] > most ? k[i] : most;
    TSR_TRY(bench_prepare_read(b, err));
    tsr_status st =
        bench_model_open(b, path, *b->o->quantizer ? b->o->quantizer : BENCH_DEC_QUANTIZER, &m, &o,
                         err);
    x.m = m;
    if (st == TSR_OK && m->hp.experts)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: its layers have experts, of which a step reads some; bench dec counts "
                      "all weights as read",
                      m->path);
    if (st == TSR_OK)
        st = tsr_model_plain_attention(m, "bench dec does not know", err);
    if (st == TSR_OK)
        st = open_token(&x, o, most, err);
    for (uint32_t i = 0; i < n && st == TSR_OK; i++)
        st = measure(&x, k[i], err);
    token_free(&x);
    tsr_model_overlay_destroy(o);
    tsr_model_destroy(m);
    return st;
}
