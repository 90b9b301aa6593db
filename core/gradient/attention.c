/* Causal attention of one head of keys and its heads of queries at a time, each sequence on its own.
 *
 *   P = softmax(scale Q K^T)   A = P V
 *   dV = P^T dA   dP = dA V^T   dS = P (dP - sum(P dP))   dQ = scale dS K   dK = scale dS^T Q            */
#include "gradient/internal.h"

#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct attention {
    const struct pass *p;
    bool               back;
    uint64_t           failed_at; /* earliest item that failed */
    tsr_status         failed;
    struct tsr_err    *err;
    pthread_mutex_t    lock; /* guards the three above */
};

/* One head of queries with its head of keys, rows `wide` or `kv` floats apart. */
struct head {
    const float *q, *k, *v, *da;
    float       *a, *dq, *dk, *dv;
    float       *score, *dscore, *turned; /* [tokens, tokens] each */
};

/* P into h->score. */
static tsr_status probabilities(const struct pass *p, const struct head *h, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = p->job->linalg;
    uint64_t n = p->job->tokens, window = p->hp->window ? p->hp->window[p->job->layer] : 0;
    memset(h->score, 0, n * n * sizeof *h->score);
    TSR_TRY(la->gemm(la->ctx, n, n, p->hp->head_dim, p->hp->attn_scale, h->q, p->wide, h->k, p->kv,
                     1, h->score, n, err));
    for (uint64_t i = 0; i < n; i++) {
        float   *s = h->score + i * n, top = -INFINITY;
        uint64_t first = window && i + 1 > window ? i + 1 - window : 0;
        double   sum = 0.0;
        for (uint64_t j = first; j <= i; j++)
            top = s[j] > top ? s[j] : top;
        for (uint64_t j = 0; j < n; j++) {
            s[j] = j >= first && j <= i ? expf(s[j] - top) : 0.0f;
            sum += (double)s[j];
        }
        for (uint64_t j = first; j <= i; j++)
            s[j] = (float)((double)s[j] / sum);
    }
    return TSR_OK;
}

static void turn(const float *from, float *to, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++)
            to[j * n + i] = from[i * n + j];
}

static tsr_status head_back(const struct pass *p, const struct head *h, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = p->job->linalg;
    uint64_t                    n = p->job->tokens, dim = p->hp->head_dim;
    float                       scale = p->hp->attn_scale;
    turn(h->score, h->turned, n);
    TSR_TRY(la->gemm(la->ctx, n, dim, n, 1.0f, h->turned, n, h->da, p->wide, 0, h->dv, p->kv, err));
    memset(h->dscore, 0, n * n * sizeof *h->dscore);
    TSR_TRY(la->gemm(la->ctx, n, n, dim, 1.0f, h->da, p->wide, h->v, p->kv, 1, h->dscore, n, err));
    for (uint64_t i = 0; i < n; i++) {
        const float *s = h->score + i * n;
        float       *d = h->dscore + i * n;
        double       sum = 0.0;
        for (uint64_t j = 0; j <= i; j++)
            sum += (double)s[j] * (double)d[j];
        for (uint64_t j = 0; j < n; j++) /* P is 0 where a token does not look */
            d[j] = (float)((double)s[j] * ((double)d[j] - sum));
    }
    TSR_TRY(la->gemm(la->ctx, n, dim, n, scale, h->dscore, n, h->k, p->kv, 0, h->dq, p->wide, err));
    turn(h->dscore, h->turned, n);
    return la->gemm(la->ctx, n, dim, n, scale, h->turned, n, h->q, p->wide, 0, h->dk, p->kv, err);
}

/* All heads of queries of one head of keys, in order: their sums into dk and dv repeat. */
static tsr_status group(const struct attention *k, uint64_t sequence, uint64_t kv_head,
                        float *scores, struct tsr_err *err)
{
    const struct pass *p = k->p;
    uint64_t n = p->job->tokens, dim = p->hp->head_dim, share = p->hp->heads / p->hp->kv_heads;
    uint64_t keys = sequence * n * p->kv + kv_head * dim;
    for (uint64_t i = 0; i < share; i++) {
        uint64_t    queries = sequence * n * p->wide + (kv_head * share + i) * dim;
        struct head h = { .q = p->q + queries,
                          .k = p->k + keys,
                          .v = p->v + keys,
                          .a = p->a + queries,
                          .score = scores,
                          .dscore = scores + n * n,
                          .turned = scores + 2 * n * n };
        TSR_TRY(probabilities(p, &h, err));
        if (!k->back) {
            const struct tsr_linalg_v1 *la = p->job->linalg;
            TSR_TRY(
                la->gemm(la->ctx, n, dim, n, 1.0f, h.score, n, h.v, p->kv, 0, h.a, p->wide, err));
            continue;
        }
        h.da = p->da + queries;
        h.dq = p->dq + queries;
        h.dk = p->dk + keys;
        h.dv = p->dv + keys;
        TSR_TRY(head_back(p, &h, err));
    }
    return TSR_OK;
}

static tsr_status body(void *arg, uint64_t begin, uint64_t end)
{
    struct attention *k = arg;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          n = k->p->job->tokens, floats = 0;
    bool              fits = tsr_mul(n, n, &floats) && tsr_mul(floats, k->back ? 3 : 1, &floats);
    float            *scores = fits ? tsr_new_aligned(floats, sizeof *scores) : NULL;
    tsr_status        st =
        scores ? TSR_OK : tsr_fail_nomem(&e.err, floats * sizeof *scores, "scores of attention");
    for (uint64_t i = begin; i < end && st == TSR_OK; i++)
        st = group(k, i / k->p->hp->kv_heads, i % k->p->hp->kv_heads, scores, &e.err);
    free(scores);
    if (st == TSR_OK)
        return st;
    (void)pthread_mutex_lock(&k->lock);
    if (begin < k->failed_at) {
        k->failed_at = begin;
        k->failed = tsr_err_copy(k->err, st, &e.err);
    }
    (void)pthread_mutex_unlock(&k->lock);
    return st;
}

static tsr_status run(const struct pass *p, bool back, struct tsr_err *err)
{
    const struct tsr_host *host = p->job->host;
    struct attention       k = { .p = p, .back = back, .failed_at = UINT64_MAX, .err = err };
    (void)pthread_mutex_init(&k.lock, NULL);
    tsr_status st = host->parallel_for(host->ctx, p->job->sequences * p->hp->kv_heads, 1, body, &k);
    (void)pthread_mutex_destroy(&k.lock);
    return st == TSR_OK || k.failed_at == UINT64_MAX ? st : k.failed;
}

tsr_status gradient_attention(const struct pass *p, struct tsr_err *err)
{
    memset(p->a, 0, p->n * p->wide * sizeof *p->a);
    return run(p, false, err);
}

tsr_status gradient_attention_back(const struct pass *p, struct tsr_err *err)
{
    memset(p->dq, 0, p->n * p->wide * sizeof *p->dq);
    memset(p->dk, 0, p->n * p->kv * sizeof *p->dk);
    memset(p->dv, 0, p->n * p->kv * sizeof *p->dv);
    return run(p, true, err);
}
