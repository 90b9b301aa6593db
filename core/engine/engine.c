/* An engine's life, and the accessors. */
#include "engine/kv_codec.h"
#include "engine/online.h"
#include "engine/recurrent.h"
#include "engine/split.h"

#include "base/mem.h"
#include "engine/rope.h"

#include <stdlib.h>

/* Positions per slot: as requested, or as many as the model was trained for. */
static tsr_status choose_context(struct tsr_engine *e, uint64_t asked, struct tsr_err *err)
{
    e->context = asked ? asked : e->model->hp.max_positions;
    TSR_TRY(tsr_model_context(e->model, e->context, err));
    if (e->context == 0 || e->context > UINT32_MAX - e->model->hp.position_offset)
        return tsr_fail(err, TSR_E_INPUT, "%s: a context of %llu tokens cannot be held",
                        e->model->path, (unsigned long long)e->context);
    if (e->n_slots > UINT32_MAX / e->context) /* cache rows are U32 */
        return tsr_fail(err, TSR_E_NOMEM, "a cache of %u sequences of %llu tokens is too large",
                        e->n_slots, (unsigned long long)e->context);
    return TSR_OK;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static tsr_status activations(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    uint64_t own = tsr_engine_expert_columns(hp->experts_used, e->share.expert, e->chunk);
    uint64_t ffn = larger(larger(e->share.ffn, e->share.expert), larger(e->share.shared, own));
    const struct tsr_model_delta *d = &e->share.delta;
    uint64_t                      heads = (uint64_t)e->share.heads * hp->head_dim,
             kv = (uint64_t)e->share.kv_heads * hp->head_dim,
             keys = (uint64_t)d->key_heads * d->key_dim,
             values = (uint64_t)d->value_heads * d->value_dim;
    const struct {
        struct tsr_tensor *t;
        uint64_t           cols;
    } plan[] = {
        { &e->h, hp->hidden },
        { &e->x, hp->hidden },
        { &e->y, hp->hidden },
        { &e->q, larger(heads, keys) },
        { &e->a, larger(heads, values) },
        { &e->k, larger(kv, keys) },
        { &e->v, larger(kv, values) },
        { &e->up, ffn },
        { &e->gate, hp->gated ? ffn : 0 },
        { &e->narrow, hp->embed_dim != hp->hidden ? hp->embed_dim : 0 },
    };
    for (size_t i = 0; i < sizeof plan / sizeof plan[0]; i++)
        if (plan[i].cols)
            TSR_TRY(tsr_engine_device_tensor(e->dev, TSR_F32, e->chunk, plan[i].cols, 0,
                                             "activations", plan[i].t, err));
    TSR_TRY(tsr_engine_whole_norm_create(e, err));
    if (e->tp.ranks > 1 && !(e->parts = tsr_new_aligned(e->chunk, hp->hidden * sizeof(float))))
        return tsr_fail_nomem(err, e->chunk * hp->hidden * sizeof(float), "partial sums");
    if (e->split.ranks && !(e->split_rows = tsr_new_aligned((e->split.ranks + 1) * e->chunk,
                                                            hp->hidden * sizeof(float))))
        return tsr_fail_nomem(err, (e->split.ranks + 1) * e->chunk * hp->hidden * sizeof(float),
                              "partial sums");
    if (!e->has_head)
        return TSR_OK;
    return tsr_engine_device_tensor(e->dev, TSR_F32, e->head_rows, hp->vocab, 0, "logits",
                                    &e->logits, err);
}

static tsr_status alibi(struct tsr_engine *e, struct tsr_err *err)
{
    uint32_t heads = e->model->hp.heads;
    float   *slopes = tsr_new(heads, sizeof *slopes);
    if (!slopes)
        return tsr_fail_nomem(err, heads * sizeof *slopes, "ALiBi slopes");
    tsr_engine_alibi_slopes(heads, slopes);
    tsr_status st =
        tsr_engine_device_vector(e->dev, slopes + e->share.head, e->share.heads, &e->slopes, err);
    free(slopes);
    return st;
}

/* Layers, ends and share of this engine. */
static tsr_status choose_part(struct tsr_engine *e, const struct tsr_engine_options *opt,
                              struct tsr_err *err)
{
    uint64_t layers = e->model->hp.layers;
    e->first = opt->first;
    e->end = opt->end ? opt->end : layers;
    e->has_embed = !opt->no_embed;
    e->has_head = !opt->no_head;
    e->release = opt->release;
    e->on_layer = opt->on_layer;
    e->layer_ctx = opt->layer_ctx;
    e->source = opt->source;
    e->tp = opt->tp ? *opt->tp : (struct tsr_engine_tp){ .ranks = 1 };
    if (opt->split)
        e->split = *opt->split;
    if (opt->split &&
        (e->split.ranks < 2 || e->split.ranks > TSR_ENGINE_SPLIT_MAX || e->tp.ranks > 1))
        return tsr_fail(err, TSR_E_CONFIG, "%u ranks cannot be simulated; 2 to %u can",
                        e->split.ranks, TSR_ENGINE_SPLIT_MAX);
    if (opt->split && opt->compensate)
        return tsr_fail(
            err, TSR_E_CONFIG,
            "ranks are not simulated together with compensation; leave one of them out");
    if (e->end > layers || e->first >= e->end || (e->tp.ranks > 1 && !e->tp.sum) ||
        (e->source && !e->release))
        return tsr_fail(err, TSR_E_INVAL, "layers %llu to %llu of %llu, or no sum over ranks",
                        (unsigned long long)e->first, (unsigned long long)e->end,
                        (unsigned long long)layers);
    return tsr_engine_share_of(&e->model->hp, e->tp.rank, e->tp.ranks, e->tp.whole_experts,
                               &e->share, err);
}

/* Who runs the linears and adds to them; taps.c sets the others. */
static void set_hooks(struct tsr_engine *e, const struct tsr_engine_options *opt)
{
    bool shared = e->tp.ranks > 1 || e->split.ranks > 0;
    for (int s = 0; s < TSR_MODEL_SITES; s++)
        e->hooks.run[s] = tsr_engine_run_site;
    if (shared)
        e->hooks.run[TSR_MODEL_SITE_O_IN] = e->hooks.run[TSR_MODEL_SITE_DOWN_IN] =
            tsr_engine_run_site_over_ranks;
    if (opt->compensate) {
        e->hooks.chunk = tsr_engine_compensate_chunk;
        e->hooks.outputs = tsr_engine_compensate_site;
    }
}

static tsr_status build(struct tsr_engine *e, const struct tsr_model_overlay *o,
                        const struct tsr_engine_options *opt, struct tsr_err *err)
{
    TSR_TRY(choose_context(e, opt->context, err));
    TSR_TRY(choose_part(e, opt, err));
    TSR_TRY(tsr_engine_experts_place(e, &opt->on, err));
    e->chunk = opt->chunk ? opt->chunk : TSR_DEFAULT_CHUNK;
    /* no batch is longer than all slots together */
    if (e->chunk / e->n_slots >= e->context)
        e->chunk = e->n_slots * e->context;
    e->head_rows = e->chunk < TSR_HEAD_ROWS ? e->chunk : TSR_HEAD_ROWS;
    e->slots = tsr_new(e->n_slots, sizeof *e->slots);
    e->layers = tsr_new(e->model->hp.layers, sizeof *e->layers);
    e->linears = tsr_new(e->model->hp.layers * e->model->hp.linears, sizeof *e->linears);
    /* before the check: tsr_engine_destroy() reads the linears of every layer where both exist */
    for (uint64_t i = 0; e->layers && e->linears && i < e->model->hp.layers; i++)
        e->layers[i].lin = e->linears + i * e->model->hp.linears;
    if (!e->slots || !e->layers || !e->linears)
        return tsr_fail_nomem(err, e->n_slots * sizeof *e->slots, "slots");
    TSR_TRY(tsr_engine_kv_choose(e, opt, err));
    TSR_TRY(tsr_engine_online_create(e, err));
    if (!e->streamed)
        TSR_TRY(tsr_engine_load(e, o, opt->act, err));
    TSR_TRY(tsr_engine_cache_create(e, err));
    TSR_TRY(tsr_engine_feed_create(e, err));
    if (e->model->hp.positions == TSR_MODEL_POSITIONS_ALIBI)
        TSR_TRY(alibi(e, err));
    TSR_TRY(activations(e, err));
    if (e->model->hp.recurrent || e->model->hp.attn_gate)
        TSR_TRY(tsr_engine_recurrent_create(e, err));
    if (e->model->hp.experts)
        TSR_TRY(tsr_engine_experts_create(e, err));
    if (e->model->hp.latent.rank)
        TSR_TRY(tsr_engine_latent_create(e, err));
    set_hooks(e, opt);
    TSR_TRY(tsr_engine_reserve(e, err));
    TSR_TRY(tsr_engine_candidates_open(e, err));
    return opt->compensate ? tsr_engine_compensate_create(e, opt->compensate, err) : TSR_OK;
}

static tsr_status create(struct tsr_engine **out, struct tsr_engine_device *dev, bool streamed,
                         const struct tsr_model *m, const struct tsr_model_overlay *o,
                         const struct tsr_engine_options *opt, struct tsr_err *err)
{
    struct tsr_engine_options own = *opt;
    if (own.kv_dtype == TSR_KV_AUTO)
        own.kv_dtype = dev->automatic && !streamed ? TSR_F16 : TSR_F32;
    opt = &own;
    if (opt->slots == 0 || opt->act > TSR_ACT_A8 ||
        (!tsr_plugin_kv_is_text(opt->kv_dtype) && !tsr_kv_head_bytes(opt->kv_dtype, 1)))
        return tsr_fail(err, TSR_E_INVAL, "engine options: slots, act or kv_dtype is not allowed");
    struct tsr_engine *e = tsr_new(1, sizeof *e);
    if (!e)
        return tsr_fail_nomem(err, sizeof *e, "an engine");
    e->model = m;
    e->dev = e->tap_dev = dev;
    e->n_slots = opt->slots;
    e->streamed = streamed;
    tsr_status st = build(e, o, opt, err);
    e->source = NULL;
    if (st != TSR_OK) {
        tsr_engine_destroy(e);
        return st;
    }
    *out = e;
    return TSR_OK;
}

tsr_status tsr_engine_create_on(struct tsr_engine **e, struct tsr_engine_device *dev,
                                const struct tsr_model *m, const struct tsr_model_overlay *o,
                                const struct tsr_engine_options *opt, struct tsr_err *err)
{
    return create(e, dev, false, m, o, opt, err);
}

static tsr_status create_owning(struct tsr_engine **e, struct tsr_registry *r, bool streamed,
                                const struct tsr_model *m, const struct tsr_model_overlay *o,
                                const struct tsr_engine_options *opt, struct tsr_err *err)
{
    struct tsr_engine_device *dev = NULL;
    TSR_TRY(tsr_engine_device_open(&dev, r, opt->on.backend, opt->on.numerics, err));
    tsr_status st = create(e, dev, streamed, m, o, opt, err);
    if (st != TSR_OK) {
        tsr_engine_device_close(dev);
        return st;
    }
    (*e)->owns_dev = true;
    return TSR_OK;
}

tsr_status tsr_engine_create_whole(struct tsr_engine **e, struct tsr_registry *r,
                                   const struct tsr_model *m, const struct tsr_model_overlay *o,
                                   const struct tsr_engine_options *opt, struct tsr_err *err)
{
    return create_owning(e, r, false, m, o, opt, err);
}

tsr_status tsr_engine_create_streamed(struct tsr_engine **e, struct tsr_registry *r,
                                      const struct tsr_model          *m,
                                      const struct tsr_engine_options *opt, struct tsr_err *err)
{
    return create_owning(e, r, true, m, NULL, opt, err);
}

void tsr_engine_destroy(struct tsr_engine *e)
{
    if (!e)
        return;
    tsr_engine_destroy(e->behind);
    free(e->border);
    tsr_engine_compensate_destroy(e);
    tsr_engine_kv_codecs_destroy(e);
    if (e->owns_dev)
        tsr_engine_device_close(e->dev);
    for (uint64_t i = 0; e->layers && e->linears && i < e->model->hp.layers; i++) {
        if (e->layers[i].open)
            tsr_model_close_layer(e->model, i);
        for (uint64_t k = 0; k < e->model->hp.linears; k++) {
            tsr_model_packed_destroy(e->layers[i].lin[k].part);
            tsr_engine_split_drop(NULL, e->layers[i].lin[k].split);
        }
    }
    tsr_engine_experts_destroy(e);
    tsr_engine_whole_norm_destroy(e);
    tsr_engine_latent_destroy(e);
    tsr_engine_online_destroy(e);
    tsr_engine_recurrent_destroy(e);
    tsr_engine_feed_destroy(&e->feed);
    for (int i = 0; i < TSR_ROPES; i++)
        free(e->rope[i].inv);
    free(e->tap_rows);
    free(e->hidden_rows);
    free(e->parts);
    free(e->split_rows);
    free(e->slots);
    free(e->kv_of);
    free(e->pieces);
    free(e->moves);
    free(e->linears);
    free(e->layers);
    free(e);
}

void tsr_engine_memory(const struct tsr_engine *e, uint64_t *weights, uint64_t *cache)
{
    uint64_t tensors;
    tsr_engine_device_memory(e->dev, &tensors, weights);
    *cache = e->cache_bytes;
    if (e->behind) {
        uint64_t more_weights, more_cache;
        tsr_engine_memory(e->behind, &more_weights, &more_cache);
        *weights += more_weights;
        *cache += more_cache;
    }
}

void tsr_engine_linears(const struct tsr_engine *e, uint64_t *bytes, uint64_t *widened)
{
    *bytes = *widened = 0;
    if (e->behind)
        tsr_engine_linears(e->behind, bytes, widened);
    for (uint64_t l = 0; l < e->model->hp.layers; l++)
        for (uint64_t i = 0; i < e->model->hp.linears; i++) {
            const struct tsr_engine_linear_dev *d = &e->layers[l].lin[i];
            *bytes +=
                d->w ? tsr_engine_device_weight_bytes(tsr_engine_linear_device(e, d), d->w) : 0;
            *widened += d->w && d->w->widened;
        }
}

void tsr_engine_acts(const struct tsr_engine *e, uint64_t linears[3])
{
    for (int i = 0; i < 3; i++)
        linears[i] = e->ran[i] + (e->behind ? e->behind->ran[i] : 0);
}

uint64_t tsr_engine_context(const struct tsr_engine *e)
{
    return e->context;
}

uint32_t tsr_engine_slots(const struct tsr_engine *e)
{
    return e->n_slots;
}

uint64_t tsr_engine_vocab(const struct tsr_engine *e)
{
    return e->model->hp.vocab;
}

const struct tsr_model *tsr_engine_model(const struct tsr_engine *e)
{
    return e->model;
}

const char *tsr_engine_device(const struct tsr_engine *e)
{
    return e->behind ? e->text : tsr_engine_device_text(e->dev);
}

uint64_t tsr_engine_length(const struct tsr_engine *e, uint32_t slot)
{
    return slot < e->n_slots ? e->slots[slot].length : 0;
}

/* A state of the delta rule cannot go back, a scaling by length made the keys for another length, and a layer with a
 * window has rows from the base on only. */
static bool can_rewind(const struct tsr_engine *e, uint32_t slot, uint64_t length)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    const struct tsr_engine_slot   *s = &e->slots[slot];
    if (length > s->length)
        return false;
    if (length == 0)
        return true;
    if (tsr_engine_rope_varies(&hp->rope) || tsr_engine_rope_varies(&hp->rope_sliding))
        return false;
    if (length == s->length)
        return true;
    for (uint64_t i = e->first; i < e->end; i++)
        if (tsr_model_is_recurrent(hp, i))
            return false;
    return !e->window_rows || s->base + e->window <= length + 1 || s->base == 0;
}

/* Keys of a block are needed as F16 while tokens of it come: those of the newest block are there. */
static uint64_t kept_length(const struct tsr_engine *e, uint32_t slot, uint64_t length)
{
    if (e->blocks && length / TSR_KV_BLOCK != e->slots[slot].block)
        length -= length % TSR_KV_BLOCK;
    return e->behind ? kept_length(e->behind, slot, length) : length;
}

uint64_t tsr_engine_rewind(struct tsr_engine *e, uint32_t slot, uint64_t length)
{
    if (slot >= e->n_slots || e->streamed)
        return 0;
    length = length > e->slots[slot].length ? 0 : kept_length(e, slot, length);
    if (length == 0 || !can_rewind(e, slot, length) ||
        (e->behind && !tsr_engine_rewind(e->behind, slot, length)))
        return 0;
    e->slots[slot].length = length;
    return length;
}

void tsr_engine_reset(struct tsr_engine *e, uint32_t slot)
{
    if (slot < e->n_slots)
        e->slots[slot].length = 0;
    if (e->behind)
        tsr_engine_reset(e->behind, slot);
}
