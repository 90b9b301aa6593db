/* site.c - once per set of linears with one input: the Hessian checked, damped and factored. */
#include "gptq.h"

#define MAX_RETRIES   40u
#define FIRST_DAMPING 1e-4 /* start of doubling if the option is smaller */
#define ASYMMETRY     1e-3f

static uint64_t round_up(uint64_t n)
{
    return (n + 63) / 64 * 64;
}

void gptq_site_destroy(const struct gptq *q, struct gptq_site *s)
{
    if (!s)
        return;
    if (s->shift_held)
        (void)s->la->drop(s->la->ctx, s->shift, 0, NULL);
    if (s->held)
        (void)s->la->drop(s->la->ctx, s->factor, 0, NULL);
    q->host->release(q->host->ctx, s, s->bytes);
}

static tsr_status allocate(const struct gptq *q, uint64_t cols, struct gptq_site **out,
                           struct tsr_err *err)
{
    uint64_t square, all, bytes, head = round_up(sizeof(struct gptq_site));
    uint64_t weight = round_up(cols * 4), order = round_up(cols * 8);
    if (__builtin_mul_overflow(cols, cols * 4, &square) ||
        __builtin_mul_overflow(square, q->alpha > 0.0 ? 2 : 1, &all) ||
        __builtin_add_overflow(all, head + weight + order, &bytes))
        return tsr_fail(err, TSR_E_NOMEM, "the Hessian of %llu columns fits no memory",
                        (unsigned long long)cols);
    unsigned char *p = q->host->alloc(q->host->ctx, bytes, 64);
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for a Hessian's factor",
                        (unsigned long long)bytes);
    struct gptq_site *s = (struct gptq_site *)(void *)p;
    *s = (struct gptq_site){ .cols = cols,
                             .bytes = bytes,
                             .weight = (float *)(void *)(p + head),
                             .order = (uint64_t *)(void *)(p + head + weight),
                             .factor = (float *)(void *)(p + head + weight + order) };
    if (q->alpha > 0.0)
        s->shift = s->factor + cols * cols;
    *out = s;
    return TSR_OK;
}

static tsr_status check_pair(const float *h, uint64_t n, uint64_t i, uint64_t j,
                             struct tsr_err *err)
{
    float a = h[i * n + j], b = h[j * n + i];
    float room = ASYMMETRY * sqrtf(h[i * n + i]) * sqrtf(h[j * n + j]);
    if (fabsf(a - b) <= room && isfinite(a))
        return TSR_OK;
    return tsr_fail(err, TSR_E_NUMERIC,
                    "the Hessian is %g at (%llu, %llu) and %g at (%llu, %llu); it must be finite "
                    "and symmetric",
                    (double)a, (unsigned long long)i, (unsigned long long)j, (double)b,
                    (unsigned long long)j, (unsigned long long)i);
}

/* The statistics come from outside: finite, not negative on the diagonal, symmetric.  In squares,
 * so that both halves come from a cache. */
static tsr_status check(const float *h, uint64_t n, struct tsr_err *err)
{
    for (uint64_t i = 0; i < n; i++) {
        float d = h[i * n + i];
        if (!(d >= 0.0f) || !isfinite(d))
            return tsr_fail(err, TSR_E_NUMERIC,
                            "the Hessian's diagonal is %g at column %llu; it must be finite and "
                            "not negative",
                            (double)d, (unsigned long long)i);
    }
    tsr_status st = TSR_OK;
    for (uint64_t p = 0; p < n; p += GPTQ_SQUARE)
        for (uint64_t q = 0; q <= p; q += GPTQ_SQUARE)
            for (uint64_t i = p; i < gptq_min(p + GPTQ_SQUARE, n); i++)
                for (uint64_t j = q; j < gptq_min(q + GPTQ_SQUARE, i) && st == TSR_OK; j++)
                    st = check_pair(h, n, i, j, err);
    return st;
}

/* A column without inputs counts as 1 on the diagonal, in the mean and in the order. */
static float diagonal(const float *h, uint64_t n, uint64_t k)
{
    return h[k * n + k] == 0.0f ? 1.0f : h[k * n + k];
}

/* order by the diagonal, largest first, equal ones in ascending order: heapsort on (value, column) */
static int comes_before(const float *h, uint64_t n, uint64_t a, uint64_t b)
{
    float x = diagonal(h, n, a), y = diagonal(h, n, b);
    return x > y || (x == y && a < b);
}

static void sift(const float *h, uint64_t n, uint64_t *v, uint64_t root, uint64_t end)
{
    for (uint64_t child; (child = 2 * root + 1) < end; root = child) {
        if (child + 1 < end && comes_before(h, n, v[child], v[child + 1]))
            child++;
        if (!comes_before(h, n, v[root], v[child]))
            return;
        uint64_t x = v[root];
        v[root] = v[child];
        v[child] = x;
    }
}

static void sort_columns(const float *h, uint64_t n, uint64_t *v)
{
    for (uint64_t i = n / 2; i-- > 0;)
        sift(h, n, v, i, n);
    for (uint64_t end = n; end-- > 1;) {
        uint64_t x = v[0];
        v[0] = v[end];
        v[end] = x;
        sift(h, n, v, 0, end);
    }
}

/* The damped Hessian into s->factor, columns and rows in the reverse of s->order. */
static void fill(struct gptq_site *s, const float *h)
{
    uint64_t n = s->cols;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t     row = s->order[n - 1 - i];
        const float *from = h + row * n;
        float       *to = s->factor + i * n;
        for (uint64_t j = 0; j < n; j++)
            to[j] = from[s->order[n - 1 - j]];
        to[i] = diagonal(h, n, row) + s->ridge;
    }
}

/* 1 / (H^-1)_kk, the diagonal from the rows of L.  TSR_E_NUMERIC if F32 cannot represent it. */
static tsr_status weigh(struct gptq_site *s, const float *h, struct tsr_err *err)
{
    uint64_t n = s->cols;
    for (uint64_t i = 0; i < n; i++) {
        const float *l = s->factor + i * n;
        uint64_t     k = s->order[i];
        double       sum = 0.0;
        for (uint64_t j = 0; j <= i; j++)
            sum += (double)l[j] * (double)l[j];
        float v = (float)(1.0 / sum);
        if (!(v > 0.0f) || !isfinite(v) || !(l[i] > 0.0f))
            return tsr_fail(err, TSR_E_NUMERIC, "the inverse has %g on its diagonal", sum);
        s->weight[k] = h[k * n + k] == 0.0f ? 0.0f : v;
    }
    return TSR_OK;
}

static tsr_status factorize(const struct gptq *q, struct gptq_site *s, const float *h,
                            struct tsr_err *err)
{
    fill(s, h);
    tsr_status st = gptq_factorize(q, s, err);
    return st == TSR_OK ? weigh(s, h, err) : st;
}

static tsr_status damped(const struct gptq *q, struct gptq_site *s, const float *h,
                         struct tsr_err *err)
{
    double mean = 0.0;
    for (uint64_t k = 0; k < s->cols; k++)
        mean += (double)diagonal(h, s->cols, k);
    mean /= (double)s->cols;
    s->damping = q->damp;
    for (;;) {
        s->ridge = (float)(s->damping * mean);
        tsr_status st = factorize(q, s, h, err);
        if (st != TSR_E_NUMERIC)
            return st;
        if (s->retries == MAX_RETRIES)
            return tsr_fail(err, TSR_E_NUMERIC,
                            "the Hessian cannot be inverted, not with %g times its mean diagonal "
                            "added to it either; calibrate on more text",
                            s->damping);
        s->retries++;
        s->damping = s->damping < FIRST_DAMPING ? FIRST_DAMPING : 2.0 * s->damping;
    }
}

tsr_status gptq_site_create(const struct gptq *q, const struct tsr_quant_stats *stats,
                            struct gptq_site **out, struct tsr_err *err)
{
    const struct tsr_host      *host = q->host;
    const struct tsr_linalg_v1 *la = host->service ? host->service(host->ctx, TSR_LINALG) : NULL;
    struct gptq_site           *s = NULL;
    if (!la)
        return tsr_fail(err, TSR_E_DEVICE,
                        "this host offers no linear algebra (" TSR_LINALG "); gptq needs it");
    if (!stats || !stats->hessian || stats->cols == 0)
        return tsr_fail(err, TSR_E_INVAL, "gptq was given no Hessian");
    if (q->alpha > 0.0 && !TSR_HAS(struct tsr_quant_stats, stats, cross))
        return tsr_fail(err, TSR_E_INVAL,
                        "gptq was given no inputs of the original model; asymmetric needs them");
    tsr_status st = check(stats->hessian, stats->cols, err);
    if (st == TSR_OK)
        st = allocate(q, stats->cols, &s, err);
    if (st != TSR_OK)
        return st;
    s->la = la;
    for (uint64_t k = 0; k < s->cols; k++)
        s->order[k] = k;
    if (q->act_order)
        sort_columns(stats->hessian, s->cols, s->order);
    st = damped(q, s, stats->hessian, err);
    if (st == TSR_OK && s->shift)
        st = gptq_shift_create(q, s, stats->cross, err);
    if (st == TSR_OK && gptq_can_hold(s->la)) {
        st = s->la->hold(s->la->ctx, s->factor, s->cols * s->cols, err);
        s->held = st == TSR_OK;
    }
    if (st == TSR_OK && s->shift && gptq_can_hold(s->la)) {
        st = s->la->hold(s->la->ctx, s->shift, s->cols * s->cols, err);
        s->shift_held = st == TSR_OK;
    }
    if (st != TSR_OK) {
        gptq_site_destroy(q, s);
        return st;
    }
    if (s->retries) {
        char text[160];
        (void)snprintf(text, sizeof text,
                       "the Hessian could not be factored with damp %g; %g times its mean diagonal "
                       "was added",
                       q->damp, s->damping);
        host->log(host->ctx, TSR_LOG_WARN, text);
    }
    *out = s;
    return TSR_OK;
}
