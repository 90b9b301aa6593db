/* Attention over a cache that a plugin's codec stores.
 *
 * Tokens cross to the host a few at a time: their keys and values are stored, then each token attends to the positions that it
 * sees, in groups of TSR_KV_BLOCK positions from a multiple of that on.  A group is decoded once for all queries of a KV head, and
 * the softmax runs along: a group's weights are relative to the largest score so far.  Groups, and the order inside one, depend on
 * the token's own position alone, so that neither batch nor chunk changes its result. */
#include "engine/kv_codec.h"

#include "engine/route.h"
#include "tessera/f16.h"

#include <math.h>
#include <string.h>

#define GROUP ((uint64_t)TSR_KV_BLOCK)

/* Tokens first .. first + n of the chunk, at the device and here. */
struct part {
    const struct tsr_engine          *e;
    const struct tsr_engine_kv_store *s;
    const uint32_t                   *spans; /* [n][2]: first row of the slot, position in it */
    uint64_t                          n, dim, share;
    uint32_t                          window;
    float                             scale, softcap;
    const float                      *slopes, *sinks; /* [heads] or NULL */
};

static uint64_t slot_of(const struct part *p, uint64_t t)
{
    return p->spans[2 * t] / p->s->rows;
}

static uint64_t position_of(const struct part *p, uint64_t t)
{
    return p->spans[2 * t + 1];
}

static unsigned char *unit_at(const struct part *p, int side, uint64_t slot, uint64_t head,
                              uint64_t position)
{
    const struct tsr_kv_layout *l = &p->s->codec->layout[side];
    uint64_t                    each = p->s->rows / l->positions;
    return p->s->units[side] +
           ((slot * p->e->share.kv_heads + head) * each + position / l->positions) * l->bytes;
}

/* The newest block of a head, F16 [TSR_KV_BLOCK][dim]. */
static uint16_t *tail_at(const struct part *p, int side, uint64_t slot, uint64_t head)
{
    return p->s->tail[side] + (slot * p->e->share.kv_heads + head) * GROUP * p->dim;
}

static void widen(const uint16_t *half, uint64_t n, float *x)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = tsr_f16_f32(half[i]);
}

/* ---- storing ----------------------------------------------------------------------- */

static tsr_status store_one(const struct part *p, int side, uint64_t head, uint64_t t,
                            const float *x, float *block, struct tsr_err *err)
{
    const struct tsr_plugin_kv *c = p->s->codec;
    uint64_t                    slot = slot_of(p, t), at = position_of(p, t), in = at % GROUP;
    if (c->layout[side].positions == 1)
        return c->table->encode(c->self, (uint32_t)side, p->dim, 1, x,
                                unit_at(p, side, slot, head, at), err);
    uint16_t *tail = tail_at(p, side, slot, head);
    for (uint64_t d = 0; d < p->dim; d++)
        tail[in * p->dim + d] = tsr_f32_f16(x[d]);
    if (in + 1 < GROUP)
        return TSR_OK;
    widen(tail, GROUP * p->dim, block);
    return c->table->encode(c->self, (uint32_t)side, p->dim, 1, block,
                            unit_at(p, side, slot, head, at), err);
}

/* ---- reading ----------------------------------------------------------------------- */

/* Whether a group of a token's slot is in the tail: that of its own position, where units are blocks. */
static bool is_tail(const struct part *p, int side, uint64_t t, uint64_t group)
{
    return p->s->codec->layout[side].positions > 1 && position_of(p, t) / GROUP * GROUP == group;
}

/* n positions of a head from `group` on, F32 [n][dim]; of a block always all of it. */
static tsr_status load(const struct part *p, int side, uint64_t head, uint64_t t, uint64_t group,
                       uint64_t n, float *x, struct tsr_err *err)
{
    const struct tsr_plugin_kv *c = p->s->codec;
    if (is_tail(p, side, t, group)) {
        widen(tail_at(p, side, slot_of(p, t), head), n * p->dim, x);
        return TSR_OK;
    }
    return c->table->decode(c->self, (uint32_t)side, p->dim, c->layout[side].positions > 1 ? 1 : n,
                            unit_at(p, side, slot_of(p, t), head, group), x, err);
}

/* Sixteen sums, so that the order does not depend on the compiler's width. */
static float dot(const float *a, const float *b, uint64_t n)
{
    float    s[16] = { 0 }, sum = 0;
    uint64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (uint64_t k = 0; k < 16; k++)
            s[k] += a[i + k] * b[i + k];
    for (uint64_t k = 0; i + k < n; k++)
        s[k] += a[i + k] * b[i + k];
    for (uint64_t k = 0; k < 16; k++)
        sum += s[k];
    return sum;
}

/* cap * tanh(x / cap) */
static float capped(float x, float cap)
{
    if (cap == 0)
        return x;
    float e = tsr_engine_exp_below_0(-2 * fabsf(x / cap));
    return copysignf(cap * ((1 - e) / (1 + e)), x);
}

/* ---- one run of tokens, one KV head -------------------------------------------------- */

/* Tokens first .. first + n of a slot, whose positions follow each other, and the queries of a KV head.  By token and query:
 * the largest score, the sum of weights, the weighted values, the weights of the group. */
struct run {
    const struct part *p;
    uint64_t           first, n, head;
    float             *decoded, *top, *total, *sum, *weights;
};

static const float *query(const struct run *r, uint64_t t, uint64_t i)
{
    const struct part *p = r->p;
    return p->e->kv_codecs->q +
           ((r->first + t) * p->e->share.heads + r->head * p->share + i) * p->dim;
}

/* First and last position that a token sees in a group; false: none. */
static bool seen(const struct part *p, uint64_t t, uint64_t group, uint64_t *from, uint64_t *to)
{
    uint64_t at = position_of(p, t);
    *from = p->window && at + 1 > p->window ? at + 1 - p->window : 0;
    *from = *from > group ? *from : group;
    *to = at < group + GROUP - 1 ? at : group + GROUP - 1;
    return *from <= *to;
}

/* Scores of a group become weights, and what was summed up before them shrinks. */
static void weigh(const struct run *r, uint64_t t, uint64_t i, uint64_t group, uint64_t from,
                  uint64_t to)
{
    const struct part *p = r->p;
    uint64_t           of = t * p->share + i, h = r->head * p->share + i;
    float             *w = r->weights + of * GROUP, top = r->top[of];
    for (uint64_t j = from; j <= to; j++) {
        float s = capped(w[j - group] * p->scale, p->softcap);
        if (p->slopes)
            s -= p->slopes[h] * (float)(position_of(p, r->first + t) - j);
        w[j - group] = s;
        top = s > top ? s : top;
    }
    float less = r->top[of] == top ? 1 : tsr_engine_exp_below_0(r->top[of] - top);
    r->top[of] = top;
    r->total[of] *= less;
    for (uint64_t d = 0; d < p->dim && less != 1; d++)
        r->sum[of * p->dim + d] *= less;
    for (uint64_t j = group; j < group + GROUP; j++) {
        bool in = j >= from && j <= to;
        w[j - group] = in ? tsr_engine_exp_below_0(w[j - group] - top) : 0;
        if (in)
            r->total[of] += w[j - group];
    }
}

static tsr_status scores(const struct run *r, uint64_t group, uint64_t n, struct tsr_err *err)
{
    const struct part          *p = r->p;
    const struct tsr_plugin_kv *c = p->s->codec;
    bool                        own = c->table->score && !is_tail(p, TSR_KV_KEYS, r->first, group);
    if (!own)
        TSR_TRY(load(p, TSR_KV_KEYS, r->head, r->first, group, n, r->decoded, err));
    for (uint64_t t = 0; t < r->n; t++) {
        uint64_t from, to;
        if (!seen(p, r->first + t, group, &from, &to))
            continue;
        for (uint64_t i = 0; i < p->share; i++) {
            float *w = r->weights + (t * p->share + i) * GROUP;
            if (own)
                TSR_TRY(c->table->score(
                    c->self, p->dim, query(r, t, i), c->layout[TSR_KV_KEYS].positions > 1 ? 1 : n,
                    unit_at(p, TSR_KV_KEYS, slot_of(p, r->first), r->head, group), w, err));
            for (uint64_t j = from; j <= to && !own; j++)
                w[j - group] = dot(query(r, t, i), r->decoded + (j - group) * p->dim, p->dim);
            weigh(r, t, i, group, from, to);
        }
    }
    return TSR_OK;
}

static tsr_status values(const struct run *r, uint64_t group, uint64_t n, struct tsr_err *err)
{
    const struct part          *p = r->p;
    const struct tsr_plugin_kv *c = p->s->codec;
    bool                        own = c->table->mix && !is_tail(p, TSR_KV_VALUES, r->first, group);
    if (!own)
        TSR_TRY(load(p, TSR_KV_VALUES, r->head, r->first, group, n, r->decoded, err));
    for (uint64_t t = 0; t < r->n; t++) {
        uint64_t from, to;
        if (!seen(p, r->first + t, group, &from, &to))
            continue;
        for (uint64_t i = 0; i < p->share; i++) {
            const float *w = r->weights + (t * p->share + i) * GROUP;
            float       *sum = r->sum + (t * p->share + i) * p->dim;
            if (own)
                TSR_TRY(c->table->mix(
                    c->self, p->dim, w, c->layout[TSR_KV_VALUES].positions > 1 ? 1 : n,
                    unit_at(p, TSR_KV_VALUES, slot_of(p, r->first), r->head, group), sum, err));
            for (uint64_t j = from; j <= to && !own; j++) {
                const float *v = r->decoded + (j - group) * p->dim, weight = w[j - group];
                for (uint64_t d = 0; d < p->dim; d++)
                    sum[d] += weight * v[d];
            }
        }
    }
    return TSR_OK;
}

static tsr_status attend_run(const struct run *r, struct tsr_err *err)
{
    const struct part *p = r->p;
    uint64_t           queries = r->n * p->share, last = position_of(p, r->first + r->n - 1);
    uint64_t           at = position_of(p, r->first);
    uint64_t from = p->window && at + 1 > p->window ? (at + 1 - p->window) / GROUP * GROUP : 0;
    for (uint64_t i = 0; i < queries; i++) {
        r->top[i] = -INFINITY;
        r->total[i] = 0;
    }
    memset(r->sum, 0, queries * p->dim * sizeof *r->sum);
    for (uint64_t group = from; group <= last; group += GROUP) {
        uint64_t n = last + 1 - group < GROUP ? last + 1 - group : GROUP;
        TSR_TRY(scores(r, group, n, err));
        TSR_TRY(values(r, group, n, err));
    }
    for (uint64_t i = 0; i < queries; i++) {
        uint64_t h = r->head * p->share + i % p->share;
        float   *out =
            p->e->kv_codecs->a + ((r->first + i / p->share) * p->e->share.heads + h) * p->dim;
        float total = r->total[i], less = 1;
        if (p->sinks && p->sinks[h] > r->top[i]) {
            less = tsr_engine_exp_below_0(r->top[i] - p->sinks[h]);
            total = total * less + 1;
        } else if (p->sinks) {
            total += tsr_engine_exp_below_0(p->sinks[h] - r->top[i]);
        }
        for (uint64_t d = 0; d < p->dim; d++)
            out[d] = r->sum[i * p->dim + d] * less / total;
    }
    return TSR_OK;
}

static tsr_status attend_head(const struct part *p, uint64_t head, struct tsr_err *err)
{
    const struct tsr_engine_kv_codecs *z = p->e->kv_codecs;
    uint64_t                           queries = TSR_ENGINE_KV_TILE * p->share;
    struct run r = { .p = p, .head = head, .decoded = z->work + head * z->work_each };
    r.sum = r.decoded + GROUP * p->dim;
    r.weights = r.sum + queries * p->dim;
    r.top = r.weights + queries * GROUP;
    r.total = r.top + queries;
    for (uint64_t t = 0; t < p->n; t++)
        for (int side = 0; side < 2; side++) {
            const float *x = side == TSR_KV_KEYS ? z->k : z->v;
            TSR_TRY(store_one(p, side, head, t, x + (t * p->e->share.kv_heads + head) * p->dim,
                              r.decoded, err));
        }
    for (r.first = 0; r.first < p->n; r.first += r.n) {
        for (r.n = 1; r.n < TSR_ENGINE_KV_TILE && r.first + r.n < p->n; r.n++)
            if (slot_of(p, r.first + r.n) != slot_of(p, r.first) ||
                position_of(p, r.first + r.n) != position_of(p, r.first) + r.n)
                break;
        TSR_TRY(attend_run(&r, err));
    }
    return TSR_OK;
}

/* The first failure of any head. */
struct job {
    const struct part *p;
    struct tsr_errbuf  failed;
    int                has_failed;
};

static tsr_status attend_heads(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    for (uint64_t h = begin; h < end; h++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_status        st = attend_head(j->p, h, &e.err);
        if (st == TSR_OK)
            continue;
        if (!__atomic_exchange_n(&j->has_failed, 1, __ATOMIC_ACQ_REL))
            (void)tsr_err_copy(&j->failed.err, st, &e.err);
        return st;
    }
    return TSR_OK;
}

/* ---- a chunk ----------------------------------------------------------------------- */

/* Tokens from `first` on that cross at once: none of a block that a token before it still needs in the tail. */
static uint64_t part_of(const struct tsr_engine *e, uint64_t first, uint64_t n)
{
    uint64_t end = n;
    for (uint64_t i = 0; e->blocks && i < e->n_pieces; i++)
        if (e->pieces[i] > first) {
            end = e->pieces[i] < n ? e->pieces[i] : n;
            break;
        }
    return end - first < TSR_ENGINE_KV_TOKENS ? end - first : TSR_ENGINE_KV_TOKENS;
}

static tsr_status fetch(struct tsr_engine *e, const struct tsr_tensor *t, uint64_t first,
                        uint64_t n, float *to, struct tsr_err *err)
{
    struct tsr_tensor rows = tsr_engine_rows(t, first, n);
    return tsr_engine_device_download(e->dev, &rows, to, err);
}

static tsr_status take_slopes(struct tsr_engine *e, uint64_t layer, struct part *p,
                              struct tsr_err *err)
{
    struct tsr_engine_kv_codecs *z = e->kv_codecs;
    const struct tsr_tensor     *sinks = &e->layers[layer].sinks;
    const struct tsr_tensor     *t = sinks->buffer ? sinks : &e->slopes;
    if (!t->buffer)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_download(e->dev, t, z->slopes, err));
    p->slopes = z->slopes;
    p->sinks = sinks->buffer ? z->sinks : NULL;
    return TSR_OK;
}

tsr_status tsr_engine_kv_attend(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *q,
                                const struct tsr_tensor *k, const struct tsr_tensor *v,
                                const struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_engine_kv_codecs    *z = e->kv_codecs;
    const struct tsr_tensor        *spans = &e->feed.spans[tsr_engine_cache_of(e, layer)];
    struct part                     p = { .e = e,
                                          .s = &z->stores[layer],
                                          .dim = hp->head_dim,
                                          .share = e->share.heads / e->share.kv_heads,
                                          .window = hp->window ? (uint32_t)hp->window[layer] : 0,
                                          .scale = hp->attn_scale,
                                          .softcap = hp->attn_softcap };
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    TSR_TRY(take_slopes(e, layer, &p, err));
    for (uint64_t first = 0; first < q->rows; first += p.n) {
        struct job j = { .p = &p, .failed = TSR_ERRBUF(j.failed) };
        p.n = part_of(e, first, q->rows);
        p.spans = (const uint32_t *)(const void *)(e->feed.host + spans->offset) + 2 * first;
        TSR_TRY(fetch(e, q, first, p.n, z->q, err));
        TSR_TRY(fetch(e, k, first, p.n, z->k, err));
        TSR_TRY(fetch(e, v, first, p.n, z->v, err));
        tsr_status st = tsr_pool_for(tsr_plugin_registry_pool(e->dev->registry), e->share.kv_heads,
                                     1, attend_heads, &j);
        if (st != TSR_OK)
            return j.has_failed ? tsr_err_prefix(err, tsr_err_copy(err, st, &j.failed.err),
                                                 "layer %llu", (unsigned long long)layer)
                                : st;
        struct tsr_tensor rows = tsr_engine_rows(out, first, p.n);
        TSR_TRY(tsr_engine_device_upload(e->dev, &rows, z->a, err));
    }
    return TSR_OK;
}
