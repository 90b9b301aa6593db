/* Drafts from the ids so far, and what they cost and gain. */
#include "engine/draft.h"

#define LONGEST  32u  /* ids of an end that are compared */
#define SHORTEST 2u   /* a shorter end says too little */
#define WEIGHT   0.06 /* of a new id in the part of hits */
#define FORGET   512u /* passes after which a time says nothing */
#define SLOPE    0.05 /* more time for one more token, until it is measured */

void tsr_engine_draft_pace_start(struct tsr_engine_draft_pace *p)
{
    static const double first[TSR_ENGINE_DRAFT_RUNS] = { 0.3, 0.5, 0.7, 0.85 };
    *p = (struct tsr_engine_draft_pace){ 0 };
    for (uint32_t i = 0; i < TSR_ENGINE_DRAFT_RUNS; i++)
        p->hit[i] = first[i];
}

static uint32_t class_of(uint64_t run)
{
    return run < 4 ? 0 : run < 8 ? 1 : run < 16 ? 2 : 3;
}

/* The place behind the longest earlier copy of the end of the ids; of two as long, the later one. */
static void look_up(struct tsr_engine_draft *d, const uint32_t *ids, uint64_t n)
{
    d->from = d->run = 0;
    for (uint64_t at = n > 0 ? n - 1 : 0; at > 0 && d->run < LONGEST; at--) {
        uint64_t same = 0;
        while (same < LONGEST && same < at && ids[at - 1 - same] == ids[n - 1 - same])
            same++;
        if (same >= SHORTEST && same > d->run) {
            d->from = at;
            d->run = same;
        }
    }
}

void tsr_engine_draft_see(struct tsr_engine_draft *d, struct tsr_engine_draft_pace *p,
                          const uint32_t *ids, uint64_t n)
{
    if (d->seen == n)
        return;
    if (d->seen == 0) {
        d->seen = n;
        look_up(d, ids, n);
    }
    for (; d->seen < n; d->seen++) {
        bool hit = d->from && ids[d->from] == ids[d->seen];
        if (d->from)
            p->hit[class_of(d->run)] += ((hit ? 1.0 : 0.0) - p->hit[class_of(d->run)]) * WEIGHT;
        if (hit) {
            d->from++;
            d->run++;
        } else {
            look_up(d, ids, d->seen + 1);
        }
    }
}

uint32_t tsr_engine_draft_take(const struct tsr_engine_draft *d, const uint32_t *ids, uint64_t n,
                               uint32_t most, uint32_t *out)
{
    uint32_t k = 0;
    for (; d->from && k < most; k++)
        out[k] = d->from + k < n ? ids[d->from + k] : out[d->from + k - n];
    return k;
}

void tsr_engine_draft_took(struct tsr_engine_draft_pace *p, uint64_t rows, double seconds)
{
    p->passes++;
    if (rows > TSR_ENGINE_DRAFT_ROWS || !(seconds >= 0))
        return;
    bool   old = p->passes - p->pass[rows].at > FORGET;
    double was = p->pass[rows].seconds;
    if (p->pass[rows].times == 0 || old)
        p->pass[rows].times = 0;
    else /* a pause of the machine is not what a pass takes */
        seconds = was + ((seconds < 2 * was ? seconds : 2 * was) - was) * 0.3;
    p->pass[rows].seconds = seconds;
    p->pass[rows].times++;
    p->pass[rows].at = p->passes;
}

void tsr_engine_draft_prompt_took(struct tsr_engine_draft_pace *p, uint64_t tokens, double seconds)
{
    double one = seconds / (double)tokens;
    if (tokens && one >= 0)
        p->prompt = p->prompt > 0 ? p->prompt + (one - p->prompt) * 0.3 : one;
}

bool tsr_engine_draft_known(const struct tsr_engine_draft_pace *p, uint64_t rows)
{
    return p->pass[rows].times && p->passes - p->pass[rows].at <= FORGET;
}

/* Seconds of a pass of more tokens than one that is known: as measured, or on the line through the nearest that are known,
 * above and below or else both below; with one alone a little more than that took, so that it is tried.  What was measured
 * once gets a second chance. */
static double expected(const struct tsr_engine_draft_pace *p, uint64_t rows)
{
    if (tsr_engine_draft_known(p, rows))
        return p->pass[rows].seconds * (p->pass[rows].times == 1 ? 0.85 : 1);
    uint64_t below = rows - 1, other = rows + 1;
    while (!tsr_engine_draft_known(p, below))
        below--;
    while (other <= TSR_ENGINE_DRAFT_ROWS && !tsr_engine_draft_known(p, other))
        other++;
    if (other > TSR_ENGINE_DRAFT_ROWS)
        for (other = below - 1; other > 0 && !tsr_engine_draft_known(p, other);)
            other--;
    double first = p->pass[below].seconds, step = first * SLOPE / (double)below;
    if (other)
        step = (p->pass[other].seconds - first) / ((double)other - (double)below);
    double line = first + step * ((double)rows - (double)below);
    return line > 0 ? line : first;
}

double tsr_engine_draft_pass(const struct tsr_engine_draft_pace *p, uint64_t rows)
{
    rows = rows < 1 ? 1 : rows < TSR_ENGINE_DRAFT_ROWS ? rows : TSR_ENGINE_DRAFT_ROWS;
    uint64_t below = rows, above = rows;
    while (below > 0 && !tsr_engine_draft_known(p, below))
        below--;
    while (above < TSR_ENGINE_DRAFT_ROWS && !tsr_engine_draft_known(p, above))
        above++;
    return below                              ? expected(p, rows)
           : tsr_engine_draft_known(p, above) ? p->pass[above].seconds
                                              : 0;
}

double tsr_engine_draft_pass_most(const struct tsr_engine_draft_pace *p, uint64_t n, uint64_t rows)
{
    uint64_t below = rows;
    double   each = p->pass[n].seconds / (double)n;
    while (below > n && !tsr_engine_draft_known(p, below))
        below--;
    if (p->prompt > 0 && 2 * p->prompt < each)
        each = 2 * p->prompt;
    return p->pass[below].seconds + each * (double)(rows - below);
}

uint64_t tsr_engine_draft_largest(const struct tsr_engine_draft_pace *p, uint64_t rows)
{
    uint64_t most = TSR_ENGINE_DRAFT_ROWS;
    while (most > rows && !tsr_engine_draft_known(p, most))
        most--;
    return 2 * most;
}

double tsr_engine_draft_right(const struct tsr_engine_draft_pace *p,
                              const struct tsr_engine_draft *d, uint32_t n)
{
    double all = 1, sum = 0;
    for (uint32_t k = 0; d->from && k < n; k++) {
        all *= p->hit[class_of(d->run + k)];
        sum += all;
    }
    return sum;
}
