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

#define CLASSES 4u   /* of places in a draft: 0, 1, 2 and 3, later ones */
#define WEIGHT  0.06 /* of a new id in the part of hits */
#define FIRST   6.0  /* ids that the first guess of a part counts for */
#define SPARE   0.01 /* of the time may go to tries */
#define HORIZON                                                                                    \
    256u /* tokens of an answer over which a first pass is spread, at most: it may end before */
#define RENEW (TSR_ENGINE_DRAFT_MOST + 1u) /* more ids than this are not those of one draft */

struct model_drafter {
    struct tsr_engine_drafter    base;
    struct tsr_engine           *e;
    uint64_t                     vocab, context; /* ids and positions that both models have */
    struct tsr_engine_draft_size size;
    uint32_t                     slots;
    struct tsr_tokenizer_ids    *held; /* [slots] ids in the cache */
    struct tsr_engine_token     *batch;
    uint64_t                     cap_batch, cap_rows;
    float                       *logits;  /* [cap_rows, vocab of e] */
    void                        *scratch; /* of the draw */
    double   hit[CLASSES];                /* part of the ids that came, where those before did */
    uint64_t ids[CLASSES];
    struct tsr_engine_draft_pace pace; /* of its own passes */
    double                       spare;
    bool                         broken;
};

static uint32_t class_of(uint32_t at)
{
    return at < 2 ? at : at < 4 ? 2 : 3;
}

static struct model_drafter *of(struct tsr_engine_drafter *d)
{
    return (struct model_drafter *)d;
}

/* Ids of the request that the cache has; the newest always runs. */
static uint64_t common(const struct model_drafter *d, const struct tsr_engine_draft_ask *a)
{
    const struct tsr_tokenizer_ids *h = &d->held[a->slot];
    uint64_t                        most = h->n < a->n ? h->n : a->n - 1, n = 0;
    while (n < most && h->v[n] == a->ids[n])
        n++;
    return n;
}

/* ---- gain and cost ---------------------------------------------------------------------- */

static void see(struct tsr_engine_drafter *base, struct tsr_engine_draft_ask *a, uint64_t n)
{
    const struct model_drafter *d = of(base);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t room = a[i].n <= d->context ? d->context - a[i].n + 1 : 0;
        a[i].most = d->broken ? 0 : a[i].most < room ? a[i].most : (uint32_t)room;
        a[i].has = a[i].most ? common(d, &a[i]) : 0;
        for (uint64_t k = a[i].has; a[i].most && k < a[i].n; k++)
            if (a[i].ids[k] >= d->vocab)
                a[i].most = 0;
    }
}

static double right(const struct tsr_engine_drafter *base, const struct tsr_engine_draft_ask *a,
                    uint32_t k)
{
    const struct model_drafter *d = (const struct model_drafter *)base;
    double                      all = 1, sum = 0;
    (void)a;
    for (uint32_t i = 0; i < k; i++) {
        all *= d->hit[class_of(i)];
        sum += all;
    }
    return sum;
}

/* A pass of its own, as measured or by its size. */
static double pass(const struct model_drafter *d, const struct tsr_engine_draft_pace *p,
                   uint64_t rows)
{
    double one = tsr_engine_draft_pass(&d->pace, rows);
    return one > 0 ? one : tsr_engine_draft_pass(p, rows) * d->size.bytes;
}

/* Seconds of ids that run before a draft.  More than a draft leaves are spread over the answer, of which a pass brings
 * `tokens` tokens. */
static double renewal(const struct model_drafter *d, const struct tsr_engine_draft_pace *p,
                      const struct tsr_engine_draft_ask *a, double tokens)
{
    uint64_t pending = a->n - a->has;
    double   one = d->pace.prompt > 0 ? d->pace.prompt
                   : p->prompt > 0    ? p->prompt * d->size.work
                                      : pass(d, p, 1);
    double   left = (double)(a->left < HORIZON ? a->left : HORIZON);
    return pending <= RENEW ? 0 : one * (double)pending * (tokens < left ? tokens / left : 1);
}

static double cost(const struct model_drafter *d, const struct tsr_engine_draft_pace *p,
                   const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k, bool whole)
{
    uint64_t first = 0, rows = 0;
    double   sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (a[i].most == 0)
            continue;
        uint64_t pending = a[i].n - a[i].has;
        uint32_t drafts = a[i].most < k ? a[i].most : k;
        rows++;
        first += pending <= RENEW ? pending : 1;
        sum += renewal(d, p, &a[i], whole ? HORIZON : 1 + right(&d->base, &a[i], drafts));
    }
    return rows == 0 ? 0 : sum + pass(d, p, first) + (double)(k - 1) * pass(d, p, rows);
}

static double seconds(const struct tsr_engine_drafter *base, const struct tsr_engine_draft_pace *p,
                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k)
{
    return cost((const struct model_drafter *)base, p, a, n, k, false);
}

static bool tries(struct tsr_engine_drafter *base, const struct tsr_engine_draft_pace *p,
                  const struct tsr_engine_draft_ask *a, uint64_t n, double plain)
{
    struct model_drafter *d = of(base);
    d->spare += plain * SPARE;
    uint64_t rows = n;
    for (uint64_t i = 0; i < n; i++)
        rows += a[i].most < 2 ? a[i].most : 2;
    double all =
        cost(d, p, a, n, 2, true) + tsr_engine_draft_pass(p, rows) - tsr_engine_draft_pass(p, n);
    if (rows == n || rows > TSR_ENGINE_DRAFT_ROWS || !(all <= d->spare))
        return false;
    d->spare -= all;
    return true;
}

static void came(struct tsr_engine_drafter *base, uint32_t n, bool missed)
{
    struct model_drafter *d = of(base);
    for (uint32_t i = 0; i < n + missed; i++) {
        double *hit = &d->hit[class_of(i)];
        double  weight = 1.0 / (FIRST + (double)d->ids[class_of(i)]++);
        *hit += ((i < n ? 1.0 : 0.0) - *hit) * (weight > WEIGHT ? weight : WEIGHT);
    }
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

/* The slot's cache keeps what it has of the request; how many ids that are. */
static uint64_t go_back(struct model_drafter *d, const struct tsr_engine_draft_ask *a)
{
    struct tsr_tokenizer_ids *h = &d->held[a->slot];
    uint64_t                  n = common(d, a);
    if (n < h->n) {
        n = n ? tsr_engine_rewind(d->e, a->slot, n) : 0;
        if (n == 0)
            tsr_engine_reset(d->e, a->slot);
        h->n = n;
    }
    return n;
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
            need += a[i].n - go_back(d, &a[i]);
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
        tsr_engine_draft_prompt_took(&d->pace, tokens, s);
    else
        tsr_engine_draft_took(&d->pace, tokens, s);
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
        d->held[a[i].slot].n = 0;
        a[i].want = 0;
    }
    if (st != TSR_E_NUMERIC)
        return tsr_err_prefix(err, st, "the draft model");
    d->broken = true; /* answers do not need drafts */
    tsr_logf(TSR_LOG_WARN, "no more drafts: the draft model: %s", err->text);
    return TSR_OK;
}

/* ---- life -------------------------------------------------------------------------------- */

tsr_status tsr_engine_draft_model_create(struct tsr_engine_drafter **out, struct tsr_engine *e,
                                         uint64_t vocab, const struct tsr_engine_draft_size *size,
                                         struct tsr_err *err)
{
    static const double             first[CLASSES] = { 0.75, 0.75, 0.8, 0.8 };
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
        .see = see, .right = right, .seconds = seconds, .tries = tries, .make = make, .came = came
    };
    uint64_t weights, cache;
    tsr_engine_memory(e, &weights, &cache);
    d->base.bytes = weights + cache;
    d->e = e;
    d->size = *size;
    d->vocab = vocab < tsr_engine_vocab(e) ? vocab : tsr_engine_vocab(e);
    d->context = tsr_engine_context(e);
    d->slots = tsr_engine_slots(e);
    d->held = tsr_new(d->slots, sizeof *d->held);
    d->scratch = tsr_new_aligned(d->vocab, 16);
    memcpy(d->hit, first, sizeof first);
    if (!d->held || !d->scratch) {
        tsr_engine_draft_model_destroy(&d->base);
        return tsr_fail_nomem(err, d->vocab * 16, "a draft model");
    }
    for (uint32_t i = 0; i < d->slots; i++)
        tsr_engine_reset(e, i);
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
    free(d->batch);
    free(d->logits);
    free(d->scratch);
    free(d);
}
