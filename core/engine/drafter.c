/* How many ids to draft, and the drafter of the text so far. */
#include "engine/drafter.h"

#define GAIN 1.03 /* less is noise of the times */

uint32_t tsr_engine_draft_choose(const struct tsr_engine_draft_pace *p,
                                 const struct tsr_engine_drafter    *d,
                                 const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t limit)
{
    uint32_t best = 0;
    if (n == 0 || n > TSR_ENGINE_DRAFT_ROWS ||
        !tsr_engine_draft_known(p, n)) /* what there is to gain on */
        return 0;
    double best_rate = (double)n / tsr_engine_draft_pass(p, n) * GAIN;
    for (uint32_t k = 1; k <= limit; k += k < 4 ? 1 : k / 4) {
        uint64_t rows = n;
        double   tokens = (double)n;
        for (uint64_t i = 0; i < n; i++) {
            uint32_t drafts = a[i].most < k ? a[i].most : k;
            rows += drafts;
            tokens += drafts ? d->right(d, &a[i], drafts) : 0;
        }
        if (rows > TSR_ENGINE_DRAFT_ROWS || rows > tsr_engine_draft_largest(p, n))
            break;
        double rate = tokens / (tsr_engine_draft_pass(p, rows) + d->seconds(d, p, a, n, k));
        if (rows > n && rate > best_rate) {
            best = k;
            best_rate = rate;
        }
    }
    return best;
}

/* ---- the text so far -------------------------------------------------------------------- */

static struct tsr_engine_draft_pace *pace(const struct tsr_engine_drafter *d)
{
    return ((const struct tsr_engine_draft_lookup *)d)->pace;
}

static void see(struct tsr_engine_drafter *d, struct tsr_engine_draft_ask *a, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (a[i].most)
            tsr_engine_draft_see(a[i].text, pace(d), a[i].ids, a[i].n);
        a[i].most = a[i].text->from ? a[i].most : 0;
    }
}

static double right(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_ask *a,
                    uint32_t k)
{
    return tsr_engine_draft_right(pace(d), a->text, k);
}

static double seconds(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k)
{
    (void)d;
    (void)p;
    (void)a;
    (void)n;
    (void)k;
    return 0;
}

static tsr_status make(struct tsr_engine_drafter *d, const struct tsr_model_hparams *hp,
                       struct tsr_engine_draft_ask *a, uint64_t n, struct tsr_err *err)
{
    (void)d;
    (void)hp;
    (void)err;
    for (uint64_t i = 0; i < n; i++)
        a[i].want = tsr_engine_draft_take(a[i].text, a[i].ids, a[i].n, a[i].want, a[i].out);
    return TSR_OK;
}

struct tsr_engine_drafter *tsr_engine_draft_lookup_start(struct tsr_engine_draft_lookup *l,
                                                         struct tsr_engine_draft_pace   *p)
{
    *l = (struct tsr_engine_draft_lookup){
        .base = { .see = see, .right = right, .seconds = seconds, .make = make }, .pace = p
    };
    return &l->base;
}
