/* The next token from logits.  Order of the steps: repetition penalty, temperature, top-k, top-p,
 * min-p, one draw.  All weights are doubles; candidates are sorted by descending logit, ties by ascending
 * id, so that the choice is the same on every machine. */
#include "engine/sampler.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    double   weight; /* exp((logit - max) / temperature) */
    float    logit;  /* after the penalty */
    uint32_t id;
};
_Static_assert(sizeof(struct candidate) == 16, "scratch of the draw is 16 bytes an entry");

static bool better(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* Candidates in id order, with the penalty of Keskar et al. (2019) on ids seen before: once
 * per id, however often it was seen. */
static void fill(struct candidate *c, const float *logits, uint64_t vocab, double penalty,
                 const uint32_t *history, uint64_t n_history)
{
    for (uint64_t i = 0; i < vocab; i++)
        c[i] = (struct candidate){ .logit = logits[i], .id = (uint32_t)i };
    if (penalty == 1)
        return;
    for (uint64_t i = 0; i < n_history; i++) {
        if (history[i] >= vocab || c[history[i]].weight != 0)
            continue;
        struct candidate *s = &c[history[i]];
        double            l = s->logit;
        s->logit = (float)(l < 0 ? l * penalty : l / penalty);
        s->weight = 1; /* seen */
    }
}

static void sift_down(struct candidate *c, uint64_t n, uint64_t i)
{
    struct candidate v = c[i];
    for (uint64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && better(&c[child + 1], &c[child]))
            child++;
        if (!better(&c[child], &v))
            break;
        c[i] = c[child];
    }
    c[i] = v;
}

/* Moves the best of a heap of *n to the position after its end. */
static const struct candidate *pop(struct candidate *c, uint64_t *n)
{
    struct candidate best = c[0];
    c[0] = c[--*n];
    c[*n] = best;
    if (*n)
        sift_down(c, *n, 0);
    return &c[*n];
}

/* One draw.  c is a heap of vocab candidates with weights; sum is that of all of them. */
static uint32_t draw(struct candidate *c, uint64_t vocab, double sum,
                     const struct tsr_engine_sampling *s, double u)
{
    uint64_t left = vocab, keep = s->top_k && s->top_k < vocab ? s->top_k : vocab;
    uint64_t taken = 0;
    double   mass = 0;
    if (keep < vocab || s->top_p < 1 || s->min_p > 0) {
        if (keep < vocab) { /* the softmax is over the k best */
            for (sum = 0; taken < keep; taken++)
                sum += pop(c, &left)->weight;
        }
        /* the fewest of them that hold top_p of the mass, at least one; the best has the weight 1 */
        uint64_t popped = taken;
        taken = 0;
        do {
            const struct candidate *b = taken < popped ? &c[vocab - 1 - taken] : pop(c, &left);
            if (taken > 0 && b->weight < s->min_p)
                break;
            mass += b->weight;
            taken++;
        } while (taken < keep && mass < s->top_p * sum);
        sum = mass;
        keep = taken;
    }
    /* candidates popped so far are at the end of c, in reverse */
    uint32_t id = 0;
    double   target = u * sum;
    mass = 0;
    for (uint64_t i = 0; i < keep; i++) {
        const struct candidate *b = i < taken ? &c[vocab - 1 - i] : pop(c, &left);
        if (i > 0 && isinf(b->logit)) /* excluded; mass may miss target by a rounding */
            break;
        id = b->id;
        mass += b->weight;
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

/* scratch: room for vocab candidates. */
static uint32_t choose(const float *logits, uint64_t vocab, const struct tsr_engine_sampling *s,
                       const uint32_t *history, uint64_t n_history, double u, struct candidate *c)
{
    fill(c, logits, vocab, s->repetition_penalty, history, n_history);
    const struct candidate *top = c;
    for (uint64_t i = 1; i < vocab; i++)
        if (better(&c[i], top))
            top = &c[i];
    if (s->temperature == 0)
        return top->id;
    double max = top->logit, sum = 0;
    for (uint64_t i = 0; i < vocab; i++) {
        c[i].weight = exp(((double)c[i].logit - max) / s->temperature);
        sum += c[i].weight; /* in id order: the heap below has not moved anything yet */
    }
    for (uint64_t i = vocab / 2; i-- > 0;)
        sift_down(c, vocab, i);
    return draw(c, vocab, sum, s, u);
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
    s->scratch_bytes = vocab * sizeof(struct candidate);
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
