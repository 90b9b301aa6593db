/* draft_model.c - drafts of another model: its own cache of each slot, the same draw, and what it costs.
 *
 *   what the slot's cache has and the request's ids -> the beginning that both have stays -> the other ids run
 *   -> draw, run, draw ... -> ids of the draft, all but the last in the cache
 *
 * The cache is brought up to date when a draft is made, never before: without drafts it costs nothing.
 */
#include "engine/drafter.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct model_drafter {
    struct tsr_engine_drafter     base;
    struct tsr_engine            *e;
    uint64_t                      vocab, context; /* ids and positions that both models have */
    uint32_t                      slots;
    struct tsr_tokenizer_ids     *held; /* [slots] ids of the text; the cache has those */
    uint64_t                     *from; /* [slots] from here on */
    struct tsr_engine_token      *batch;
    uint64_t                      cap_batch, cap_rows;
    float                        *logits;  /* [cap_rows, vocab of e] */
    void                         *scratch; /* of the draw */
    struct tsr_engine_draft_costs costs;
    bool                          broken;
};

static struct model_drafter *of(struct tsr_engine_drafter *d)
{
    return (struct model_drafter *)d;
}

/* Ids of the request that the text of the slot begins with; the newest always runs. */
static uint64_t common(const struct model_drafter *d, const struct tsr_engine_draft_ask *a)
{
    const struct tsr_tokenizer_ids *h = &d->held[a->slot];
    uint64_t                        most = h->n < a->n ? h->n : a->n - 1, n = 0;
    while (n < most && h->v[n] == a->ids[n])
        n++;
    return n;
}

/* ---- gain and cost ---------------------------------------------------------------------- */

static void see(struct tsr_engine_drafter *base, const struct tsr_engine_draft_pace *p,
                struct tsr_engine_draft_ask *a, uint64_t n, double spare)
{
    const struct model_drafter *d = of(base);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t room = a[i].n <= d->context ? d->context - a[i].n + 1 : 0;
        a[i].most = d->broken ? 0 : a[i].most < room ? a[i].most : (uint32_t)room;
        if (a[i].most)
            tsr_engine_draft_costs_window(&d->costs, p, &a[i], d->from[a[i].slot], common(d, &a[i]),
                                          spare / (double)n);
        for (uint64_t k = a[i].has; a[i].most && k < a[i].n; k++)
            if (a[i].ids[k] >= d->vocab)
                a[i].most = 0;
    }
}

static double right(const struct tsr_engine_drafter *base, const struct tsr_engine_draft_ask *a,
                    uint32_t k)
{
    (void)a;
    return tsr_engine_draft_costs_right(&((const struct model_drafter *)base)->costs, k);
}

static double seconds(const struct tsr_engine_drafter *base, const struct tsr_engine_draft_pace *p,
                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k, bool most)
{
    return tsr_engine_draft_costs_seconds(&((const struct model_drafter *)base)->costs, p, a, n, k,
                                          most);
}

static void came(struct tsr_engine_drafter *base, uint32_t n, bool missed)
{
    tsr_engine_draft_costs_came(&of(base)->costs, n, missed);
}

/* ---- drafts ------------------------------------------------------------------------------ */

static tsr_status reserve(struct model_drafter *d, uint64_t tokens, uint64_t rows,
                          struct tsr_err *err)
{
    if (tokens > d->cap_batch) {
        struct tsr_engine_token *b = tsr_renew(d->batch, tokens, sizeof *b);
        if (!b)
            return tsr_fail_nomem(err, tokens * sizeof *b, "a batch of the draft model");
        d->batch = b;
        d->cap_batch = tokens;
    }
    if (rows > d->cap_rows) {
        uint64_t floats;
        float   *v = tsr_mul(rows, tsr_engine_vocab(d->e), &floats)
                         ? tsr_new_aligned(floats, sizeof *v)
                         : NULL;
        if (!v)
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: logits of %llu drafts",
                            (unsigned long long)rows);
        free(d->logits);
        d->logits = v;
        d->cap_rows = rows;
    }
    return TSR_OK;
}

/* The slot's cache keeps what it has of the request; the end of that in its ids. */
static tsr_status go_back(struct model_drafter *d, const struct tsr_engine_draft_ask *a,
                          uint64_t *has, struct tsr_err *err)
{
    struct tsr_tokenizer_ids *h = &d->held[a->slot];
    uint64_t                  n = common(d, a), kept = 0;
    if (d->from[a->slot] == a->from && n > a->from)
        kept = n < h->n ? tsr_engine_rewind(d->e, a->slot, n - a->from) : n - a->from;
    if (kept == 0) {
        tsr_engine_reset(d->e, a->slot);
        d->from[a->slot] = a->from;
        h->n = 0;
        for (uint64_t i = 0; i < a->from; i++)
            TSR_TRY(tsr_tokenizer_ids_push(h, a->ids[i], err));
    }
    *has = h->n = a->from + kept;
    return TSR_OK;
}

static tsr_status put(struct model_drafter *d, uint64_t *at, const struct tsr_engine_draft_ask *a,
                      uint32_t id, bool last, bool decode, struct tsr_err *err)
{
    TSR_TRY(tsr_tokenizer_ids_push(&d->held[a->slot], id, err));
    d->batch[(*at)++] =
        (struct tsr_engine_token){ .id = id, .slot = a->slot, .logits = last, .decode = decode };
    return TSR_OK;
}

/* The ids that the cache lacks. */
static tsr_status gather(struct model_drafter *d, struct tsr_engine_draft_ask *a, uint64_t n,
                         uint64_t *tokens, struct tsr_err *err)
{
    uint64_t need = 0, rows = 0;
    *tokens = 0;
    for (uint64_t i = 0; i < n; i++)
        if (a[i].want) {
            uint64_t has;
            TSR_TRY(go_back(d, &a[i], &has, err));
            need += a[i].n - has;
            rows++;
        }
    TSR_TRY(reserve(d, need, rows, err));
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = a[i].want ? d->held[a[i].slot].n : a[i].n; k < a[i].n; k++)
            TSR_TRY(put(d, tokens, &a[i], a[i].ids[k], k + 1 == a[i].n, k >= a[i].n_prompt, err));
    return TSR_OK;
}

static tsr_status forward(struct model_drafter *d, uint64_t tokens, struct tsr_err *err)
{
    double since = tsr_now_s();
    TSR_TRY(tsr_engine_forward(d->e, d->batch, tokens, d->logits, err));
    double s = tsr_now_s() - since;
    if (tokens > TSR_ENGINE_DRAFT_ROWS)
        tsr_engine_draft_prompt_took(&d->costs.pace, tokens, s);
    else
        tsr_engine_draft_took(&d->costs.pace, tokens, s);
    d->base.tokens += tokens;
    d->base.took += s;
    return TSR_OK;
}

static bool ends(const struct tsr_model_hparams *hp, const struct tsr_engine_draft_ask *a,
                 uint32_t id)
{
    for (uint32_t i = 0; !a->ignore_eos && i < hp->n_eos; i++)
        if (hp->eos[i] == id)
            return true;
    return false;
}

/* The id that the request would have next, had it these logits. */
static tsr_status draw(struct model_drafter *d, const struct tsr_engine_draft_ask *a,
                       const float *logits, uint32_t *id, struct tsr_err *err)
{
    struct tsr_engine_chain         none = { 0 };
    const struct tsr_tokenizer_ids *h = &d->held[a->slot]; /* its ids and the draft so far */
    return tsr_engine_chain_next(&none, logits, d->vocab, a->sampling, h->v, a->n_prompt, h->n,
                                 a->record, d->scratch, id, err);
}

/* Ids of drafts, one of each request in a pass. */
static tsr_status run(struct model_drafter *d, const struct tsr_model_hparams *hp,
                      struct tsr_engine_draft_ask *a, uint64_t n, uint64_t tokens, uint32_t most,
                      struct tsr_err *err)
{
    for (uint32_t k = 0; k < most && tokens; k++) {
        uint64_t row = 0, next = 0;
        TSR_TRY(forward(d, tokens, err));
        for (uint64_t i = 0; i < n; i++) {
            uint32_t id = 0;
            if (k >= a[i].want) /* its draft is whole */
                continue;
            TSR_TRY(draw(d, &a[i], d->logits + row++ * tsr_engine_vocab(d->e), &id, err));
            a[i].out[k] = id;
            if (ends(hp, &a[i], id))
                a[i].want = k;
            else if (k + 1 < a[i].want)
                TSR_TRY(put(d, &next, &a[i], id, true, true, err));
        }
        tokens = next;
    }
    return TSR_OK;
}

/* Answers do not need drafts. */
static tsr_status fault(struct model_drafter *d, tsr_status st, struct tsr_err *err)
{
    if (st != TSR_E_NUMERIC)
        return tsr_err_prefix(err, st, "the draft model");
    d->broken = true;
    tsr_logf(TSR_LOG_WARN, "no more drafts: the draft model: %s", err->text);
    return TSR_OK;
}

static tsr_status make(struct tsr_engine_drafter *base, const struct tsr_model_hparams *hp,
                       struct tsr_engine_draft_ask *a, uint64_t n, struct tsr_err *err)
{
    struct model_drafter *d = of(base);
    uint64_t              tokens = 0;
    uint32_t              most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = a[i].want > most ? a[i].want : most;
    tsr_status st = gather(d, a, n, &tokens, err);
    if (st == TSR_OK)
        st = run(d, hp, a, n, tokens, most, err);
    if (st == TSR_OK)
        return TSR_OK;
    for (uint64_t i = 0; i < n; i++) {
        tsr_engine_reset(d->e, a[i].slot);
        d->held[a[i].slot].n = d->from[a[i].slot] = 0;
        a[i].want = 0;
    }
    return fault(d, st, err);
}

/* Passes of 1 and of the least ids of a text, twice: the first ones find their memory. */
static tsr_status warm_up(struct model_drafter *d, struct tsr_err *err)
{
    uint64_t most = d->context < TSR_ENGINE_DRAFT_LEAST ? d->context : TSR_ENGINE_DRAFT_LEAST;
    TSR_TRY(reserve(d, most, 1, err));
    for (int i = 0; i < 4; i++) {
        uint64_t n = i % 2 ? most : 1;
        for (uint64_t k = 0; k < n; k++)
            d->batch[k] = (struct tsr_engine_token){ .logits = k + 1 == n, .decode = n == 1 };
        double     since = tsr_now_s();
        tsr_status st = tsr_engine_forward(d->e, d->batch, n, d->logits, err);
        double     took = tsr_now_s() - since;
        tsr_engine_reset(d->e, 0);
        if (st != TSR_OK)
            return fault(d, st, err);
        if (i >= 2)
            tsr_engine_draft_took(&d->costs.pace, n, took);
        if (i == 3)
            tsr_engine_draft_prompt_took(&d->costs.pace, n, took);
    }
    return TSR_OK;
}

/* ---- life -------------------------------------------------------------------------------- */

tsr_status tsr_engine_draft_model_create(struct tsr_engine_drafter **out, struct tsr_engine *e,
                                         uint64_t vocab, const struct tsr_engine_draft_size *size,
                                         struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &tsr_engine_model(e)->hp;
    *out = NULL;
    for (uint64_t i = 0; i < hp->layers; i++)
        if (tsr_model_is_recurrent(hp, i))
            return tsr_fail(err, TSR_E_UNSUPPORTED,
                            "a layer has a state, which cannot go back to before a draft");
    struct model_drafter *d = tsr_new(1, sizeof *d);
    if (!d)
        return tsr_fail_nomem(err, sizeof *d, "a draft model");
    d->base = (struct tsr_engine_drafter){
        .see = see, .right = right, .seconds = seconds, .make = make, .came = came, .tries = true
    };
    uint64_t weights, cache;
    tsr_engine_memory(e, &weights, &cache);
    d->base.bytes = weights + cache;
    d->e = e;
    tsr_engine_draft_costs_start(&d->costs, size);
    d->vocab = vocab < tsr_engine_vocab(e) ? vocab : tsr_engine_vocab(e);
    d->context = tsr_engine_context(e);
    d->slots = tsr_engine_slots(e);
    d->held = tsr_new(d->slots, sizeof *d->held);
    d->scratch = tsr_new_aligned(d->vocab, TSR_ENGINE_DRAW_BYTES);
    d->from = tsr_new(d->slots, sizeof *d->from);
    tsr_status st = d->held && d->scratch && d->from
                        ? TSR_OK
                        : tsr_fail_nomem(err, d->vocab * 16, "a draft model");
    for (uint32_t i = 0; i < d->slots; i++)
        tsr_engine_reset(e, i);
    if (st == TSR_OK)
        st = warm_up(d, err);
    if (st != TSR_OK) {
        tsr_engine_draft_model_destroy(&d->base);
        return st;
    }
    *out = &d->base;
    return TSR_OK;
}

void tsr_engine_draft_model_destroy(struct tsr_engine_drafter *base)
{
    struct model_drafter *d = base ? of(base) : NULL;
    if (!d)
        return;
    for (uint32_t i = 0; d->held && i < d->slots; i++)
        tsr_tokenizer_ids_free(&d->held[i]);
    free(d->held);
    free(d->from);
    free(d->batch);
    free(d->logits);
    free(d->scratch);
    free(d);
}
