/* Error compensation as a choice of layers: what has to be known of it. */
#include "plan/cost/compensation.h"
#include "plan/search/problem.h"
#include "tessera/solver.h"

/* A scheme of which a k has no figure. */
static tsr_status lacks(const struct tsr_plan_problem *p, uint64_t candidate, uint32_t k,
                        struct tsr_err *err)
{
    const struct tsr_plan_candidate    *c = &p->candidates.v[candidate];
    const struct tsr_plan_quality_kept *has = &p->quality.kl.kept[candidate];
    return tsr_fail(
        err, TSR_E_INPUT,
        "%s: it has no figure of '%s' (%s%s%.60s) with k = %u compensated channels, only up to "
        "k = %g; measure it too, or list smaller k in 'compensate'",
        p->o.indicators, c->name, c->scheme, *c->options ? ":" : "", c->options, k,
        has->k[has->n - 1]);
}

bool tsr_plan_compensate_known(const struct tsr_plan_cluster *c)
{
    bool some = false;
    for (uint64_t g = 0; g < c->n_groups; g++) {
        const struct tsr_plan_mesh m = { .profile = c->groups[g].profile, .tp = 1 };
        some = some || !tsr_plan_compensation_host(&m) || m.profile->host_bandwidth > 0;
    }
    return some;
}

tsr_status tsr_plan_problem_compensate_open(struct tsr_plan_problem *p, struct tsr_err *err)
{
    uint32_t most = 0;
    p->residual_bits = TSR_PLAN_RESIDUAL_BITS;
    p->residual_assumed = true;
    for (uint32_t i = 0; i < p->o.n_k; i++)
        most = p->o.k[i] > most ? p->o.k[i] : most;
    p->most_k = p->work_k = most;
    if (!most)
        return TSR_OK;
    if (*p->shape->packed)
        return tsr_fail(err, TSR_E_INPUT,
                        "compensate: the weights of %s are packed already (%s), and indicators say "
                        "nothing of them; "
                        "plan for the original model",
                        p->shape->name, p->shape->packed);
    if (!p->quality.kl.on)
        return tsr_fail(err, TSR_E_INPUT,
                        "compensate: what compensation gives back is not known without indicators "
                        "by KL; give quality: "
                        "{indicators: FILE} of tessera indicators --measure kl");
    if (p->o.accounting == TSR_PLAN_ACCOUNT_PAPER || p->o.objective == TSR_OBJECTIVE_PAPER)
        return tsr_fail(err, TSR_E_INPUT,
                        "compensate: the accounting and the objective of the paper know no "
                        "residuals; use exact and steady");
    if (!tsr_plan_compensate_known(p->cluster))
        return tsr_fail(err, TSR_E_INPUT,
                        "compensate: no profile of %s says how fast its device reads the host's "
                        "memory (host), so that the time of compensation is not known",
                        p->cluster->name);
    for (uint32_t i = 0; i < p->o.n_k; i++)
        for (uint64_t c = 0; c < p->candidates.n; c++)
            if (p->candidates.v[c].q.self && !p->candidates.v[c].mixed &&
                !tsr_plan_quality_kept_of(&p->quality, c, p->o.k[i], NULL, NULL))
                return lacks(p, c, p->o.k[i], err);
    return TSR_OK;
}
