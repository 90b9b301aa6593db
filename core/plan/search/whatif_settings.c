/* Settings and limits that make an infeasible problem feasible: alone, and two together. */
#include "plan/search/whatif_internal.h"
#include "plugin/choices.h"
#include "plugin/kv_codec.h"

#include <math.h>

#define PARTS   1048576.0 /* of the way from a limit without a plan to one with */
#define STEP    1024      /* of these */
#define DOUBLES 20        /* of a time, at most */

void tsr_plan_whatif_put_few(struct tsr_plan_problem *p, const void *ctx, uint64_t x)
{
    (void)ctx;
    p->work.concurrency = p->memory.batch = x;
    if (p->o.decode_mb > x)
        p->o.decode_mb = x;
}

static void set_chunk(struct tsr_plan_problem *p, uint64_t x)
{
    p->work.chunk = p->memory.chunk = x;
}

void tsr_plan_whatif_put_kv8(struct tsr_plan_problem *p)
{
    p->work.kv = p->memory.kv = TSR_I8;
    p->latency.kv_bits = 8;
    p->kv_types = 0;
}

bool tsr_plan_whatif_can_kv8(const struct tsr_plan_problem *p)
{
    return !p->kv_types && tsr_plugin_kv_bits(p->work.kv) > 8 &&
           p->o.accounting == TSR_PLAN_ACCOUNT_EXACT && tsr_plugin_kv_is_there(p->registry, TSR_I8);
}

/* ---- limits ------------------------------------------------------------------------------ */

/* A limit between one that has no plan and one that has. */
struct limit {
    bool   first; /* on the time until prompts are done; else on omega */
    double low, high;
};

static void put_limit(struct tsr_plan_problem *p, const struct limit *l, double to)
{
    *(l->first ? &p->o.max_first_ms : &p->max_omega) = to;
}

static double part_of(const struct limit *l, uint64_t x)
{
    return l->low + (l->high - l->low) * (double)x / PARTS;
}

static void set_limit(struct tsr_plan_problem *p, const void *ctx, uint64_t x)
{
    put_limit(p, ctx, part_of(ctx, x));
}

/* The omega of the worst choice for every layer, which certainly suffices. */
double tsr_plan_whatif_worst(const struct tsr_plan_problem *p)
{
    double worst = 0;
    for (uint64_t l = 0; l < p->quality.layers; l++) {
        double most = 0;
        for (uint64_t c = 0; c < p->candidates.n; c++)
            most = fmax(most, p->quality.omega[l * p->candidates.n + c]);
        worst += most;
    }
    return worst;
}

/* The smallest limit with a plan, to a thousandth of the way there; NaN: none. */
tsr_status tsr_plan_whatif_relax(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, bool first, double *to,
                                 struct tsr_err *err)
{
    struct limit l = { first, first ? p->o.max_first_ms : p->max_omega, 0 };
    uint64_t     x;
    bool         yes = false;
    *to = NAN;
    l.high = first ? l.low : tsr_plan_whatif_worst(p);
    if (first ? !(l.low > 0) : !(l.low >= 0 && l.high > l.low))
        return TSR_OK;
    for (int i = 0; i < (first ? DOUBLES : 1) && !yes; i++) {
        l.high *= first ? 2 : 1;
        TSR_TRY(tsr_plan_whatif_probe(p, solver, set_limit, &l, (uint64_t)PARTS, &yes, err));
    }
    if (!yes)
        return TSR_OK;
    TSR_TRY(tsr_plan_whatif_least(p, solver, set_limit, &l, 0, (uint64_t)PARTS, STEP, &x, err));
    *to = part_of(&l, x);
    return TSR_OK;
}

/* ---- settings ---------------------------------------------------------------------------- */

/* Chunks from the largest, as the search over settings has them, and smaller ones. */
static const uint64_t chunks[] = { 2048, 512, 128, 32 };
#define CHUNKS (sizeof chunks / sizeof *chunks)

static bool cuts(const struct tsr_plan_problem *p, uint64_t chunk)
{
    return p->o.accounting == TSR_PLAN_ACCOUNT_EXACT && chunk < p->memory.prompt &&
           (!p->memory.chunk || chunk < p->memory.chunk);
}

/* Tokens of the largest chunk with a plan for q; 0: none. */
tsr_status tsr_plan_whatif_chunk(const struct tsr_plan_problem *q,
                                 const struct tsr_plugin_spec *solver, uint64_t *chunk,
                                 struct tsr_err *err)
{
    *chunk = 0;
    for (size_t i = 0; i < CHUNKS && !*chunk; i++) {
        struct tsr_plan_problem p = *q;
        bool                    yes, known;
        if (!cuts(q, chunks[i]))
            continue;
        set_chunk(&p, chunks[i]);
        TSR_TRY(tsr_plan_whatif_feasible(p, solver, &yes, &known, err));
        if (yes)
            *chunk = chunks[i];
    }
    return TSR_OK;
}

/* Fewer requests and a chunk; then an int8 cache with either. */
static tsr_status find_pair(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                            const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    struct tsr_plan_pair *pair = &r->pair;
    for (int kv8 = 0; kv8 < 2 && !pair->batch && !pair->chunk; kv8++) {
        struct tsr_plan_problem q = *p;
        if (kv8 && (r->kv8 || !tsr_plan_whatif_can_kv8(p)))
            return TSR_OK;
        if (kv8)
            tsr_plan_whatif_put_kv8(&q);
        for (size_t i = 0; i < CHUNKS && !r->batch && !pair->batch && (!kv8 || i == 0); i++) {
            struct tsr_plan_problem few = q;
            if (!kv8 && (r->chunk || !cuts(p, chunks[i])))
                continue;
            if (!kv8)
                set_chunk(&few, chunks[i]);
            TSR_TRY(tsr_plan_whatif_most(&few, solver, tsr_plan_whatif_put_few, NULL,
                                         p->memory.batch, &pair->batch, err));
            pair->chunk = pair->batch && !kv8 ? chunks[i] : 0;
        }
        if (kv8 && !r->chunk && !pair->batch)
            TSR_TRY(tsr_plan_whatif_chunk(&q, solver, &pair->chunk, err));
        pair->kv8 = kv8 && (pair->batch || pair->chunk);
    }
    return TSR_OK;
}

/* A higher limit on omega with one other change: a chunk, fewer requests, a cache of int8. */
static tsr_status with_limit(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                             const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    struct tsr_plan_problem wide = *p, q;
    struct tsr_plan_pair   *pair = &r->pair;
    bool                    known;
    wide.max_omega = tsr_plan_whatif_worst(p);
    if (!(p->max_omega >= 0) || !(wide.max_omega > p->max_omega))
        return TSR_OK;
    if (!r->chunk)
        TSR_TRY(tsr_plan_whatif_chunk(&wide, solver, &pair->chunk, err));
    if (!r->batch && !pair->chunk)
        TSR_TRY(tsr_plan_whatif_most(&wide, solver, tsr_plan_whatif_put_few, NULL, p->memory.batch,
                                     &pair->batch, err));
    if (!r->kv8 && !pair->chunk && !pair->batch && tsr_plan_whatif_can_kv8(p)) {
        q = wide;
        tsr_plan_whatif_put_kv8(&q);
        TSR_TRY(tsr_plan_whatif_feasible(q, solver, &pair->kv8, &known, err));
    }
    if (!pair->chunk && !pair->batch && !pair->kv8)
        return TSR_OK;
    q = *p;
    if (pair->chunk)
        set_chunk(&q, pair->chunk);
    if (pair->batch)
        tsr_plan_whatif_put_few(&q, NULL, pair->batch);
    if (pair->kv8)
        tsr_plan_whatif_put_kv8(&q);
    return tsr_plan_whatif_relax(&q, solver, false, &pair->max_omega, err);
}

tsr_status tsr_plan_whatif_settings(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    if (tsr_plan_whatif_can_kv8(p)) {
        struct tsr_plan_problem q = *p;
        bool                    known;
        tsr_plan_whatif_put_kv8(&q);
        TSR_TRY(tsr_plan_whatif_feasible(q, solver, &r->kv8, &known, err));
    }
    TSR_TRY(tsr_plan_whatif_chunk(p, solver, &r->chunk, err));
    TSR_TRY(tsr_plan_whatif_relax(p, solver, false, &r->max_omega, err));
    TSR_TRY(tsr_plan_whatif_relax(p, solver, true, &r->max_first_ms, err));
    TSR_TRY(find_pair(r, p, solver, err));
    return isnan(r->max_omega) && !r->pair.batch && !r->pair.chunk ? with_limit(r, p, solver, err)
                                                                   : TSR_OK;
}
