/* The engine's parts, run layer by layer: an engine whose weights come and go. */
#include "engine/stream.h"

#include "base/f16.h"
#include "base/mem.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#define NO_LAYER UINT64_MAX

struct tsr_stream {
    struct tsr_engine       *e;
    struct tsr_engine_token *tokens; /* [chunk] of the current sequence */
    uint64_t                 layer;  /* that is open, or NO_LAYER */
    struct tsr_engine_linear_dev
            *opened; /* [linears]: the original of a replaced linear; w NULL: not replaced */
    uint32_t act;
    bool     embed, head; /* on the device */
    uint64_t peak;
};

tsr_status tsr_engine_stream_create(struct tsr_stream **out, struct tsr_registry *r,
                                    const struct tsr_model *m, uint64_t longest, uint32_t act,
                                    const struct tsr_plugin_run_on *on, struct tsr_err *err)
{
    struct tsr_engine_options opt = {
        .act = act, .kv_dtype = TSR_F32, .slots = 1, .context = longest
    };
    if (on)
        opt.on = *on;
    opt.on.cpu_experts_of = NULL;
    opt.on.cpu_experts = 0; /* a layer at a time is on the device, all of it */
    TSR_TRY(tsr_model_plain(m, "calibrated on or quantized", err));
    struct tsr_stream *s = tsr_new(1, sizeof *s);
    if (!s)
        return tsr_fail_nomem(err, sizeof *s, "a stream");
    s->layer = NO_LAYER;
    s->act = act;
    tsr_status st = tsr_engine_create_streamed(&s->e, r, m, &opt, err);
    if (st == TSR_OK && !(s->opened = tsr_new(m->hp.linears, sizeof *s->opened)))
        st = tsr_fail_nomem(err, m->hp.linears * sizeof *s->opened, "a stream");
    if (st == TSR_OK && !(s->tokens = tsr_new(s->e->chunk, sizeof *s->tokens)))
        st = tsr_fail_nomem(err, s->e->chunk * sizeof *s->tokens, "a stream");
    if (st != TSR_OK) {
        tsr_engine_stream_destroy(s);
        return st;
    }
    *out = s;
    return TSR_OK;
}

void tsr_engine_stream_destroy(struct tsr_stream *s)
{
    if (!s)
        return;
    tsr_engine_destroy(s->e);
    free(s->opened);
    free(s->tokens);
    free(s);
}

void tsr_engine_stream_set_tap(struct tsr_stream *s, tsr_engine_tap tap, void *ctx)
{
    tsr_engine_set_tap(s->e, tap, ctx);
}

void tsr_engine_stream_show_experts(struct tsr_stream *s, const uint8_t *experts)
{
    s->e->shown_experts = experts;
}

struct tsr_engine *tsr_engine_stream_engine(const struct tsr_stream *s)
{
    return s->e;
}

static void note_peak(struct tsr_stream *s)
{
    uint64_t tensors, weights;
    tsr_engine_device_memory(s->e->dev, &tensors, &weights);
    if (tensors + weights > s->peak)
        s->peak = tensors + weights;
}

uint64_t tsr_engine_stream_memory(const struct tsr_stream *s)
{
    return s->peak;
}

/* ---- weights ------------------------------------------------------------ */

static void close_layer(struct tsr_stream *s)
{
    if (s->layer == NO_LAYER)
        return;
    for (uint64_t i = 0; i < s->e->model->hp.linears; i++) {
        tsr_engine_device_drop_weight(s->e->dev, s->opened[i].w);
        s->opened[i] = (struct tsr_engine_linear_dev){ 0 };
    }
    tsr_engine_drop_layer(s->e, s->layer);
    s->layer = NO_LAYER;
}

static void close_head(struct tsr_stream *s)
{
    tsr_engine_drop_head(s->e);
    s->head = false;
}

static void close_embed(struct tsr_stream *s)
{
    if (s->head && s->e->head.w == s->e->embed) /* tied */
        close_head(s);
    tsr_engine_drop_embed(s->e);
    s->embed = false;
}

tsr_status tsr_engine_stream_open_layer(struct tsr_stream *s, uint64_t layer,
                                        const struct tsr_model_overlay *o, struct tsr_err *err)
{
    const struct tsr_model *m = s->e->model;
    if (layer >= m->hp.layers)
        return tsr_fail(err, TSR_E_INVAL, "layer %llu, the model has %llu",
                        (unsigned long long)layer, (unsigned long long)m->hp.layers);
    if (o && o->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INVAL, "packed weights for %llu layers, the model has %llu",
                        (unsigned long long)o->layers, (unsigned long long)m->hp.layers);
    if (!m->embed.data && !(m->packed && m->packed->embed))
        return tsr_fail(err, TSR_E_INVAL, "%s was loaded without its weights", m->path);
    TSR_TRY(tsr_engine_device_sync(s->e->dev, err));
    close_layer(s);
    close_embed(s);
    s->layer = layer;
    if (layer == 0) /* linears are counted once, however many passes there are */
        memset(s->e->ran, 0, sizeof s->e->ran);
    tsr_status st = tsr_engine_load_layer(s->e, o, layer, s->act, err);
    note_peak(s);
    if (st != TSR_OK)
        close_layer(s);
    return st;
}

static tsr_status need_layer(const struct tsr_stream *s, struct tsr_err *err)
{
    return s->layer != NO_LAYER ? TSR_OK : tsr_fail(err, TSR_E_INVAL, "no layer is open");
}

tsr_status tsr_engine_stream_set_linear(struct tsr_stream *s, enum tsr_linear_id id,
                                        const struct tsr_matrix *w, struct tsr_err *err)
{
    TSR_TRY(need_layer(s, err));
    struct tsr_engine_linear_dev *l = &s->e->layers[s->layer].lin[id], *was = &s->opened[id];
    const struct tsr_matrix      *old = &s->e->model->layers[s->layer].lin[id].w;
    struct tsr_engine_weight     *put = NULL;
    if (!l->w)
        return tsr_fail(err, TSR_E_INVAL, "the model has no %s", tsr_model_linear_name(id));
    if (w && (w->rows != old->rows || w->cols != old->cols))
        return tsr_fail(err, TSR_E_INVAL, "%s: %llux%llu in place of %llux%llu", old->name,
                        (unsigned long long)w->rows, (unsigned long long)w->cols,
                        (unsigned long long)old->rows, (unsigned long long)old->cols);
    TSR_TRY(tsr_engine_device_sync(s->e->dev, err));
    if (w)
        TSR_TRY(tsr_engine_device_weight(s->e->dev, w, &put, err));
    note_peak(s);
    if (was->w) { /* replaced before: that one goes */
        tsr_engine_device_drop_weight(s->e->dev, l->w);
        l->w = was->w;
        l->act = was->act;
        *was = (struct tsr_engine_linear_dev){ 0 };
    }
    if (!put)
        return TSR_OK;
    *was = (struct tsr_engine_linear_dev){ .w = l->w, .act = l->act };
    l->w = put;
    l->act = TSR_ACT_F32; /* dense */
    return TSR_OK;
}

/* ---- runs --------------------------------------------------------------- */

/* Sends the next m tokens of a sequence of n to the device; ids may be NULL if only positions
 * count. */
static tsr_status feed(struct tsr_stream *s, const uint32_t *ids, uint64_t first, uint64_t m,
                       uint64_t n, struct tsr_err *err)
{
    uint64_t wanted;
    if (tsr_plugin_cancelled())
        return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
    for (uint64_t i = 0; i < m; i++)
        s->tokens[i] = (struct tsr_engine_token){ .id = ids ? ids[first + i] : 0 };
    s->e->slots[0].length = first;
    s->e->slots[0].final = n;
    return tsr_engine_feed_chunk(s->e, s->tokens, m, &wanted, err);
}

static tsr_status check_length(const struct tsr_stream *s, uint64_t n, struct tsr_err *err)
{
    if (n > s->e->context)
        return tsr_fail(err, TSR_E_INVAL, "a sequence of %llu tokens, the stream takes %llu",
                        (unsigned long long)n, (unsigned long long)s->e->context);
    return TSR_OK;
}

static uint64_t chunk_at(const struct tsr_stream *s, uint64_t first, uint64_t n)
{
    return n - first < s->e->chunk ? n - first : s->e->chunk;
}

tsr_status tsr_engine_stream_embed(struct tsr_stream *s, const uint32_t *ids, uint64_t n, float *h,
                                   struct tsr_err *err)
{
    struct tsr_engine *e = s->e;
    TSR_TRY(check_length(s, n, err));
    for (uint64_t i = 0; i < n; i++)
        if (ids[i] >= e->model->hp.vocab)
            return tsr_fail(err, TSR_E_INPUT, "token id %u is outside the vocabulary of %llu",
                            ids[i], (unsigned long long)e->model->hp.vocab);
    if (!s->embed) {
        TSR_TRY(tsr_engine_device_sync(e->dev, err));
        close_head(s);
        tsr_status st = tsr_engine_load_embed(e, NULL, err);
        note_peak(s);
        if (st != TSR_OK) {
            close_embed(s);
            return st;
        }
        s->embed = true;
    }
    for (uint64_t first = 0; first < n; first += e->chunk) {
        uint64_t          m = chunk_at(s, first, n);
        struct tsr_tensor out = tsr_engine_rows(&e->h, 0, m);
        TSR_TRY(feed(s, ids, first, m, n, err));
        TSR_TRY(tsr_engine_run_embedding(e, m, err));
        TSR_TRY(tsr_engine_device_sync(e->dev, err));
        TSR_TRY(tsr_engine_device_download(e->dev, &out, h + first * e->model->hp.hidden, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_stream_run(struct tsr_stream *s, const float *h, uint64_t n, float *out,
                                 struct tsr_err *err)
{
    struct tsr_engine *e = s->e;
    uint64_t           hidden = e->model->hp.hidden;
    TSR_TRY(need_layer(s, err));
    TSR_TRY(check_length(s, n, err));
    for (uint64_t first = 0; first < n; first += e->chunk) {
        uint64_t          m = chunk_at(s, first, n);
        struct tsr_tensor rows = tsr_engine_rows(&e->h, 0, m);
        TSR_TRY(feed(s, NULL, first, m, n, err));
        TSR_TRY(tsr_engine_device_upload(e->dev, &rows, h + first * hidden, err));
        TSR_TRY(tsr_engine_block_run(e, s->layer, m, err));
        TSR_TRY(tsr_engine_device_sync(e->dev, err));
        TSR_TRY(tsr_engine_device_download(e->dev, &rows, out + first * hidden, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_stream_run_part(struct tsr_stream *s, enum tsr_engine_stream_part part,
                                      const float *x, uint64_t n, float *out, struct tsr_err *err)
{
    struct tsr_engine *e = s->e;
    uint64_t           hidden = e->model->hp.hidden;
    TSR_TRY(need_layer(s, err));
    TSR_TRY(check_length(s, n, err));
    for (uint64_t first = 0; first < n; first += e->chunk) {
        uint64_t          m = chunk_at(s, first, n);
        struct tsr_tensor in = tsr_engine_rows(&e->x, 0, m), y = tsr_engine_rows(&e->y, 0, m);
        TSR_TRY(feed(s, NULL, first, m, n, err));
        TSR_TRY(tsr_engine_device_upload(e->dev, &in, x + first * hidden, err));
        if (part == TSR_ENGINE_STREAM_ATTENTION)
            TSR_TRY(tsr_engine_block_attention(e, s->layer, &in, &y, err));
        else
            TSR_TRY(tsr_engine_block_feed_forward(e, s->layer, &in, &y, err));
        TSR_TRY(tsr_engine_device_sync(e->dev, err));
        TSR_TRY(tsr_engine_device_download(e->dev, &y, out + first * hidden, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_stream_head(struct tsr_stream *s, const float *h, uint64_t n, float *logits,
                                  struct tsr_err *err)
{
    struct tsr_engine *e = s->e;
    uint64_t           hidden = e->model->hp.hidden, vocab = e->model->hp.vocab;
    if (!s->head) {
        tsr_status st = tsr_engine_load_head(e, NULL, s->act, err);
        note_peak(s);
        if (st != TSR_OK) {
            close_head(s);
            return st;
        }
        s->head = true;
    }
    for (uint64_t first = 0; first < n; first += e->head_rows) {
        uint64_t          m = n - first < e->head_rows ? n - first : e->head_rows;
        struct tsr_tensor src = tsr_engine_rows(&e->h, 0, m);
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        TSR_TRY(tsr_engine_device_upload(e->dev, &src, h + first * hidden, err));
        if (e->hooks.hidden)
            TSR_TRY(e->hooks.hidden(e, &src, err));
        TSR_TRY(tsr_engine_run_head(e, src, logits + first * vocab, err));
        for (uint64_t i = first; i < first + m; i++)
            if (!tsr_engine_all_finite(logits + i * vocab, vocab))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: the logits of row %llu are not finite",
                                e->model->path, (unsigned long long)i);
    }
    return TSR_OK;
}

/* ---- sizes -------------------------------------------------------------- */

/* Kernels may round rows up to whole panels. */
#define PANEL 64u

/* acc += rows * cols * width; false on overflow. */
static bool grow(uint64_t *acc, uint64_t rows, uint64_t cols, uint64_t width)
{
    uint64_t n;
    return tsr_mul(rows, cols, &n) && tsr_mul(n, width, &n) && tsr_add(*acc, n, acc);
}

static bool grow_linear(uint64_t *acc, const struct tsr_model_linear *l)
{
    if (l->w.rows == 0)
        return true;
    uint64_t rows = (l->w.rows + PANEL - 1) / PANEL * PANEL, width = tsr_dtype_size(l->w.dtype);
    return grow(acc, rows, l->w.cols, width ? width : 4) && grow(acc, rows, 1, 4);
}

static bool grow_matrix(uint64_t *acc, const struct tsr_matrix *w)
{
    struct tsr_model_linear l = { .w = *w };
    return grow_linear(acc, &l);
}

tsr_status tsr_engine_stream_estimate(const struct tsr_model *m, uint64_t longest, uint64_t *bytes,
                                      struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &m->hp;
    uint64_t chunk = longest < TSR_DEFAULT_CHUNK ? longest : TSR_DEFAULT_CHUNK, layer = 0;
    uint64_t q = (uint64_t)hp->heads * hp->head_dim, kv = (uint64_t)hp->kv_heads * hp->head_dim;
    uint64_t keys = (uint64_t)hp->delta.key_heads * hp->delta.key_dim;
    uint64_t values = (uint64_t)hp->delta.value_heads * hp->delta.value_dim;
    uint64_t embed = 0, head = 0, n = 0, stride = (kv * 4 + 15) / 16 * 16;
    uint64_t ffn = hp->ffn > hp->expert_ffn ? hp->ffn : hp->expert_ffn;
    uint64_t each = hp->experts_used + (hp->shared_ffn ? 1u : 0u); /* experts of a token */
    ffn = ffn > hp->shared_ffn ? ffn : hp->shared_ffn;
    uint64_t short_chunk =
        tsr_engine_expert_columns(hp->experts_used, hp->expert_ffn, chunk ? chunk : 1);
    ffn = ffn > short_chunk ? ffn : short_chunk;
    const struct tsr_model_latent *l = &hp->latent;
    uint64_t                       latent = l->q_rank + 2 * (uint64_t)l->rank + l->rope +
                      (l->rank ? (uint64_t)hp->heads * (l->nope + l->v + 1) : 0);
    /* h, x, y; q, a; k, v; up, gate; narrow; ids, places and angles; logits; caches */
    q = q > values ? q : values;
    bool ok = grow(&n, chunk, 3 * hp->hidden + 2 * q + 2 * kv + 2 * keys + values, 4) &&
              /* gates, and the rows of the delta rule */
              grow(&n, hp->recurrent || hp->attn_gate ? chunk : 0,
                   4 * q + 5 * keys + 3 * values + 6 * (uint64_t)hp->delta.value_heads, 4) &&
              grow(&n, values, hp->delta.key_dim, 4) && grow(&n, chunk, ffn, hp->gated ? 8 : 4) &&
              grow(&n, chunk, latent, 4) &&
              /* experts: scores, a row of each expert's input, what they say, weights and places */
              grow(&n, chunk, hp->experts + (hp->shared_gated ? 1u : 0u), 4) &&
              grow(&n, hp->experts ? chunk : 0, hp->hidden, 4) &&
              grow(&n, chunk * each, hp->hidden + 3, 4) &&
              grow(&n, chunk, hp->embed_dim != hp->hidden ? hp->embed_dim : 0, 4) &&
              grow(&n, chunk, 6 + hp->rope.dim + hp->rope_sliding.dim, 4) && tsr_add(n, 4096, &n) &&
              grow(&n, chunk < TSR_HEAD_ROWS ? chunk : TSR_HEAD_ROWS, hp->vocab, 4) &&
              grow(&n, 2 * longest, stride, 1) && grow(&n, hp->heads, 1, 4);
    for (uint64_t i = 0; i < hp->layers && ok; i++) {
        uint64_t one = 0;
        for (uint64_t k = 0; k < hp->linears; k++)
            ok = ok && grow_linear(&one, &m->layers[i].lin[k]);
        ok = ok && grow(&one, 8, hp->hidden, 4) && grow(&one, 2, hp->heads, 4) &&
             grow(&one, 1, (uint64_t)l->q_rank + l->rank, 4); /* norms, sinks */
        layer = one > layer ? one : layer;
    }
    ok = ok && grow_matrix(&embed, &m->embed) && grow_matrix(&embed, &m->positions) &&
         grow_linear(&embed, &m->project_in) && grow(&embed, 2, hp->hidden, 4) &&
         grow_matrix(&head, &m->head.w) && grow_linear(&head, &m->project_out) &&
         grow(&head, 2, hp->hidden, 4) && tsr_add(n, layer, &n) &&
         tsr_add(n, head > embed ? head : embed, bytes);
    return ok ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "the sizes of the model overflow");
}
