/* bench e2e: a prompt and decode steps of a model, compared with the probes in tokens a second. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/f16.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/random_model.h"
#include "engine/engine.h"
#include "plugin/spec.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Widths of well-known families. */
static const struct {
    const char                        *name;
    struct tsr_checkpoint_random_shape s;
} shapes[] = {
    { "tiny", { .vocab = 512, .hidden = 256, .layers = 4, .ffn = 704, .heads = 8, .kv_heads = 4 } },
    { "1b",
      { .vocab = 32000, .hidden = 2048, .layers = 22, .ffn = 5632, .heads = 32, .kv_heads = 4 } },
    { "8b",
      { .vocab = 128256, .hidden = 4096, .layers = 32, .ffn = 14336, .heads = 32, .kv_heads = 8 } },
};

static tsr_status pick_shape(const struct bench_options *o, struct tsr_checkpoint_random_shape *s,
                             struct tsr_err *err)
{
    const char *name = *o->shape ? o->shape : "tiny";
    size_t      i = 0, n = sizeof shapes / sizeof *shapes;
    while (i < n && strcmp(shapes[i].name, name) != 0)
        i++;
    if (i == n)
        return tsr_fail(err, TSR_E_INPUT, "--shape: '%s' is not one of tiny, 1b, 8b", name);
    *s = shapes[i].s;
    s->dtype = TSR_BF16;
    s->seed = (uint64_t)o->seed;
    s->max_positions = (uint64_t)(o->prompt + 2 * o->tokens + 1); /* dec: steps with and without */
    if (s->max_positions < (uint64_t)o->slots) /* batch: as many tokens of one prompt */
        s->max_positions = (uint64_t)o->slots;
    const struct {
        int64_t   given;
        uint64_t *into;
    } own[] = { { o->hidden, &s->hidden }, { o->layers, &s->layers },     { o->ffn, &s->ffn },
                { o->heads, &s->heads },   { o->kv_heads, &s->kv_heads }, { o->vocab, &s->vocab } };
    for (size_t k = 0; k < sizeof own / sizeof *own; k++)
        if (own[k].given)
            *own[k].into = (uint64_t)own[k].given;
    return TSR_OK;
}

/* The dtype of --formats, if it is one of a checkpoint. */
static tsr_status pick_dtype(const struct bench_options *o, struct tsr_checkpoint_random_shape *s,
                             struct tsr_err *err)
{
    if (!*o->formats) /* the usual type of a checkpoint */
        return TSR_OK;
    if (strcmp(o->formats, "f32") == 0)
        s->dtype = TSR_F32;
    else if (strcmp(o->formats, "f16") == 0)
        s->dtype = TSR_F16;
    else if (strcmp(o->formats, "bf16") != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "--formats: a random model is f32, f16 or bf16, not '%s'; "
                        "--quantizer packs it",
                        o->formats);
    return TSR_OK;
}

/* Loads MODEL, or writes a random one, loads it and removes it unless --checkpoint keeps it. */
static tsr_status load(struct bench *b, const char *path, struct tsr_model **m, struct tsr_err *err)
{
    const struct bench_options        *o = b->o;
    bool                               keep = *o->checkpoint != '\0';
    struct tsr_checkpoint_random_shape s;
    if (path)
        return tsr_model_load(m, path, false, err);
    TSR_TRY(pick_shape(o, &s, err));
    TSR_TRY(pick_dtype(o, &s, err));
    char *temp = NULL;
    if (!keep)
        TSR_TRY(tsr_temp_folder(&temp, "bench", err));
    const char *folder = keep ? o->checkpoint : temp;
    tsr_status  st =
        tsr_checkpoint_random_model_write(folder, &s, tsr_plugin_registry_pool(b->cli->registry),
                                          err);
    if (st == TSR_OK)
        st = tsr_model_load(m, folder, false, err);
    tsr_temp_folder_remove(temp);
    return st;
}

/* ---- packed weights ------------------------------------------------------------ */

static tsr_status pack_all(struct bench *b, const struct tsr_model *m,
                           const struct tsr_quantizer *q, struct tsr_model_overlay *o,
                           struct tsr_err *err)
{
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t i = 0; i < m->hp.linears; i++) {
            const struct tsr_matrix *w = &m->layers[l].lin[i].w;
            if (w->data)
                TSR_TRY(tsr_quantize_matrix(b->cli->registry, q, w, NULL, &o->lin[l][i], err));
        }
    return TSR_OK;
}

/* The head too if --head names a quantizer. */
static tsr_status pack(struct bench *b, const struct tsr_model *m, const char *text, bool head,
                       struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct tsr_quantizer   q = { 0 };
    struct tsr_plugin_spec spec = { 0 };
    tsr_status st = tsr_plugin_spec_open(&spec, b->cli->registry, TSR_KIND_QUANTIZER, text, err);
    if (st == TSR_OK) {
        q.iface = spec.found.iface;
        q.name = spec.found.component->name;
        st = q.iface->create(b->host, spec.options, &q.self, err);
    }
    if (st == TSR_OK && head)
        st = tsr_quantize_matrix(b->cli->registry, &q, &m->head.w, NULL, &o->head, err);
    else if (st == TSR_OK)
        st = pack_all(b, m, &q, o, err);
    if (q.self)
        q.iface->destroy(q.self);
    tsr_plugin_spec_close(&spec);
    return st;
}

/* ---- measuring ------------------------------------------------------------------- */

struct e2e {
    struct bench            *b;
    const struct tsr_model  *m;
    struct tsr_engine       *e;
    struct tsr_engine_token *tokens;
    float                   *logits;
    uint64_t                 vocab;
    uint32_t                 best;  /* the next token */
    double                   macs;  /* multiply-adds of the linears for one token */
    double                   bytes; /* of weights that a decode step reads */
};

#define LANES 16u /* largest logits that are looked for side by side */

/* The largest of the logits, of equal ones the first. */
static uint32_t best_of(const float *logits, uint64_t n)
{
    float    top[LANES], all;
    uint64_t v = LANES;
    for (uint32_t i = 0; i < LANES; i++)
        top[i] = i < n ? logits[i] : -INFINITY;
    for (; v + LANES <= n; v += LANES)
        for (uint32_t i = 0; i < LANES; i++)
            top[i] = logits[v + i] > top[i] ? logits[v + i] : top[i];
    for (; v < n; v++)
        top[0] = logits[v] > top[0] ? logits[v] : top[0];
    all = top[0];
    for (uint32_t i = 1; i < LANES; i++)
        all = top[i] > all ? top[i] : all;
    for (v = 0; v + 1 < n && !(logits[v] >= all);)
        v++;
    return (uint32_t)v;
}

/* Runs n tokens; the last one's best token comes back alone where the device finds it. */
static tsr_status forward(struct e2e *x, const struct tsr_engine_token *tokens, uint64_t n,
                          struct tsr_err *err)
{
    const float              none = 0;
    struct tsr_candidate     c;
    struct tsr_candidate_row row;
    struct tsr_engine_best   best = { .most = 1, .inverse = &none, .best = &c, .row = &row };
    uint64_t                 most = 0;
    if (tsr_engine_best_rows(x->e, &most) > 0 && n <= most) {
        TSR_TRY(tsr_engine_forward_best(x->e, tokens, n, &best, err));
        x->best = c.id;
        return TSR_OK;
    }
    TSR_TRY(tsr_engine_forward(x->e, tokens, n, x->logits, err));
    x->best = best_of(x->logits, x->vocab);
    return TSR_OK;
}

static tsr_status prefill(struct e2e *x, double *seconds, double *cpu, struct tsr_err *err)
{
    uint64_t n = (uint64_t)x->b->o->prompt;
    for (uint64_t i = 0; i < n; i++)
        x->tokens[i] = (struct tsr_engine_token){ .id = (uint32_t)((i * 7919 + 3) % x->vocab),
                                                  .logits = i + 1 == n };
    tsr_engine_reset(x->e, 0);
    double t = tsr_now_s(), c = bench_cpu_s();
    TSR_TRY(forward(x, x->tokens, n, err));
    *seconds = tsr_now_s() - t;
    *cpu = bench_cpu_s() - c;
    return TSR_OK;
}

static tsr_status decode(struct e2e *x, double *seconds, double *cpu, struct tsr_err *err)
{
    uint64_t n = (uint64_t)x->b->o->tokens;
    double   t = tsr_now_s(), c = bench_cpu_s();
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_engine_token next = { .id = x->best, .logits = true };
        TSR_TRY(forward(x, &next, 1, err));
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
    }
    *seconds = tsr_now_s() - t;
    *cpu = bench_cpu_s() - c;
    return TSR_OK;
}

struct series {
    double *value, *share, *probe, *rate, *busy;
};

static void note(const struct series *s, uint64_t i, double value, double probe, double rate,
                 double busy)
{
    s->value[i] = value;
    s->probe[i] = probe;
    s->share[i] = probe > 0 ? value / probe : 0;
    s->rate[i] = rate;
    s->busy[i] = busy;
}

static tsr_status add(struct e2e *x, const struct series *s, uint64_t n, const char *what,
                      const char *format, const char *act, uint64_t m, struct tsr_err *err)
{
    struct bench_row row = { .rows = x->m->hp.hidden, .cols = x->m->hp.layers, .m = m };
    (void)snprintf(row.what, sizeof row.what, "%s", what);
    (void)snprintf(row.format, sizeof row.format, "%s", format);
    (void)snprintf(row.act, sizeof row.act, "%s", act);
    (void)snprintf(row.unit, sizeof row.unit, "tokens/s");
    for (uint64_t i = 0; i < n; i++)
        row.best = fmax(row.best, s->value[i]);
    row.value = bench_median(s->value, n);
    row.share = bench_median(s->share, n);
    row.each = row.share > 0 ? s->share : s->value;
    row.n_each = n;
    row.probe = bench_median(s->probe, n);
    row.rate = bench_median(s->rate, n);
    row.busy = bench_median(s->busy, n);
    row.milliseconds = 1e3 / row.value;
    return bench_add(x->b, &row, err);
}

static tsr_status rounds(struct e2e *x, const char *format, bool packed, uint32_t act,
                         struct tsr_err *err)
{
    struct bench    *b = x->b;
    uint64_t         max = (uint64_t)b->o->repeats, n = 0;
    enum bench_probe which = b->peaks                       ? BENCH_BF16
                             : act == TSR_ACT_A8            ? BENCH_DOT
                             : !packed && bench_has_bf16(b) ? BENCH_BF16
                                                            : BENCH_FMA;
    double          *v = tsr_new(10 * max, sizeof *v), start = tsr_now_s();
    if (!v)
        return tsr_fail_nomem(err, 10 * max * sizeof *v, "rounds");
    struct series pre = { v, v + max, v + 2 * max, v + 3 * max, v + 4 * max };
    struct series dec = { v + 5 * max, v + 6 * max, v + 7 * max, v + 8 * max, v + 9 * max };
    tsr_status    st = TSR_OK;
    do { /* as many rounds as fit into ten seconds, at least one */
        double pre_s = 0, dec_s = 0, pre_cpu = 0, dec_cpu = 0, ops[2] = { 0 }, read[2] = { 0 },
               clock[2] = { 0 };
        if ((st = bench_measure(b, BENCH_CLOCK, &clock[0], err)) != TSR_OK ||
            (st = bench_measure(b, which, &ops[0], err)) != TSR_OK ||
            (st = prefill(x, &pre_s, &pre_cpu, err)) != TSR_OK ||
            (st = bench_measure(b, which, &ops[1], err)) != TSR_OK ||
            (st = bench_measure(b, BENCH_CLOCK, &clock[1], err)) != TSR_OK ||
            (st = bench_measure(b, BENCH_READ, &read[0], err)) != TSR_OK ||
            (st = decode(x, &dec_s, &dec_cpu, err)) != TSR_OK ||
            (st = bench_measure(b, BENCH_READ, &read[1], err)) != TSR_OK)
            break;
        double top = fmax(ops[0], ops[1]);
        note(&pre, n, (double)b->o->prompt / pre_s, top / x->macs,
             bench_instruction_rate(b, which, top, fmax(clock[0], clock[1])),
             pre_cpu / (pre_s * b->threads));
        note(&dec, n, (double)b->o->tokens / dec_s, 0.5 * (read[0] + read[1]) / x->bytes, 0,
             dec_cpu / (dec_s * b->threads));
        n++;
    } while (n < max && tsr_now_s() - start < 10.0);
    const char *name = tsr_plugin_act_name(act);
    if (st == TSR_OK)
        st = add(x, &pre, n, "prefill", format, name, (uint64_t)b->o->prompt, err);
    if (st == TSR_OK)
        st = add(x, &dec, n, "decode", format, name, 1, err);
    free(v);
    return st;
}

double bench_step_bytes(const struct tsr_model *m, uint64_t device_bytes)
{
    double bytes = (double)device_bytes;
    if (!m->hp.tied) /* of an untied embedding a step reads one row */
        bytes -=
            (double)m->embed.rows * (double)m->embed.cols * (double)tsr_dtype_size(m->embed.dtype);
    return bytes;
}

/* Work of a token: every linear of every layer and the head. */
static void count_work(struct e2e *x, uint64_t device_bytes)
{
    const struct tsr_model *m = x->m;
    x->macs = (double)m->hp.vocab * (double)m->hp.embed_dim;
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t i = 0; i < m->hp.linears; i++) {
            const struct tsr_matrix *w = &m->layers[l].lin[i].w;
            double share = i < TSR_MODEL_EXPERTS ? 1 : (double)m->hp.experts_used / m->hp.experts;
            if (w->rows)
                x->macs += share * (double)w->rows * (double)w->cols;
        }
    x->bytes = bench_step_bytes(m, device_bytes);
}

static tsr_status run_model(struct bench *b, const struct tsr_model *m,
                            const struct tsr_model_overlay *o, struct tsr_err *err)
{
    uint32_t                  act = bench_act(b->o);
    struct e2e                x = { .b = b, .m = m, .vocab = m->hp.vocab };
    struct tsr_engine_options opt = { .on = { .backend = b->o->backend,
                                              .numerics = (uint32_t)b->o->numerics },
                                      .act = act,
                                      .kv_dtype = (uint32_t)b->o->kv,
                                      .slots = 1,
                                      .context = (uint64_t)(b->o->prompt + b->o->tokens) };
    uint64_t                  weights, cache;
    TSR_TRY(tsr_engine_create(&x.e, b->cli->registry, m, o, &opt, err));
    tsr_engine_memory(x.e, &weights, &cache);
    count_work(&x, weights);
    tsr_logf(TSR_LOG_INFO, "%llu parameters, %.0f MB of weights and %.0f MB of cache on %s",
             (unsigned long long)m->parameters, (double)weights * 1e-6, (double)cache * 1e-6,
             tsr_engine_device(x.e));
    x.tokens = tsr_new((uint64_t)b->o->prompt, sizeof *x.tokens);
    x.logits = tsr_new(x.vocab, sizeof *x.logits);
    tsr_status st = x.tokens && x.logits ? TSR_OK : tsr_fail_nomem(err, x.vocab * 4, "logits");
    uint64_t   ran[3]; /* of a packed checkpoint, too */
    tsr_engine_acts(x.e, ran);
    if (st == TSR_OK)
        st = rounds(&x,
                    *b->o->quantizer            ? b->o->quantizer
                    : m->packed_as              ? m->packed_as
                    : m->embed.dtype == TSR_F32 ? "f32"
                    : m->embed.dtype == TSR_F16 ? "f16"
                                                : "bf16",
                    ran[TSR_ACT_F32] + ran[TSR_ACT_A16] + ran[TSR_ACT_A8] > 0,
                    ran[act] ? act : TSR_ACT_F32, err);
    free(x.tokens);
    free(x.logits);
    tsr_engine_destroy(x.e);
    return st;
}

tsr_status bench_model_open(struct bench *b, const char *path, const char *quantizer,
                            struct tsr_model **m, struct tsr_model_overlay **o, struct tsr_err *err)
{
    TSR_TRY(load(b, path, m, err));
    if (*quantizer || *b->o->head)
        TSR_TRY(tsr_model_overlay_create(o, (*m)->hp.layers, (*m)->hp.linears, err));
    if (*quantizer)
        TSR_TRY(pack(b, *m, quantizer, false, *o, err));
    return *b->o->head ? pack(b, *m, b->o->head, true, *o, err) : TSR_OK;
}

tsr_status bench_e2e(struct bench *b, const char *path, struct tsr_err *err)
{
    struct tsr_model         *m = NULL;
    struct tsr_model_overlay *o = NULL;
    TSR_TRY(bench_prepare_read(b, err));
    tsr_status st = bench_model_open(b, path, b->o->quantizer, &m, &o, err);
    if (st == TSR_OK)
        st = run_model(b, m, o, err);
    tsr_model_overlay_destroy(o);
    tsr_model_destroy(m);
    return st;
}
