/* How many ids to draft, and the drafter of the text so far. */
#include "engine/drafter.h"

#define GAIN  1.03 /* less is noise of the times */
#define EXTRA 0.02 /* of the plain time may be lost; the rest to 0.97 is for noise */
#define TRIES 0.01 /* of it by tries */

/* ---- what drafts may take ------------------------------------------------------------------ */

double tsr_engine_draft_spare(const struct tsr_engine_draft_account *c,
                              const struct tsr_engine_draft_pace *p, uint64_t n)
{
    double first = p->pass[n].seconds, part = c->plain * EXTRA;
    return (part > first ? part : first) - c->lost;
}

void tsr_engine_draft_settle(struct tsr_engine_draft_account    *c,
                             const struct tsr_engine_draft_pace *p, uint64_t n, uint64_t tokens,
                             double seconds, double loss)
{
    if (n == 0 || n > TSR_ENGINE_DRAFT_ROWS || !tsr_engine_draft_known(p, n))
        return;
    double one = p->pass[n].seconds, plain = one * (double)tokens / (double)n;
    c->plain += plain;
    if (loss > 0) /* a pause of the machine is not what drafts take */
        c->lost += (seconds < 2 * (one + loss) ? seconds : 2 * (one + loss)) - plain;
}

/* ---- how many ----------------------------------------------------------------------------- */

/* A choice of k ids: false where the pass would be too large. */
struct choice {
    uint64_t rows;
    double   rate; /* tokens of a second, as expected */
    double   loss; /* seconds, if all ids are wrong */
};

static bool consider(const struct tsr_engine_draft_pace *p, const struct tsr_engine_drafter *d,
                     const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k, struct choice *c)
{
    double tokens = (double)n;
    c->rows = n;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t drafts = a[i].most < k ? a[i].most : k;
        c->rows += drafts;
        tokens += drafts ? d->right(d, &a[i], drafts) : 0;
    }
    if (c->rows > TSR_ENGINE_DRAFT_ROWS || c->rows > tsr_engine_draft_largest(p, n))
        return false;
    c->rate = tokens / (tsr_engine_draft_pass(p, c->rows) + d->seconds(d, p, a, n, k, false));
    c->loss = tsr_engine_draft_pass_most(p, n, c->rows) - p->pass[n].seconds +
              d->seconds(d, p, a, n, k, true);
    return true;
}

uint32_t tsr_engine_draft_choose(const struct tsr_engine_draft_pace *p,
                                 const struct tsr_engine_drafter    *d,
                                 const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t limit,
                                 struct tsr_engine_draft_account *c, double *loss)
{
    uint32_t best = 0;
    *loss = 0;
    if (n == 0 || n > TSR_ENGINE_DRAFT_ROWS ||
        !tsr_engine_draft_known(p, n)) /* what there is to gain on */
        return 0;
    struct choice with;
    double        spare = tsr_engine_draft_spare(c, p, n);
    double        best_rate = (double)n / tsr_engine_draft_pass(p, n) * GAIN;
    for (uint32_t k = 1; k <= limit && consider(p, d, a, n, k, &with); k += k < 4 ? 1 : k / 4)
        if (with.rows > n && with.rate > best_rate && with.loss <= spare) {
            best = k;
            best_rate = with.rate;
            *loss = with.loss;
        }
    if (best == 0 && d->tries && limit && consider(p, d, a, n, 1, &with) && with.rows > n &&
        with.loss <= spare && c->tried + with.loss <= c->plain * TRIES) {
        c->tried += with.loss;
        *loss = with.loss;
        best = 1;
    }
    return best;
}

/* ---- the text so far -------------------------------------------------------------------- */

static struct tsr_engine_draft_pace *pace(const struct tsr_engine_drafter *d)
{
    return ((const struct tsr_engine_draft_lookup *)d)->pace;
}

static void see(struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                struct tsr_engine_draft_ask *a, uint64_t n, double spare)
{
    (void)p;
    (void)spare;
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
                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k, bool most)
{
    (void)most;
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
