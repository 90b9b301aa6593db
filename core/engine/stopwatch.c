#include "engine/stopwatch.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

struct tsr_stopwatch {
    struct tsr_engine       *e;
    struct tsr_engine_token *tokens; /* [chunk] */
    float                   *logits; /* [head_rows][vocab] */
    uint64_t                *layer;  /* [layers] */
    uint64_t                 layers, next, layer_bytes;
};

static tsr_status load(struct tsr_stopwatch *m, const struct tsr_model_overlay *o,
                       struct tsr_err *err)
{
    struct tsr_engine *e = m->e;
    uint64_t           tensors, before, after;
    TSR_TRY(tsr_engine_load_embed(e, NULL, err));
    TSR_TRY(tsr_engine_load_head(e, NULL, TSR_ACT_A8, err));
    tsr_engine_device_memory(e->dev, &tensors, &before);
    for (uint64_t i = 0; i < m->layers; i++)
        TSR_TRY(tsr_engine_load_layer(e, o, m->layer[i], TSR_ACT_A8, err));
    tsr_engine_device_memory(e->dev, &tensors, &after);
    m->layer_bytes = m->layers ? (after - before) / m->layers : 0;
    m->tokens = tsr_new(e->chunk, sizeof *m->tokens);
    m->logits = tsr_new(e->head_rows * e->model->hp.vocab, sizeof *m->logits);
    return m->tokens && m->logits
               ? TSR_OK
               : tsr_fail_nomem(err, e->head_rows * e->model->hp.vocab * 4, "a measurement");
}

tsr_status tsr_engine_stopwatch_open(struct tsr_stopwatch **out, struct tsr_registry *r,
                                     const struct tsr_model *m, const struct tsr_model_overlay *o,
                                     const uint64_t *layer, uint64_t n, uint32_t slots,
                                     uint64_t context, uint64_t chunk, struct tsr_err *err)
{
    struct tsr_engine_options opt = {
        .act = TSR_ACT_A8, .kv_dtype = TSR_F16, .slots = slots, .context = context, .chunk = chunk
    };
    struct tsr_stopwatch *x = tsr_new(1, sizeof *x);
    if (!x)
        return tsr_fail_nomem(err, sizeof *x, "a measurement");
    x->layers = n;
    x->layer = tsr_new(n, sizeof *x->layer);
    tsr_status st = x->layer ? tsr_engine_create_streamed(&x->e, r, m, &opt, err)
                             : tsr_fail_nomem(err, n * sizeof *x->layer, "a measurement");
    if (st == TSR_OK) {
        memcpy(x->layer, layer, n * sizeof *layer);
        x->e->timed = true;
        st = load(x, o, err);
    }
    if (st != TSR_OK) {
        tsr_engine_stopwatch_close(x);
        return st;
    }
    *out = x;
    return TSR_OK;
}

void tsr_engine_stopwatch_close(struct tsr_stopwatch *m)
{
    if (!m)
        return;
    tsr_engine_destroy(m->e);
    free(m->layer);
    free(m->tokens);
    free(m->logits);
    free(m);
}

uint64_t tsr_engine_stopwatch_layer_bytes(const struct tsr_stopwatch *m)
{
    return m->layer_bytes;
}

/* The next n tokens of the sequences, of which `done` have been run, onto the device. */
static tsr_status feed(struct tsr_stopwatch *m, uint64_t done, uint64_t n, uint64_t s,
                       struct tsr_err *err)
{
    uint64_t wanted, vocab = m->e->model->hp.vocab;
    for (uint64_t i = 0; i < n; i++)
        m->tokens[i] = (struct tsr_engine_token){ .id = (uint32_t)(((done + i) * 7919 + 3) % vocab),
                                                  .slot = (uint32_t)((done + i) / s) };
    return tsr_engine_feed_chunk(m->e, m->tokens, n, &wanted, err);
}

static tsr_status run_layer(struct tsr_stopwatch *m, uint64_t n, double *seconds,
                            struct tsr_err *err)
{
    double start = tsr_now_s();
    TSR_TRY(tsr_engine_block_run(m->e, m->layer[m->next], n, err));
    TSR_TRY(tsr_engine_device_sync(m->e->dev, err));
    *seconds += tsr_now_s() - start;
    m->next = (m->next + 1) % m->layers;
    return TSR_OK;
}

tsr_status tsr_engine_stopwatch_layer(struct tsr_stopwatch *m, uint64_t v, uint64_t s, uint64_t t,
                                      double *seconds, struct tsr_err *err)
{
    struct tsr_engine *e = m->e;
    uint64_t           turns = s == 1 ? m->layers : 1;
    if (v == 0 || s == 0 || v > e->n_slots || s + t > e->context)
        return tsr_fail(err, TSR_E_INVAL, "%llu sequences of %llu + %llu tokens",
                        (unsigned long long)v, (unsigned long long)t, (unsigned long long)s);
    if (tsr_plugin_cancelled())
        return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
    for (uint64_t i = 0; i < v; i++) {
        e->slots[i].length = t;
        e->slots[i].final = t + s;
    }
    *seconds = 0;
    for (uint64_t done = 0; done < v * s;) {
        uint64_t n = v * s - done < e->chunk ? v * s - done : e->chunk;
        TSR_TRY(feed(m, done, n, s, err));
        TSR_TRY(tsr_engine_run_embedding(e, n, err));
        for (uint64_t i = 0; i < turns; i++)
            TSR_TRY(run_layer(m, n, seconds, err));
        done += n;
    }
    *seconds /= (double)turns;
    for (uint64_t i = 0; i < v; i++)
        tsr_engine_reset(e, (uint32_t)i);
    return TSR_OK;
}

tsr_status tsr_engine_stopwatch_embed(struct tsr_stopwatch *m, uint64_t n, double *seconds,
                                      struct tsr_err *err)
{
    struct tsr_engine *e = m->e;
    if (n == 0 || n > e->chunk || n > e->context)
        return tsr_fail(err, TSR_E_INVAL, "an embedding of %llu tokens", (unsigned long long)n);
    tsr_engine_reset(e, 0);
    e->slots[0].final = n;
    TSR_TRY(feed(m, 0, n, n, err));
    double start = tsr_now_s();
    TSR_TRY(tsr_engine_run_embedding(e, n, err));
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    *seconds = tsr_now_s() - start;
    tsr_engine_reset(e, 0);
    return TSR_OK;
}

tsr_status tsr_engine_stopwatch_head(struct tsr_stopwatch *m, uint64_t n, double *seconds,
                                     struct tsr_err *err)
{
    struct tsr_engine *e = m->e;
    if (n == 0 || n > e->head_rows)
        return tsr_fail(err, TSR_E_INVAL, "a head over %llu rows", (unsigned long long)n);
    TSR_TRY(tsr_engine_stopwatch_embed(m, n, seconds, err)); /* rows to work on */
    double start = tsr_now_s();
    TSR_TRY(tsr_engine_run_head(e, tsr_engine_rows(&e->h, 0, n), m->logits, err));
    *seconds = tsr_now_s() - start;
    return TSR_OK;
}
