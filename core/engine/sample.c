/* The next token from logits.  Order of the steps: repetition penalty, temperature, top-k, top-p,
 * min-p, one draw.  All weights are doubles; tokens are in order of descending logit, ties by ascending
 * id, so that the choice is the same on every machine. */
#include "engine/sampler.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

#define BUCKETS 4096u /* of logits, in equal steps from the largest to the least */
#define FEW     32u   /* so many are sorted by insertion */

/* Tokens from the best to the worst, of which only as many are put in order as the draw takes.  They lie in buckets by
 * logit, and a bucket is sorted when the draw comes to it: a heap of the whole vocabulary took a quarter of the time of
 * 64 sequences. */
struct ranking {
    uint64_t
          *key; /* [vocab] of logit and id, larger ones are better; the first `sorted` are final */
    float *logit; /* [vocab] after the penalty */
    double max, temperature;
    uint64_t vocab, sorted;
    uint32_t bucket; /* the next to sort */
    uint32_t end[BUCKETS];
};

/* exp((logit - max) / temperature) */
static double weight_of(const struct ranking *r, float logit)
{
    return exp(((double)logit - r->max) / r->temperature);
}

/* The logits with the penalty of Keskar et al. (2019) on ids seen before: once per id, however often it was seen. */
static void fill(struct ranking *r, const float *logits, double penalty, const uint32_t *history,
                 uint64_t n_history)
{
    memcpy(r->logit, logits, r->vocab * sizeof *logits);
    if (penalty == 1)
        return;
    for (uint64_t i = 0; i < n_history; i++) {
        if (history[i] >= r->vocab)
            continue;
        double l = logits[history[i]]; /* not the one that may have it already */
        r->logit[history[i]] = (float)(l < 0 ? l * penalty : l / penalty);
    }
}

/* ---- order ------------------------------------------------------------------ */

/* Of two logits the larger has the larger key; of equal ones, as 0 and -0 are, the smaller id. */
static uint64_t key_of(float logit, uint64_t id)
{
    float    v = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
    return (uint64_t)bits << 32 | (UINT32_MAX - id);
}

static uint32_t id_of(uint64_t key)
{
    return UINT32_MAX - (uint32_t)key;
}

static void sift_down(uint64_t *v, uint64_t n, uint64_t i)
{
    uint64_t key = v[i];
    for (uint64_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && v[child + 1] < v[child];
        if (v[child] >= key)
            break;
        v[i] = v[child];
    }
    v[i] = key;
}

/* The largest first.  Heap sort: no order of the input makes it slow. */
static void sort(uint64_t *v, uint64_t n)
{
    if (n <= FEW) {
        for (uint64_t i = 1, k; i < n; i++) {
            uint64_t key = v[i];
            for (k = i; k > 0 && v[k - 1] < key; k--)
                v[k] = v[k - 1];
            v[k] = key;
        }
        return;
    }
    for (uint64_t i = n / 2; i-- > 0;)
        sift_down(v, n, i);
    for (uint64_t left = n; left-- > 1;) {
        uint64_t worst = v[0];
        v[0] = v[left];
        v[left] = worst;
        sift_down(v, left, 0);
    }
}

/* Logits in (lo, hi] by equal steps; lower ones, and -inf, are in the last bucket. */
static uint32_t bucket_of(float logit, double hi, double steps)
{
    double at = (hi - (double)logit) * steps;
    return at < BUCKETS - 1 ? (uint32_t)at : BUCKETS - 1;
}

static void rank(struct ranking *r, float hi)
{
    float    lo = hi;
    uint32_t sum = 0;
    for (uint64_t i = 0; i < r->vocab; i++)
        lo = r->logit[i] < lo && r->logit[i] > -INFINITY ? r->logit[i] : lo;
    double steps = hi > lo ? (BUCKETS - 1) / ((double)hi - (double)lo) : 0;
    memset(r->end, 0, sizeof r->end);
    for (uint64_t i = 0; i < r->vocab; i++)
        r->end[bucket_of(r->logit[i], hi, steps)]++;
    for (uint32_t b = 0; b < BUCKETS; b++) { /* `end` is where it begins */
        uint32_t n = r->end[b];
        r->end[b] = sum;
        sum += n;
    }
    for (uint64_t i = 0; i < r->vocab; i++)
        r->key[r->end[bucket_of(r->logit[i], hi, steps)]++] = key_of(r->logit[i], i);
    r->bucket = 0;
    r->sorted = 0;
}

/* The id at place i, from the best on. */
static uint32_t ranked(struct ranking *r, uint64_t i)
{
    while (i >= r->sorted) {
        uint64_t end = r->end[r->bucket++];
        sort(r->key + r->sorted, end - r->sorted);
        r->sorted = end;
    }
    return id_of(r->key[i]);
}

/* ---- draw -------------------------------------------------------------------- */

/* sum: of all weights. */
static uint32_t draw(struct ranking *r, double sum, const struct tsr_engine_sampling *s, double u)
{
    uint64_t keep = s->top_k && s->top_k < r->vocab ? s->top_k : r->vocab;
    double   mass = 0;
    if (keep < r->vocab || s->top_p < 1 || s->min_p > 0) {
        if (keep < r->vocab) { /* the softmax is over the k best */
            sum = 0;
            for (uint64_t i = 0; i < keep; i++)
                sum += weight_of(r, r->logit[ranked(r, i)]);
        }
        /* the fewest of them that hold top_p of the mass, at least one; the best has the weight 1 */
        uint64_t taken = 0;
        do {
            double weight = weight_of(r, r->logit[ranked(r, taken)]);
            if (taken > 0 && weight < s->min_p)
                break;
            mass += weight;
            taken++;
        } while (taken < keep && mass < s->top_p * sum);
        sum = mass;
        keep = taken;
    }
    uint32_t id = 0;
    double   target = u * sum;
    mass = 0;
    for (uint64_t i = 0; i < keep; i++) {
        uint32_t next = ranked(r, i);
        if (i > 0 && isinf(r->logit[next])) /* excluded; mass may miss target by a rounding */
            break;
        id = next;
        mass += weight_of(r, r->logit[id]);
        if (mass > target)
            break;
    }
    return id;
}

tsr_status tsr_engine_sampling_check(const struct tsr_engine_sampling *s, struct tsr_err *err)
{
    if (!(s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1 &&
          s->repetition_penalty > 0 && isfinite(s->temperature) && isfinite(s->repetition_penalty)))
        return tsr_fail(err, TSR_E_CONFIG,
                        "sampling needs temperature >= 0, 0 < top_p <= 1, 0 <= min_p <= 1 and "
                        "repetition_penalty > 0, not %g, %g, %g and %g",
                        s->temperature, s->top_p, s->min_p, s->repetition_penalty);
    return TSR_OK;
}

/* Without a penalty the best id needs no candidates. */
static uint32_t best_id(const float *logits, uint64_t vocab)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return (uint32_t)best;
}

/* scratch: vocab entries. */
static uint32_t choose(const float *logits, uint64_t vocab, const struct tsr_engine_sampling *s,
                       const uint32_t *history, uint64_t n_history, double u, void *scratch)
{
    struct ranking r;
    r.vocab = vocab;
    r.key = scratch;
    r.logit = (float *)(r.key + vocab);
    fill(&r, logits, s->repetition_penalty, history, n_history);
    uint32_t top = best_id(r.logit, vocab);
    if (s->temperature == 0)
        return top;
    r.max = r.logit[top];
    r.temperature = s->temperature;
    double sum = 0;
    for (uint64_t i = 0; i < vocab; i++)
        sum += weight_of(&r, r.logit[i]);
    rank(&r, r.logit[top]);
    return draw(&r, sum, s, u);
}

/* ---- tessera.sampler/1 ------------------------------------------------------------------------- */

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    (void)host;
    TSR_TRY(tsr_engine_sampling_check(opts, err));
    *self = (void *)(uintptr_t)opts;
    return TSR_OK;
}

static void destroy(void *self)
{
    (void)self; /* the caller's options */
}

static tsr_status sizes(const void *self, uint64_t vocab, struct tsr_sampler_sizes *s,
                        struct tsr_err *err)
{
    (void)self;
    if (vocab == 0 || vocab > UINT32_MAX)
        return tsr_fail(err, TSR_E_INVAL, "sampling from a vocabulary of %llu",
                        (unsigned long long)vocab);
    s->scratch_bytes = vocab * TSR_ENGINE_DRAW_BYTES;
    return TSR_OK;
}

static tsr_status start(const void *self, const struct tsr_sampler_request *request, void *state,
                        struct tsr_err *err)
{
    (void)self;
    (void)request;
    (void)state;
    (void)err;
    return TSR_OK;
}

static tsr_status sample(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
                         struct tsr_err *err)
{
    const struct tsr_engine_sampling *s = self;
    (void)err;
    *token = s->temperature == 0 && s->repetition_penalty == 1
                 ? best_id(job->logits, job->vocab)
                 : choose(job->logits, job->vocab, s, job->history, job->n_history, job->uniform,
                          job->scratch);
    return TSR_OK;
}

static tsr_status accept(const void *self, void *state, uint32_t token, struct tsr_err *err)
{
    (void)self;
    (void)state;
    (void)token;
    (void)err;
    return TSR_OK;
}

const struct tsr_sampler_v1 tsr_engine_draw = {
    .struct_size = sizeof tsr_engine_draw,
    .create = create,
    .destroy = destroy,
    .sizes = sizes,
    .start = start,
    .sample = sample,
    .accept = accept,
};
