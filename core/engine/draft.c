/* Drafts from the ids so far, and what they cost and gain. */
#include "engine/draft.h"

#define LONGEST  32u  /* ids of an end that are compared */
#define SHORTEST 2u   /* a shorter end says too little */
#define WEIGHT   0.06 /* of a new id in the part of hits */
#define FORGET   512u /* passes after which a time says nothing */
#define SLOPE    0.05 /* more time for one more token, until it is measured */
#define GAIN     1.03 /* less is noise of the times */

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

static bool known(const struct tsr_engine_draft_pace *p, uint64_t rows)
{
    return p->pass[rows].times && p->passes - p->pass[rows].at <= FORGET;
}

/* Seconds of a pass of more tokens than one that is known: as measured, or on the line through the nearest that are known,
 * above and below or else both below; with one alone a little more than that took, so that it is tried.  What was measured
 * once gets a second chance. */
static double expected(const struct tsr_engine_draft_pace *p, uint64_t rows)
{
    if (known(p, rows))
        return p->pass[rows].seconds * (p->pass[rows].times == 1 ? 0.85 : 1);
    uint64_t below = rows - 1, other = rows + 1;
    while (!known(p, below))
        below--;
    while (other <= TSR_ENGINE_DRAFT_ROWS && !known(p, other))
        other++;
    if (other > TSR_ENGINE_DRAFT_ROWS)
        for (other = below - 1; other > 0 && !known(p, other);)
            other--;
    double first = p->pass[below].seconds, step = first * SLOPE / (double)below;
    if (other)
        step = (p->pass[other].seconds - first) / ((double)other - (double)below);
    double line = first + step * ((double)rows - (double)below);
    return line > 0 ? line : first;
}

/* Passes grow to twice the largest that was measured. */
static uint64_t largest(const struct tsr_engine_draft_pace *p, uint64_t rows)
{
    uint64_t most = TSR_ENGINE_DRAFT_ROWS;
    while (most > rows && !known(p, most))
        most--;
    return 2 * most;
}

/* Ids of a draft of n that will be right. */
static double right(const struct tsr_engine_draft_pace *p, const struct tsr_engine_draft *d,
                    uint32_t n)
{
    double all = 1, sum = 0;
    for (uint32_t k = 0; d->from && k < n; k++) {
        all *= p->hit[class_of(d->run + k)];
        sum += all;
    }
    return sum;
}

uint32_t tsr_engine_draft_choose(const struct tsr_engine_draft_pace   *p,
                                 const struct tsr_engine_draft *const *d, const uint32_t *most,
                                 uint64_t n, uint32_t limit)
{
    uint32_t best = 0;
    if (n == 0 || n > TSR_ENGINE_DRAFT_ROWS || !known(p, n)) /* what there is to gain on */
        return 0;
    double best_rate = (double)n / expected(p, n) * GAIN;
    for (uint32_t k = 1; k <= limit; k += k < 4 ? 1 : k / 4) {
        uint64_t rows = n;
        double   tokens = (double)n;
        for (uint64_t i = 0; i < n; i++) {
            uint32_t drafts = !d[i]->from ? 0 : most[i] < k ? most[i] : k;
            rows += drafts;
            tokens += right(p, d[i], drafts);
        }
        if (rows > TSR_ENGINE_DRAFT_ROWS || rows > largest(p, n))
            break;
        double rate = tokens / expected(p, rows);
        if (rows > n && rate > best_rate) {
            best = k;
            best_rate = rate;
        }
    }
    return best;
}
