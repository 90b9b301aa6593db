/* Ranges of every feature, and which features are kept in BF16. */
#include "int4_bf16.h"

#include <math.h>
#include <string.h>

/* ---- memory --------------------------------------------------------------- */

void *i4_new(const struct i4 *c, uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(n ? n : 1, size, &bytes))
        return NULL;
    void *p = c->host->alloc(c->host->ctx, bytes, 64);
    if (p)
        memset(p, 0, bytes);
    return p;
}

void i4_drop(const struct i4 *c, void *p, uint64_t n, uint64_t size)
{
    if (p)
        c->host->release(c->host->ctx, p, (n ? n : 1) * size);
}

static tsr_status no_memory(struct tsr_err *err, uint64_t n)
{
    return tsr_fail(err, TSR_E_NOMEM, NAME ": out of memory: the ranges of %llu features", U(n));
}

static void source_free(const struct i4 *c, const struct i4_site *s, struct i4_source *q)
{
    uint64_t places = s->cols - s->k;
    i4_drop(c, q->low, s->cols, sizeof *q->low);
    i4_drop(c, q->high, s->cols, sizeof *q->high);
    i4_drop(c, q->range, s->cols, sizeof *q->range);
    i4_drop(c, q->scale, places, sizeof *q->scale);
    i4_drop(c, q->inv, places, sizeof *q->inv);
    i4_drop(c, q->tail_inv, s->holes, sizeof *q->tail_inv);
    i4_drop(c, q->tail_scale, s->holes, sizeof *q->tail_scale);
    *q = (struct i4_source){ 0 };
}

void i4_sites_free(struct i4 *c)
{
    for (uint32_t i = 0; i < c->sites; i++) {
        struct i4_site *s = c->site[i];
        if (!s)
            continue;
        for (uint32_t r = 0; r < s->sources; r++)
            source_free(c, s, &s->source[r]);
        i4_drop(c, s->source, s->sources, sizeof *s->source);
        i4_drop(c, s->chosen, s->k, sizeof *s->chosen);
        i4_drop(c, s->hole, s->k, sizeof *s->hole);
        i4_drop(c, s->tail, s->k, sizeof *s->tail);
        i4_drop(c, s->place, s->cols - s->k, sizeof *s->place);
        i4_drop(c, s, 1, sizeof *s);
    }
    i4_drop(c, c->site, c->sites, sizeof *c->site);
    c->site = NULL;
    c->sites = 0;
    c->frozen = 0;
}

/* A list of n elements with room for `want`; the old one is released. */
static void *grown(const struct i4 *c, void *old, uint64_t n, uint64_t want, uint64_t size)
{
    void *p = i4_new(c, want, size);
    if (p && old) {
        memcpy(p, old, n * size);
        i4_drop(c, old, n, size);
    }
    return p;
}

tsr_status i4_site_make(struct i4 *c, uint32_t site, uint32_t source, uint64_t cols,
                        struct i4_site **out, struct tsr_err *err)
{
    if (site >= MAX_SITES || source >= MAX_SOURCES || cols == 0 || cols > UINT32_MAX)
        return tsr_fail(err, TSR_E_INVAL,
                        NAME
                        ": site %u, source %u, %llu features: below %u, %u and 2^32 were wanted",
                        site, source, U(cols), MAX_SITES, MAX_SOURCES);
    if (site >= c->sites) {
        struct i4_site **list = grown(c, c->site, c->sites, site + UINT64_C(1), sizeof *list);
        if (!list)
            return no_memory(err, cols);
        c->site = list;
        c->sites = site + 1;
    }
    struct i4_site *s = c->site[site];
    if (!s) {
        s = c->site[site] = i4_new(c, 1, sizeof *s);
        if (!s)
            return no_memory(err, cols);
        s->cols = cols;
        s->k = i4_kept(c, cols);
    }
    if (s->cols != cols)
        return tsr_fail(err, TSR_E_INVAL,
                        NAME ": site %u: rows of %llu features follow rows of %llu", site, U(cols),
                        U(s->cols));
    if (source >= s->sources) {
        struct i4_source *list =
            grown(c, s->source, s->sources, source + UINT64_C(1), sizeof *list);
        if (!list)
            return no_memory(err, cols);
        s->source = list;
        s->sources = source + 1;
    }
    *out = s;
    return TSR_OK;
}

/* ---- ranges ---------------------------------------------------------------- */

tsr_status i4_observe(void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    struct i4      *c = self;
    struct i4_site *s;
    if (c->frozen)
        return tsr_fail(err, TSR_E_INVAL, NAME ": observe() after freeze() or load()");
    if (!job->src || job->rows == 0)
        return tsr_fail(err, TSR_E_INVAL, NAME ": site %u: a message without rows", job->site);
    for (uint64_t i = 0; i < job->rows * job->cols; i++)
        if (!isfinite(job->src[i]))
            return tsr_fail(err, TSR_E_NUMERIC,
                            NAME ": site %u, source %u: row %llu, feature %llu is %f", job->site,
                            job->source, U(i / job->cols), U(i % job->cols), (double)job->src[i]);
    tsr_status st = i4_site_make(c, job->site, job->source, job->cols, &s, err);
    if (st != TSR_OK)
        return st;
    struct i4_source *q = &s->source[job->source];
    int               first = q->low == NULL;
    if (first) {
        q->low = i4_new(c, s->cols, sizeof *q->low);
        q->high = i4_new(c, s->cols, sizeof *q->high);
        if (!q->low || !q->high) {
            source_free(c, s, q);
            return no_memory(err, s->cols);
        }
    }
    for (uint64_t j = 0; j < s->cols; j++) {
        float low = job->src[j], high = job->src[j];
        for (uint64_t r = 1; r < job->rows; r++) {
            float v = job->src[r * s->cols + j];
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
        q->low[j] = first ? low : (1 - c->gamma) * q->low[j] + c->gamma * low;
        q->high[j] = first ? high : (1 - c->gamma) * q->high[j] + c->gamma * high;
    }
    return TSR_OK;
}

/* ---- the features in BF16 --------------------------------------------------- */

/* The next of splitmix64, for the baseline of random features. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* k of cols features with the largest sum, of equals the lower; or k drawn without one twice. */
static tsr_status choose(struct i4 *c, uint32_t site, struct i4_site *s, struct tsr_err *err)
{
    double  *sum = i4_new(c, s->cols, sizeof *sum);
    uint64_t state = c->seed + UINT64_C(0x632be59bd9b4e019) * site;
    s->chosen = i4_new(c, s->k, sizeof *s->chosen);
    if (!sum || !s->chosen) {
        i4_drop(c, sum, s->cols, sizeof *sum);
        return no_memory(err, s->cols);
    }
    for (uint32_t r = 0; r < s->sources; r++)
        for (uint64_t j = 0; s->source[r].range && j < s->cols; j++)
            sum[j] += (double)s->source[r].range[j];
    for (uint64_t i = 0; i < s->k; i++) { /* taken ones are -1 */
        uint64_t best = 0;
        if (c->features == FEATURES_RANDOM) {
            uint64_t left = s->cols > i ? next(&state) % (s->cols - i) : 0;
            while (sum[best] < 0 || left--)
                best++;
        } else {
            for (uint64_t j = 1; j < s->cols; j++)
                best = sum[j] > sum[best] ? j : best;
        }
        sum[best] = -1;
    }
    for (uint64_t j = 0, i = 0; j < s->cols; j++)
        if (sum[j] < 0)
            s->chosen[i++] = (uint32_t)j;
    i4_drop(c, sum, s->cols, sizeof *sum);
    return TSR_OK;
}

/* The features that take the places of those that travel as BF16. */
static void find_places(struct i4_site *s)
{
    uint64_t places = s->cols - s->k, at = 0, tail = places;
    s->holes = 0;
    while (at < s->k && s->chosen[at] < places)
        s->hole[s->holes++] = s->chosen[at++];
    for (uint64_t i = 0; i < s->holes; tail++) {
        if (at < s->k && s->chosen[at] == tail)
            at++;
        else
            s->tail[i++] = (uint32_t)tail;
    }
    for (uint64_t i = 0, h = 0; i < places; i++)
        s->place[i] = h < s->holes && s->hole[h] == i ? s->tail[h++] : (uint32_t)i;
}

static tsr_status source_finish(const struct i4 *c, const struct i4_site *s, struct i4_source *q,
                                struct tsr_err *err)
{
    uint64_t places = s->cols - s->k;
    float    most = (float)((1 << (c->bits - 1)) - 1);
    q->scale = i4_new(c, places, sizeof *q->scale);
    q->inv = i4_new(c, places, sizeof *q->inv);
    q->tail_inv = i4_new(c, s->holes, sizeof *q->tail_inv);
    q->tail_scale = i4_new(c, s->holes, sizeof *q->tail_scale);
    if (!q->scale || !q->inv || !q->tail_inv || !q->tail_scale)
        return no_memory(err, s->cols);
    for (uint64_t i = 0, h = 0; i < places; i++) {
        int   hole = h < s->holes && s->hole[h] == i;
        float scale = q->range[s->place[i]] / 2 / most, inv = 1 / scale;
        if (!isfinite(inv)) /* 0, or so small that it makes no difference */
            scale = inv = 0;
        q->scale[i] = scale;
        q->inv[i] = inv;
        if (hole) {
            q->tail_scale[h] = scale;
            q->tail_inv[h++] = inv;
        }
    }
    return TSR_OK;
}

tsr_status i4_site_finish(struct i4 *c, struct i4_site *s, struct tsr_err *err)
{
    s->hole = i4_new(c, s->k, sizeof *s->hole);
    s->tail = i4_new(c, s->k, sizeof *s->tail);
    s->place = i4_new(c, s->cols - s->k, sizeof *s->place);
    if (!s->hole || !s->tail || !s->place)
        return no_memory(err, s->cols);
    find_places(s);
    tsr_status st = TSR_OK;
    for (uint32_t r = 0; st == TSR_OK && r < s->sources; r++)
        if (s->source[r].range)
            st = source_finish(c, s, &s->source[r], err);
    return st;
}

static tsr_status freeze_site(struct i4 *c, uint32_t site, struct tsr_err *err)
{
    struct i4_site *s = c->site[site];
    for (uint32_t r = 0; r < s->sources; r++) {
        struct i4_source *q = &s->source[r];
        if (!q->low)
            continue;
        q->range = i4_new(c, s->cols, sizeof *q->range);
        if (!q->range)
            return no_memory(err, s->cols);
        for (uint64_t j = 0; j < s->cols; j++) {
            double most = -q->low[j] > q->high[j] ? -q->low[j] : q->high[j];
            q->range[j] = most > 0 ? (float)(2 * most) : 0;
        }
        i4_drop(c, q->low, s->cols, sizeof *q->low);
        i4_drop(c, q->high, s->cols, sizeof *q->high);
        q->low = q->high = NULL;
    }
    tsr_status st = choose(c, site, s, err);
    return st == TSR_OK ? i4_site_finish(c, s, err) : st;
}

tsr_status i4_freeze(void *self, struct tsr_err *err)
{
    struct i4 *c = self;
    if (c->frozen || c->sites == 0)
        return tsr_fail(err, TSR_E_INVAL,
                        c->frozen ? NAME ": it is calibrated already"
                                  : NAME ": freeze() without a message before it");
    tsr_status st = TSR_OK;
    for (uint32_t i = 0; st == TSR_OK && i < c->sites; i++)
        if (c->site[i])
            st = freeze_site(c, i, err);
    if (st != TSR_OK)
        i4_sites_free(c);
    else
        c->frozen = 1;
    return st;
}
