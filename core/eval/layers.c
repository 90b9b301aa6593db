/* Windows through one layer after the other. */
#include "eval/layers.h"

#include "base/mem.h"
#include "engine/stream.h"

#include <stdlib.h>

struct tsr_eval_layers {
    struct tsr_stream             *s;
    const struct tsr_model        *m;
    const struct tsr_eval_windows *w;
    float                         *h;       /* [at_once][longest, hidden] */
    uint64_t                       longest; /* tokens of a window; its last is only a label */
    uint64_t at_once, at; /* windows at .. at + n are in h, after the last layer */
    uint64_t n;
};

static uint64_t tokens_of(const struct tsr_eval_layers *l, uint64_t window)
{
    return l->w->start[window + 1] - l->w->start[window] - 1;
}

static tsr_status make(struct tsr_eval_layers *l, struct tsr_registry *r, uint32_t act,
                       const struct tsr_plugin_run_on *on, struct tsr_err *err)
{
    uint64_t n, room;
    for (uint64_t i = 0; i < l->w->n; i++)
        l->longest = tokens_of(l, i) > l->longest ? tokens_of(l, i) : l->longest;
    bool fits = tsr_mul(l->at_once, l->longest, &n) && tsr_mul(n, l->m->hp.hidden, &room) &&
                (l->h = tsr_new_aligned(room, sizeof *l->h));
    if (!fits)
        return tsr_fail(err, TSR_E_NOMEM,
                        "hidden states of %llu windows need more memory than there is; take fewer "
                        "through a layer at once",
                        (unsigned long long)l->at_once);
    return tsr_engine_stream_create(&l->s, r, l->m, l->longest, act, on, err);
}

tsr_status tsr_eval_layers_open(struct tsr_eval_layers **out, struct tsr_registry *r,
                                const struct tsr_model *m, const struct tsr_eval_windows *w,
                                uint64_t at_once, uint32_t act, const struct tsr_plugin_run_on *on,
                                struct tsr_err *err)
{
    TSR_TRY(tsr_model_plain(m, "read layer by layer", err));
    struct tsr_eval_layers *l = tsr_new(1, sizeof *l);
    if (!l)
        return tsr_fail_nomem(err, sizeof *l, "an evaluation by layers");
    l->m = m;
    l->w = w;
    l->at_once = at_once < w->n ? at_once : w->n;
    tsr_status st = make(l, r, act, on, err);
    if (st != TSR_OK) {
        tsr_eval_layers_close(l);
        return st;
    }
    *out = l;
    return TSR_OK;
}

void tsr_eval_layers_close(struct tsr_eval_layers *l)
{
    if (!l)
        return;
    tsr_engine_stream_destroy(l->s);
    free(l->h);
    free(l);
}

struct tsr_engine *tsr_eval_layers_engine(const struct tsr_eval_layers *l)
{
    return tsr_engine_stream_engine(l->s);
}

static float *states_of(const struct tsr_eval_layers *l, uint64_t window)
{
    return l->h + (window - l->at) * l->longest * l->m->hp.hidden;
}

/* Windows from `first` on through all layers. */
static tsr_status pass(struct tsr_eval_layers *l, uint64_t first, struct tsr_err *err)
{
    uint64_t left = l->w->n - first, n = l->at_once < left ? l->at_once : left;
    l->at = first;
    l->n = 0;
    for (uint64_t i = first; i < first + n; i++)
        TSR_TRY(tsr_engine_stream_embed(l->s, l->w->ids + l->w->start[i], tokens_of(l, i),
                                        states_of(l, i), err));
    for (uint64_t layer = 0; layer < l->m->hp.layers; layer++) {
        TSR_TRY(tsr_engine_stream_open_layer(l->s, layer, NULL, err));
        for (uint64_t i = first; i < first + n; i++)
            TSR_TRY(tsr_engine_stream_run(l->s, states_of(l, i), tokens_of(l, i), states_of(l, i),
                                          err));
    }
    l->n = n;
    return TSR_OK;
}

tsr_status tsr_eval_layers_logits(struct tsr_eval_layers *l, uint64_t window, uint64_t first,
                                  uint64_t n, float *logits, struct tsr_err *err)
{
    if (window >= l->w->n || first > tokens_of(l, window) || n > tokens_of(l, window) - first)
        return tsr_fail(err, TSR_E_BUG, "positions past the end of window %llu",
                        (unsigned long long)window);
    if (window < l->at || window >= l->at + l->n)
        TSR_TRY(pass(l, window, err));
    return tsr_engine_stream_head(l->s, states_of(l, window) + first * l->m->hp.hidden, n, logits,
                                  err);
}
