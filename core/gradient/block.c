/* A layer forward, and backward from the error of its output.  The derivative of the residual stream is p->dh, from
 * the output down. */
#include "gradient/internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRAIN 16u /* tokens */

/* ---- memory ----------------------------------------------------------------------- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Gives every array its place in memory, which may be NULL; *floats is what all take.  False: too many. */
static bool place(struct pass *p, uint64_t *floats)
{
    uint64_t hidden = p->hidden, wide = p->wide, kv = p->kv, ffn = p->ffn, at = 0;
    uint64_t half = p->hp->rope.dim / 2, widest = larger(larger(hidden, wide), larger(kv, ffn));
    bool     normed = p->l->q_norm.gain != NULL, gated = p->hp->gated, fits = true;
    struct {
        float  **to;
        uint64_t rows, cols;
    } arrays[] = {
        { &p->x1, p->n, hidden },
        { &p->x2, p->n, hidden },
        { &p->h2, p->n, hidden },
        { &p->dh, p->n, hidden },
        { &p->y, p->n, hidden },
        { &p->q, p->n, wide },
        { &p->k, p->n, kv },
        { &p->v, p->n, kv },
        { &p->a, p->n, wide },
        { &p->dq, p->n, wide },
        { &p->dk, p->n, kv },
        { &p->dv, p->n, kv },
        { &p->da, p->n, wide },
        { &p->q0, normed ? p->n : 0, wide },
        { &p->k0, normed ? p->n : 0, kv },
        { &p->up, p->n, ffn },
        { &p->gate, gated ? p->n : 0, ffn },
        { &p->act, p->n, ffn },
        { &p->dact, p->n, ffn },
        { &p->turned, p->n, widest },
        { &p->cosine, p->job->tokens, half },
        { &p->sine, p->job->tokens, half },
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        uint64_t size;
        *arrays[i].to = p->memory ? p->memory + at : NULL;
        fits = fits && tsr_mul(arrays[i].rows, arrays[i].cols, &size) && tsr_add(size, 15, &size) &&
               tsr_add(at, size / 16 * 16, &at); /* rows of 64 bytes */
    }
    if (!normed) {
        p->q0 = p->q;
        p->k0 = p->k;
    }
    if (!gated)
        p->gate = p->up;
    *floats = at;
    return fits;
}

static bool pass_of(struct pass *p, const struct tsr_gradient_job *job, uint64_t *floats)
{
    const struct tsr_model_hparams *hp = &job->model->hp;
    *p = (struct pass){ .job = job,
                        .hp = hp,
                        .l = &job->model->layers[job->layer],
                        .hidden = hp->hidden,
                        .wide = (uint64_t)hp->heads * hp->head_dim,
                        .kv = (uint64_t)hp->kv_heads * hp->head_dim,
                        .ffn = hp->ffn };
    return tsr_mul(job->sequences, job->tokens, &p->n) && place(p, floats);
}

uint64_t tsr_gradient_bytes(const struct tsr_model *m, uint64_t sequences, uint64_t tokens,
                            uint64_t threads)
{
    struct tsr_gradient_job job = { .model = m, .sequences = sequences, .tokens = tokens };
    struct pass             p;
    uint64_t                floats, scores;
    if (!pass_of(&p, &job, &floats) || !tsr_mul(tokens, tokens, &scores) ||
        !tsr_mul(scores, 3 * threads, &scores) || !tsr_add(floats, scores, &floats) ||
        !tsr_mul(floats, sizeof(float), &floats) || !tsr_mul(p.n, sizeof(double), &scores) ||
        !tsr_add(floats, scores, &floats))
        return UINT64_MAX;
    return floats;
}

/* ---- the residual stream ----------------------------------------------------------- */

struct sum {
    const struct pass *p;
    const float       *a, *b;
    float             *to;
    float              scale;
};

/* to = a + scale b */
static tsr_status add_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct sum *k = arg;
    for (uint64_t i = begin * k->p->hidden; i < end * k->p->hidden; i++)
        k->to[i] = (k->a ? k->a[i] : 0.0f) + k->scale * k->b[i];
    return TSR_OK;
}

static tsr_status add(const struct pass *p, const float *a, const float *b, float *to)
{
    const struct tsr_host *host = p->job->host;
    struct sum             k = { .p = p, .a = a, .b = b, .to = to, .scale = p->hp->residual_scale };
    return host->parallel_for(host->ctx, p->n, GRAIN, add_rows, &k);
}

/* What goes back into a sub-layer: dh, scaled as the sub-layer's output is. */
static tsr_status enter(const struct pass *p, const float **dy)
{
    *dy = p->dh;
    if (p->hp->residual_scale == 1.0f)
        return TSR_OK;
    *dy = p->y;
    return add(p, NULL, p->dh, p->y);
}

/* ---- forward -------------------------------------------------------------------------- */

static tsr_status heads_forward(const struct pass *p, struct tsr_err *err)
{
    const struct tsr_model_layer *l = p->l;
    uint64_t heads = p->hp->heads, keys = p->hp->kv_heads, dim = p->hp->head_dim;
    TSR_TRY(gradient_linear(p, TSR_MODEL_Q, p->x1, p->q0, err));
    TSR_TRY(gradient_linear(p, TSR_MODEL_K, p->x1, p->k0, err));
    TSR_TRY(gradient_linear(p, TSR_MODEL_V, p->x1, p->v, err));
    if (l->q_norm.gain) {
        TSR_TRY(gradient_norm(p, &l->q_norm, p->q0, p->n * heads, dim, p->q));
        TSR_TRY(gradient_norm(p, &l->k_norm, p->k0, p->n * keys, dim, p->k));
    }
    TSR_TRY(gradient_rope(p, p->q, heads, false));
    return gradient_rope(p, p->k, keys, false);
}

static tsr_status forward(const struct pass *p, struct tsr_err *err)
{
    const struct tsr_model_layer *l = p->l;
    TSR_TRY(gradient_norm(p, &l->attn_in, p->job->in, p->n, p->hidden, p->x1));
    TSR_TRY(heads_forward(p, err));
    TSR_TRY(gradient_attention(p, err));
    TSR_TRY(gradient_linear(p, TSR_MODEL_O, p->a, p->y, err));
    TSR_TRY(add(p, p->job->in, p->y, p->h2));
    TSR_TRY(gradient_norm(p, &l->ffn_in, p->h2, p->n, p->hidden, p->x2));
    if (p->hp->gated)
        TSR_TRY(gradient_linear(p, TSR_MODEL_GATE, p->x2, p->gate, err));
    TSR_TRY(gradient_linear(p, TSR_MODEL_UP, p->x2, p->up, err));
    TSR_TRY(gradient_act(p));
    TSR_TRY(gradient_linear(p, TSR_MODEL_DOWN, p->act, p->y, err));
    return add(p, p->h2, p->y, p->y);
}

/* Of the output in p->y: dh = 2 (y - target) / size, and the squares of a row. */
static tsr_status differ(void *arg, uint64_t begin, uint64_t end)
{
    const struct pass *p = arg;
    double             size = (double)p->n * (double)p->hidden;
    for (uint64_t i = begin; i < end; i++) {
        p->row[i] = 0.0;
        for (uint64_t c = i * p->hidden; c < (i + 1) * p->hidden; c++) {
            double d = (double)p->y[c] - (double)p->job->target[c];
            p->row[i] += d * d;
            p->dh[c] = (float)(2.0 * d / size);
        }
    }
    return TSR_OK;
}

static tsr_status error_of(struct pass *p, double *mse, struct tsr_err *err)
{
    const struct tsr_host *host = p->job->host;
    double                 sum = 0.0;
    TSR_TRY(host->parallel_for(host->ctx, p->n, GRAIN, differ, p));
    for (uint64_t i = 0; i < p->n; i++)
        sum += p->row[i];
    *mse = sum / ((double)p->n * (double)p->hidden);
    if (!isfinite(*mse))
        return tsr_fail(err, TSR_E_NUMERIC, "layer %llu: the error of its output is %g",
                        (unsigned long long)p->job->layer, *mse);
    if (p->job->out)
        memcpy(p->job->out, p->y, p->n * p->hidden * sizeof *p->y);
    return TSR_OK;
}

/* ---- backward ---------------------------------------------------------------------------- */

static tsr_status feed_forward_back(const struct pass *p, struct tsr_err *err)
{
    const float *dy;
    TSR_TRY(enter(p, &dy));
    memset(p->dact, 0, p->n * p->ffn * sizeof *p->dact);
    TSR_TRY(gradient_linear_back(p, TSR_MODEL_DOWN, p->act, dy, p->dact, err));
    TSR_TRY(gradient_act_back(p));
    memset(p->y, 0, p->n * p->hidden * sizeof *p->y);
    if (p->hp->gated)
        TSR_TRY(gradient_linear_back(p, TSR_MODEL_GATE, p->x2, p->gate, p->y, err));
    TSR_TRY(gradient_linear_back(p, TSR_MODEL_UP, p->x2, p->up, p->y, err));
    return gradient_norm_back(p, &p->l->ffn_in, p->h2, p->y, p->n, p->hidden, false, p->dh);
}

/* Only the weights are learned, so what is before the linears of x1 is left out. */
static tsr_status attention_back(const struct pass *p, struct tsr_err *err)
{
    const struct tsr_model_layer *l = p->l;
    uint64_t     heads = p->hp->heads, keys = p->hp->kv_heads, dim = p->hp->head_dim;
    const float *dy;
    TSR_TRY(enter(p, &dy));
    memset(p->da, 0, p->n * p->wide * sizeof *p->da);
    TSR_TRY(gradient_linear_back(p, TSR_MODEL_O, p->a, dy, p->da, err));
    if (!p->job->dw[TSR_MODEL_Q] && !p->job->dw[TSR_MODEL_K] && !p->job->dw[TSR_MODEL_V])
        return TSR_OK;
    TSR_TRY(gradient_attention_back(p, err));
    TSR_TRY(gradient_rope(p, p->dq, heads, true));
    TSR_TRY(gradient_rope(p, p->dk, keys, true));
    if (l->q_norm.gain) {
        TSR_TRY(gradient_norm_back(p, &l->q_norm, p->q0, p->dq, p->n * heads, dim, true, p->dq));
        TSR_TRY(gradient_norm_back(p, &l->k_norm, p->k0, p->dk, p->n * keys, dim, true, p->dk));
    }
    TSR_TRY(gradient_linear_back(p, TSR_MODEL_Q, p->x1, p->dq, NULL, err));
    TSR_TRY(gradient_linear_back(p, TSR_MODEL_K, p->x1, p->dk, NULL, err));
    return gradient_linear_back(p, TSR_MODEL_V, p->x1, p->dv, NULL, err);
}

static tsr_status backward(const struct pass *p, struct tsr_err *err)
{
    bool attention = false, any = false;
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        any = any || p->job->dw[i];
        attention = attention || (p->job->dw[i] && tsr_model_linear_attends((enum tsr_linear_id)i));
    }
    if (any)
        TSR_TRY(feed_forward_back(p, err));
    return attention ? attention_back(p, err) : TSR_OK;
}

tsr_status tsr_gradient_run(const struct tsr_gradient_job *job, double *mse, struct tsr_err *err)
{
    const char *refusal = tsr_gradient_refusal(job->model, job->layer);
    struct pass p;
    uint64_t    floats = 0;
    tsr_status  st = TSR_OK;
    if (refusal)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "layer %llu has no backward pass: %s",
                        (unsigned long long)job->layer, refusal);
    if (!pass_of(&p, job, &floats) || !(p.memory = tsr_new_aligned(floats, sizeof *p.memory)))
        return tsr_fail_nomem(err, floats * sizeof(float), "the activations of a layer");
    (void)place(&p, &floats);
    p.row = tsr_new(p.n, sizeof *p.row);
    if (!p.row)
        st = tsr_fail_nomem(err, p.n * sizeof *p.row, "the errors of rows");
    if (st == TSR_OK && gradient_rope_turns(&p))
        st = gradient_rope_angles(&p, err);
    if (st == TSR_OK)
        st = forward(&p, err);
    if (st == TSR_OK)
        st = error_of(&p, mse, err);
    if (st == TSR_OK)
        st = backward(&p, err);
    free(p.row);
    free(p.memory);
    if (st == TSR_E_CANCELLED)
        return tsr_fail(err, st, "stopped");
    return st;
}
