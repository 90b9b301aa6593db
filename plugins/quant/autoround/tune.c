/* The steps over a block: round, ask for the error and its derivatives, move offsets and ranges against their sign. */
#include "autoround.h"

#include <stdio.h>

#define GRAIN 8u /* rows */
#define ENDS  3u /* trials over all sequences: the start, the best step, the last one */

/* One linear while it is tuned; arrays [rows, cols] and [rows, groups]. */
struct linear {
    const struct tsr_matrix *w;
    struct tsr_matrix        trial; /* its data is value */
    uint64_t                 groups, bytes;
    void                    *memory; /* of all arrays */
    float                   *v, *best_v, *value, *gradient;
    struct ar_range         *range, *best_range;
};

struct tuning {
    const struct autoround      *q;
    const struct tsr_tune_block *b;
    struct linear               *lin;  /* [n_linears] */
    const struct tsr_matrix    **list; /* [n_linears]: trials */
    float                      **gradients;
    uint64_t                    *order; /* [sequences] */
    uint64_t                     bytes; /* of the four, one block at lin */
    float                        rate;
    struct linear               *at; /* of the loop that runs */
    double                       least;
};

uint64_t ar_budget(const void *self)
{
    return ((const struct autoround *)self)->steps + ENDS;
}

/* ---- memory ---------------------------------------------------------------------------- */

static tsr_status linear_new(const struct autoround *q, struct linear *l,
                             const struct tsr_matrix *w, struct tsr_err *err)
{
    const struct tsr_host *host = q->host;
    uint64_t               n = w->rows * w->cols, groups = ar_groups(q, w->cols);
    l->w = w;
    l->groups = groups;
    l->bytes = 4 * n * sizeof(float) + 2 * w->rows * groups * sizeof(struct ar_range);
    l->memory = host->alloc(host->ctx, l->bytes, 64);
    if (!l->memory)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes to tune '%s'",
                        (unsigned long long)l->bytes, w->name);
    l->range = l->memory;
    l->best_range = l->range + w->rows * groups;
    l->v = (float *)(void *)(l->best_range + w->rows * groups);
    l->best_v = l->v + n;
    l->value = l->best_v + n;
    l->gradient = l->value + n;
    memset(l->v, 0, n * sizeof *l->v);
    l->trial = (struct tsr_matrix){ .struct_size = sizeof l->trial,
                                    .dtype = TSR_F32,
                                    .name = w->name,
                                    .data = l->value,
                                    .rows = w->rows,
                                    .cols = w->cols,
                                    .row_stride = w->cols * sizeof(float) };
    return TSR_OK;
}

static const float *row_of(const struct tsr_matrix *w, uint64_t r)
{
    return (const float *)(const void *)((const char *)w->data + r * w->row_stride);
}

static tsr_status tuning_new(struct tuning *t, struct tsr_err *err)
{
    const struct tsr_host *host = t->q->host;
    uint64_t               n = t->b->n_linears;
    t->bytes = n * (sizeof *t->lin + sizeof *t->list + sizeof *t->gradients) +
               t->b->sequences * sizeof *t->order;
    t->lin = host->alloc(host->ctx, t->bytes, 64);
    if (!t->lin)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes to tune a block",
                        (unsigned long long)t->bytes);
    memset(t->lin, 0, t->bytes);
    t->list = (const struct tsr_matrix **)(void *)(t->lin + n);
    t->gradients = (float **)(void *)(t->list + n);
    t->order = (uint64_t *)(void *)(t->gradients + n);
    for (uint64_t i = 0; i < n; i++) {
        struct linear *l = &t->lin[i];
        tsr_status     st = linear_new(t->q, l, t->b->linears[i], err);
        for (uint64_t r = 0; r < l->w->rows && st == TSR_OK; r++) {
            st = wt_check(l->w, row_of(l->w, r), r, err);
            if (st == TSR_OK)
                ar_ranges(t->q, row_of(l->w, r), l->w->cols, l->range + r * l->groups);
        }
        if (st != TSR_OK)
            return st;
        t->list[i] = &l->trial;
        t->gradients[i] = l->gradient;
    }
    return TSR_OK;
}

static void tuning_free(struct tuning *t)
{
    const struct tsr_host *host = t->q->host;
    for (uint64_t i = 0; t->lin && i < t->b->n_linears; i++)
        host->release(host->ctx, t->lin[i].memory, t->lin[i].bytes);
    host->release(host->ctx, t->lin, t->bytes);
}

/* ---- a step -------------------------------------------------------------------------------- */

static tsr_status round_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct tuning *t = arg;
    struct linear       *l = t->at;
    for (uint64_t r = begin, cols = l->w->cols; r < end; r++)
        ar_round(t->q, row_of(l->w, r), l->v + r * cols, cols, l->range + r * l->groups,
                 l->value + r * cols);
    return TSR_OK;
}

static tsr_status descend_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct tuning *t = arg;
    struct linear       *l = t->at;
    for (uint64_t r = begin, cols = l->w->cols; r < end; r++)
        ar_descend(t->q, row_of(l->w, r), l->gradient + r * cols, cols, t->rate, l->v + r * cols,
                   l->range + r * l->groups);
    return TSR_OK;
}

static tsr_status each_linear(struct tuning *t, tsr_status (*body)(void *, uint64_t, uint64_t))
{
    const struct tsr_host *host = t->q->host;
    tsr_status             st = TSR_OK;
    for (uint64_t i = 0; i < t->b->n_linears && st == TSR_OK; i++) {
        t->at = &t->lin[i];
        st = host->parallel_for(host->ctx, t->at->w->rows, GRAIN, body, t);
    }
    return st;
}

/* The error of the block with the offsets and ranges as they are; derivatives if `gradients`. */
static tsr_status error_of(struct tuning *t, const uint64_t *sequence, uint64_t n, int gradients,
                           double *mse, struct tsr_err *err)
{
    struct tsr_tune_trial  trial = { .struct_size = sizeof trial,
                                     .linears = t->list,
                                     .gradients = gradients ? t->gradients : NULL };
    struct tsr_tune_trial *trials[] = { &trial };
    tsr_status             st = each_linear(t, round_rows);
    if (st == TSR_OK)
        st = t->b->run(t->b->ctx, sequence, n, trials, 1, err);
    *mse = trial.mse;
    return st;
}

/* Mixes a counter, as SplitMix64 does. */
static uint64_t mixed(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* The first n of `order` become a sample without repetition. */
static void sample(struct tuning *t, uint64_t step, uint64_t n)
{
    for (uint64_t i = 0; i < t->b->sequences; i++)
        t->order[i] = i;
    for (uint64_t i = 0; i < n && i < t->b->sequences; i++) {
        uint64_t k = i + mixed(t->q->seed, step * n + i) % (t->b->sequences - i);
        uint64_t was = t->order[i];
        t->order[i] = t->order[k];
        t->order[k] = was;
    }
}

static void keep_best(struct tuning *t)
{
    for (uint64_t i = 0; i < t->b->n_linears; i++) {
        struct linear *l = &t->lin[i];
        memcpy(l->best_v, l->v, l->w->rows * l->w->cols * sizeof *l->v);
        memcpy(l->best_range, l->range, l->w->rows * l->groups * sizeof *l->range);
    }
}

static tsr_status descend(struct tuning *t, struct tsr_err *err)
{
    uint64_t n = t->q->batch < t->b->sequences ? t->q->batch : t->b->sequences;
    double   least = INFINITY, mse;
    for (uint64_t i = 0; i < t->q->steps; i++) {
        if (t->q->host->cancelled(t->q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        sample(t, i, n);
        tsr_status st = error_of(t, t->order, n, 1, &mse, err);
        if (st != TSR_OK)
            return st;
        if (mse < least) {
            least = mse;
            keep_best(t);
        }
        t->rate = (float)(t->q->lr * (1.0 - (double)i / (double)t->q->steps));
        st = each_linear(t, descend_rows);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

/* ---- the result ---------------------------------------------------------------------------- */

static tsr_status pack(const struct tuning *t, struct tsr_tune_packed *const *packed,
                       struct tsr_err *err)
{
    const struct tsr_host *host = t->q->host;
    struct tsr_format      f = ar_format(t->q);
    for (uint64_t i = 0; i < t->b->n_linears; i++) {
        const struct linear *l = &t->lin[i];
        uint64_t             cols = l->w->cols, held = l->groups, bytes = ar_scratch(t->q, cols);
        void                *scratch = host->alloc(host->ctx, bytes, 64);
        if (!scratch)
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes to pack '%s'",
                            (unsigned long long)bytes, l->w->name);
        uint64_t r = 0;
        for (; r < l->w->rows && held == l->groups; r++)
            held =
                ar_pack(t->q, row_of(l->w, r), l->v + r * cols, cols, l->range + r * l->groups,
                        scratch,
                        (unsigned char *)packed[i]->codes + r * tsr_format_int_code_bytes(&f, cols),
                        (unsigned char *)packed[i]->meta + r * ar_meta_bytes(t->q, cols));
        host->release(host->ctx, scratch, bytes);
        if (held != l->groups)
            return wt_affine_refused(&f, l->w, r - 1, held, err);
    }
    return TSR_OK;
}

/* What is in v and range changes places with what is in best_v and best_range. */
static void swap(struct tuning *t)
{
    for (uint64_t i = 0; i < t->b->n_linears; i++) {
        struct linear   *l = &t->lin[i];
        float           *v = l->v;
        struct ar_range *range = l->range;
        l->v = l->best_v;
        l->best_v = v;
        l->range = l->best_range;
        l->best_range = range;
    }
}

static void reset(struct tuning *t)
{
    for (uint64_t i = 0; i < t->b->n_linears; i++) {
        struct linear *l = &t->lin[i];
        memset(l->v, 0, l->w->rows * l->w->cols * sizeof *l->v);
        for (uint64_t r = 0; r < l->w->rows; r++)
            ar_ranges(t->q, row_of(l->w, r), l->w->cols, l->range + r * l->groups);
    }
}

static void say(const struct tuning *t, double start, double mse)
{
    char text[200];
    (void)snprintf(text, sizeof text,
                   "autoround: %s: mean squared error %.4g rounded to nearest, %.4g after %llu "
                   "steps",
                   t->b->name, start, mse, (unsigned long long)t->q->steps);
    t->q->host->log(t->q->host->ctx, TSR_LOG_INFO, text);
}

/* Steps see some sequences each; over all of them the last step, the best one and the start are compared. */
static tsr_status tune(struct tuning *t, struct tsr_tune_packed *const *packed, struct tsr_err *err)
{
    double     start, last, best;
    tsr_status st = error_of(t, NULL, 0, 0, &start, err);
    if (st == TSR_OK)
        st = descend(t, err);
    if (st == TSR_OK)
        st = error_of(t, NULL, 0, 0, &last, err);
    if (st != TSR_OK)
        return st;
    swap(t);
    st = error_of(t, NULL, 0, 0, &best, err);
    if (st != TSR_OK)
        return st;
    if (last < best)
        swap(t);
    best = last < best ? last : best;
    if (!(best < start)) {
        reset(t);
        best = start;
    }
    say(t, start, best);
    return pack(t, packed, err);
}

tsr_status ar_tune(const void *self, const struct tsr_tune_block *b,
                   struct tsr_tune_packed *const *packed, struct tsr_err *err)
{
    struct tuning t = { .q = self, .b = b };
    if (b->no_gradients)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s", b->no_gradients);
    tsr_status st = tuning_new(&t, err);
    if (st == TSR_OK)
        st = tune(&t, packed, err);
    tuning_free(&t);
    return st;
}
