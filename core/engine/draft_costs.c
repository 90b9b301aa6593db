/* draft_costs.c - what drafts of a model take and bring: its times, and the part of its ids that came. */
#include "engine/drafter.h"

#define WEIGHT 0.06 /* of a new id in the part of hits */
#define FIRST  6.0  /* ids that the first guess of a part counts for */
#define LEAST  TSR_ENGINE_DRAFT_LEAST
#define WIDE   64u /* ids of a text that say so much that those before are not worth their time */
#define HORIZON                                                                                    \
    256u /* tokens of an answer over which a first pass is spread, at most: it may end before */
#define RENEW (TSR_ENGINE_DRAFT_MOST + 1u) /* more ids than this are not those of one draft */

void tsr_engine_draft_costs_start(struct tsr_engine_draft_costs      *c,
                                  const struct tsr_engine_draft_size *size)
{
    *c = (struct tsr_engine_draft_costs){ .size = *size, .hit = { 0.75, 0.75, 0.8, 0.8 } };
}

static uint32_t class_of(uint32_t at)
{
    return at < 2 ? at : at < 4 ? 2 : 3;
}

double tsr_engine_draft_costs_right(const struct tsr_engine_draft_costs *c, uint32_t k)
{
    double all = 1, sum = 0;
    for (uint32_t i = 0; i < k; i++) {
        all *= c->hit[class_of(i)];
        sum += all;
    }
    return sum;
}

void tsr_engine_draft_costs_came(struct tsr_engine_draft_costs *c, uint32_t n, bool missed)
{
    for (uint32_t i = 0; i < n + missed; i++) {
        double *hit = &c->hit[class_of(i)];
        double  weight = 1.0 / (FIRST + (double)c->ids[class_of(i)]++);
        *hit += ((i < n ? 1.0 : 0.0) - *hit) * (weight > WEIGHT ? weight : WEIGHT);
    }
}

/* A pass of its own, as measured or by its size. */
static double pass(const struct tsr_engine_draft_costs *c, const struct tsr_engine_draft_pace *p,
                   uint64_t rows, bool most)
{
    if (most && tsr_engine_draft_known(&c->pace, 1))
        return tsr_engine_draft_pass_most(&c->pace, 1, rows);
    double one = tsr_engine_draft_pass(&c->pace, rows);
    return one > 0 ? one : tsr_engine_draft_pass(p, rows) * c->size.bytes;
}

/* An id of a prompt. */
static double of_prompt(const struct tsr_engine_draft_costs *c,
                        const struct tsr_engine_draft_pace  *p)
{
    return c->pace.prompt > 0 ? c->pace.prompt
           : p->prompt > 0    ? p->prompt * c->size.work
                              : pass(c, p, 1, false);
}

/* Whether the ids that run before a draft are those of a drafter that had none, or too few. */
static bool begins(const struct tsr_engine_draft_ask *a)
{
    return a->has == a->from || a->n - a->has > RENEW;
}

/* Seconds of these ids but for the newest.  As expected they are spread over the answer, of which a pass brings `tokens`
 * tokens. */
static double beginning(const struct tsr_engine_draft_costs *c,
                        const struct tsr_engine_draft_pace *p, const struct tsr_engine_draft_ask *a,
                        double tokens, bool most)
{
    uint64_t pending = a->n - a->has;
    double   left = (double)(a->left < HORIZON ? a->left : HORIZON);
    double   all = pending > RENEW ? of_prompt(c, p) * (double)pending
                                   : pass(c, p, pending, most) - pass(c, p, 1, most);
    return most || tokens > left ? all : all * tokens / left;
}

double tsr_engine_draft_costs_seconds(const struct tsr_engine_draft_costs *c,
                                      const struct tsr_engine_draft_pace  *p,
                                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k,
                                      bool most)
{
    uint64_t first = 0, rows = 0;
    double   sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (a[i].most == 0)
            continue;
        uint32_t drafts = a[i].most < k ? a[i].most : k;
        double   tokens = 1 + tsr_engine_draft_costs_right(c, drafts);
        rows++;
        first += begins(&a[i]) ? 1 : a[i].n - a[i].has;
        sum += begins(&a[i]) ? beginning(c, p, &a[i], tokens, most) : 0;
    }
    return rows == 0 ? 0 : sum + pass(c, p, first, most) + (double)(k - 1) * pass(c, p, rows, most);
}

void tsr_engine_draft_costs_window(const struct tsr_engine_draft_costs *c,
                                   const struct tsr_engine_draft_pace  *p,
                                   struct tsr_engine_draft_ask *a, uint64_t from, uint64_t has,
                                   double spare)
{
    double   ids = spare / 2 / of_prompt(c, p);
    uint64_t whole = from ? 0 : has;
    bool     goes_on = has > from && a->n - has <= RENEW;
    a->from = goes_on ? from : 0;
    a->has = goes_on ? has : whole;
    if ((goes_on && (from == 0 || has - from >= WIDE)) || a->n - whole <= RENEW)
        return;
    if ((double)(a->n - whole) <= ids) {
        a->from = 0;
        a->has = whole;
    } else if (!goes_on) {
        a->from = a->has = a->n - (ids > LEAST ? (uint64_t)ids : LEAST);
    }
}
