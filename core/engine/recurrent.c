/* Layers of the gated delta rule, and gated attention: what an engine keeps for them and how a chunk goes through.
 * Linears run on the device; delta.c does the rest in host memory.
 *
 * A layer keeps a state for each sequence slot.  Like the cache it is never copied or cut: a token at position 0
 * begins with zeros, and any other position must follow on the one before. */
#include "engine/recurrent.h"

#include "base/mem.h"
#include "engine/delta.h"
#include "engine/delta_math.h"
#include "plugin/registry.h"

#include <stdlib.h>

struct layer {
    float                   *state;  /* [slots][tsr_delta_state_floats()] */
    uint64_t                *length; /* [slots]: tokens in it */
    float                   *conv, *rate;
    struct tsr_delta_weights w;
};

struct tsr_engine_recurrent {
    struct tsr_delta_rows rows;    /* [chunk, ...] in host memory */
    struct tsr_tensor     z, b, a; /* what these linears say */
    struct layer         *layer;   /* [layers]; state NULL: attention */
    uint32_t             *order;   /* [chunk] */
    struct tsr_delta_run *runs;    /* [slots] */
    uint64_t             *at;      /* [slots] */
    uint64_t              floats;  /* of a state */
};

static tsr_status new_rows(struct tsr_engine *e, float **out, uint64_t cols, struct tsr_err *err)
{
    uint64_t n;
    *out = tsr_mul(e->chunk, cols, &n) ? tsr_new_aligned(n, sizeof **out) : NULL;
    return *out ? TSR_OK : tsr_fail_nomem(err, e->chunk * cols * sizeof **out, "activations");
}

/* Room for a chunk of every layer. */
static tsr_status create_rows(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model_delta *d = &e->share.delta;
    struct tsr_engine_recurrent  *r = e->recurrent;
    struct tsr_delta_rows        *h = &r->rows;
    uint64_t heads = d->value_heads, keys = (uint64_t)d->key_heads * d->key_dim;
    const struct {
        float  **rows;
        uint64_t cols;
    } plan[] = {
        { &h->z, e->a.cols }, /* the widest of all layers */
        { &h->out, e->a.cols },
        { &h->q, keys },
        { &h->k, keys },
        { &h->v, heads * d->value_dim },
        { &h->mixed, tsr_delta_channels(d) },
        { &h->b, heads },
        { &h->a, heads },
        { &h->beta, heads },
        { &h->keep, heads },
    };
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++)
        if (plan[i].cols)
            TSR_TRY(new_rows(e, plan[i].rows, plan[i].cols, err));
    TSR_TRY(tsr_engine_device_tensor(e->dev, TSR_F32, e->chunk, e->a.cols, 0, "activations", &r->z,
                                     err));
    if (!heads)
        return TSR_OK;
    TSR_TRY(
        tsr_engine_device_tensor(e->dev, TSR_F32, e->chunk, heads, 0, "activations", &r->b, err));
    return tsr_engine_device_tensor(e->dev, TSR_F32, e->chunk, heads, 0, "activations", &r->a, err);
}

/* Of the model's queries, keys or values the first channel that is here, and how many are. */
static uint64_t first_channel(const struct tsr_engine *e, int part, uint64_t *n)
{
    const struct tsr_model_delta *all = &e->model->hp.delta, *d = &e->share.delta;
    uint64_t                      keys = (uint64_t)all->key_heads * all->key_dim;
    *n = part == 2 ? (uint64_t)d->value_heads * d->value_dim : (uint64_t)d->key_heads * d->key_dim;
    return part == 2 ? 2 * keys + (uint64_t)e->share.value_head * d->value_dim
                     : (uint64_t)part * keys + (uint64_t)e->share.key_head * d->key_dim;
}

/* The numbers of a layer, in the order in which they are used. */
static tsr_status create_weights(const struct tsr_engine *e, uint64_t layer, struct layer *l,
                                 struct tsr_err *err)
{
    const struct tsr_model_delta *d = &e->share.delta;
    const struct tsr_model_layer *m = &e->model->layers[layer];
    uint64_t                      channels = tsr_delta_channels(d), first, to = 0, n;
    if (!m->conv || !m->decay || !m->step || !m->delta_norm)
        return tsr_fail(err, TSR_E_INVAL, "%s was loaded without its weights", e->model->path);
    l->conv = tsr_new(channels, d->kernel * sizeof *l->conv);
    l->rate = tsr_new(d->value_heads, sizeof *l->rate);
    if (!l->conv || !l->rate)
        return tsr_fail_nomem(err, channels * d->kernel * sizeof *l->conv, "a convolution");
    for (int part = 0; part < 3; part++, to += n) {
        first = first_channel(e, part, &n);
        for (uint64_t c = 0; c < n; c++)
            for (uint64_t s = 0; s < d->kernel; s++)
                l->conv[s * channels + to + c] = m->conv[(first + c) * d->kernel + s];
    }
    for (uint32_t h = 0; h < d->value_heads; h++)
        l->rate[h] = (float)tsr_delta_exp_wide((double)m->decay[e->share.value_head + h]);
    l->w = (struct tsr_delta_weights){ .conv = l->conv,
                                       .rate = l->rate,
                                       .step = m->step + e->share.value_head,
                                       .norm = m->delta_norm };
    return TSR_OK;
}

static tsr_status create_states(struct tsr_engine *e, struct tsr_err *err)
{
    struct tsr_engine_recurrent *r = e->recurrent;
    struct layer                *shared = NULL; /* streamed: a layer's run begins with zeros */
    uint64_t                     n, bytes;
    r->floats = tsr_delta_state_floats(&e->share.delta);
    if (!tsr_mul(r->floats, e->n_slots, &n) || !tsr_mul(n, sizeof(float), &bytes))
        return tsr_fail(err, TSR_E_NOMEM, "the states of %u sequences are too large", e->n_slots);
    for (uint64_t i = e->first; i < e->end; i++) {
        struct layer *l = &r->layer[i];
        if (!tsr_model_is_recurrent(&e->model->hp, i))
            continue;
        TSR_TRY(create_weights(e, i, l, err));
        if (shared) {
            l->state = shared->state;
            l->length = shared->length;
            continue;
        }
        l->state = tsr_new_aligned(n, sizeof *l->state);
        l->length = tsr_new(e->n_slots, sizeof *l->length);
        if (!l->state || !l->length)
            return tsr_fail_nomem(err, bytes, "the states of sequences");
        e->cache_bytes += bytes;
        shared = e->streamed ? l : NULL;
    }
    return TSR_OK;
}

tsr_status tsr_engine_recurrent_create(struct tsr_engine *e, struct tsr_err *err)
{
    struct tsr_engine_recurrent *r = e->recurrent = tsr_new(1, sizeof *r);
    if (!r)
        return tsr_fail_nomem(err, sizeof *r, "recurrent layers");
    r->layer = tsr_new(e->model->hp.layers, sizeof *r->layer);
    r->order = tsr_new(e->chunk, sizeof *r->order);
    r->runs = tsr_new(e->n_slots, sizeof *r->runs);
    r->at = tsr_new(e->n_slots, sizeof *r->at);
    if (!r->layer || !r->order || !r->runs || !r->at)
        return tsr_fail_nomem(err, e->n_slots * sizeof *r->runs, "recurrent layers");
    TSR_TRY(create_rows(e, err));
    return e->model->hp.recurrent ? create_states(e, err) : TSR_OK;
}

void tsr_engine_recurrent_destroy(struct tsr_engine *e)
{
    struct tsr_engine_recurrent *r = e->recurrent;
    if (!r)
        return;
    const float *before = NULL;
    for (uint64_t i = 0; r->layer && i < e->model->hp.layers; i++) {
        struct layer *l = &r->layer[i];
        free(l->conv);
        free(l->rate);
        if (l->state && l->state == before) /* shared */
            continue;
        before = l->state ? l->state : before;
        free(l->state);
        free(l->length);
    }
    float *rows[] = { r->rows.q, r->rows.k,     r->rows.v,    r->rows.z,    r->rows.b,
                      r->rows.a, r->rows.mixed, r->rows.beta, r->rows.keep, r->rows.out };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        free(rows[i]);
    free(r->layer);
    free(r->order);
    free(r->runs);
    free(r->at);
    free(r);
    e->recurrent = NULL;
}

/* ---- a chunk ------------------------------------------------------------------------------ */

/* The tokens by slot, each slot's in their order. */
static tsr_status order_tokens(struct tsr_engine *e, struct layer *l, uint64_t n, uint64_t *n_runs,
                               struct tsr_err *err)
{
    struct tsr_engine_recurrent *r = e->recurrent;
    const uint32_t              *spans =
        (const uint32_t *)(const void *)(e->feed.host +
                                         e->feed.spans[TSR_ENGINE_CACHE_CONTEXT].offset);
    uint64_t place = 0;
    *n_runs = 0;
    for (uint32_t s = 0; s < e->n_slots; s++)
        r->at[s] = 0;
    for (uint64_t i = 0; i < n; i++)
        r->at[spans[2 * i] / e->context]++;
    for (uint32_t s = 0; s < e->n_slots; s++) {
        uint64_t count = r->at[s];
        r->at[s] = place;
        if (count)
            r->runs[(*n_runs)++] = (struct tsr_delta_run){ .first = place,
                                                           .n = count,
                                                           .state = l->state + s * r->floats };
        place += count;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t slot = spans[2 * i] / e->context, position = spans[2 * i + 1];
        if (position == 0) {
            memset(l->state + slot * r->floats, 0, r->floats * sizeof *l->state);
            l->length[slot] = 0;
        }
        if (e->timed)
            l->length[slot] = position;
        if (position != l->length[slot])
            return tsr_fail(err, TSR_E_INVAL,
                            "sequence %llu goes on at position %llu, and its state holds %llu "
                            "tokens",
                            (unsigned long long)slot, (unsigned long long)position,
                            (unsigned long long)l->length[slot]);
        l->length[slot]++;
        r->order[r->at[slot]++] = (uint32_t)i;
    }
    return TSR_OK;
}

static struct tsr_pool *pool_of(const struct tsr_engine *e)
{
    return tsr_plugin_registry_pool(e->dev->registry);
}

tsr_status tsr_engine_recurrent_run(struct tsr_engine *e, uint64_t layer,
                                    const struct tsr_tensor *in, const struct tsr_tensor *out,
                                    struct tsr_err *err)
{
    const struct tsr_model_delta *d = &e->share.delta;
    struct tsr_engine_recurrent  *r = e->recurrent;
    struct layer                 *l = &r->layer[layer];
    uint64_t                      keys = (uint64_t)d->key_heads * d->key_dim, n = in->rows, n_runs;
    uint64_t                      values = (uint64_t)d->value_heads * d->value_dim;
    struct tsr_tensor q = tsr_engine_narrow(&e->q, n, keys), k = tsr_engine_narrow(&e->k, n, keys);
    struct tsr_tensor v = tsr_engine_narrow(&e->v, n, values);
    struct tsr_tensor y = tsr_engine_narrow(&e->a, n, values);
    struct tsr_tensor z = tsr_engine_narrow(&r->z, n, values);
    struct tsr_tensor b = tsr_engine_rows(&r->b, 0, n), a = tsr_engine_rows(&r->a, 0, n);
    const struct tsr_tensor *outs[] = { &q, &k, &v, &z, &b, &a };
    float *const to[] = { r->rows.q, r->rows.k, r->rows.v, r->rows.z, r->rows.b, r->rows.a };
    TSR_TRY(tsr_engine_run_linears(e, layer, TSR_MODEL_SITE_ATTN_IN, in, outs, err));
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        TSR_TRY(tsr_engine_device_download(e->dev, outs[i], to[i], err));
    TSR_TRY(order_tokens(e, l, n, &n_runs, err));
    TSR_TRY(tsr_delta_run_rows(pool_of(e), d, e->model->hp.norm_eps, &l->w, &r->rows, r->order, n,
                               r->runs, n_runs));
    TSR_TRY(tsr_engine_device_upload(e->dev, &y, r->rows.out, err));
    const struct tsr_tensor *last = out;
    return tsr_engine_run_linears(e, layer, TSR_MODEL_SITE_O_IN, &y, &last, err);
}

struct tsr_tensor tsr_engine_gate_rows(const struct tsr_engine *e, uint64_t n)
{
    return tsr_engine_narrow(&e->recurrent->z, n, (uint64_t)e->share.heads * e->model->hp.head_dim);
}

tsr_status tsr_engine_gate_attention(struct tsr_engine *e, const struct tsr_tensor *x,
                                     struct tsr_err *err)
{
    struct tsr_engine_recurrent *r = e->recurrent;
    struct tsr_tensor            z = tsr_engine_gate_rows(e, x->rows);
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    TSR_TRY(tsr_engine_device_download(e->dev, x, r->rows.out, err));
    TSR_TRY(tsr_engine_device_download(e->dev, &z, r->rows.z, err));
    TSR_TRY(tsr_delta_gate(pool_of(e), r->rows.out, r->rows.z, x->rows * x->cols));
    return tsr_engine_device_upload(e->dev, x, r->rows.out, err);
}
