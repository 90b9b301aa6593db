/* The pipeline that a plan makes: times of its stages and links. */
#include "plan/simulate/simulate.h"

#include "base/mem.h"
#include "plan/instance/objective.h"

#include <math.h>
#include <stdlib.h>

tsr_status tsr_plan_pipeline_of(struct tsr_plan_pipeline           **out,
                                const struct tsr_solver_instance    *in,
                                const struct tsr_solver_solution    *s,
                                const struct tsr_plan_pipeline_back *back, const double *links_ms,
                                struct tsr_err *err)
{
    struct tsr_solver_solution as = *s;
    double                     objective;
    TSR_TRY(tsr_plan_evaluate(in, s, &objective, err));
    const struct tsr_solver_option *o = in->options[s->option];
    uint64_t                        n = s->stages; /* at most the devices of the instance */
    struct tsr_plan_pipeline       *p = tsr_new(1, sizeof *p + 6 * n * sizeof(double));
    if (!p)
        return tsr_fail_nomem(err, 6 * n * sizeof(double), "the pipeline of a plan");
    double *t = (double *)(void *)(p + 1);
    *p = (struct tsr_plan_pipeline){ .stages = n,
                                     .batch = in->batch,
                                     .tokens = in->tokens,
                                     .prefill_mb = o->prefill_mb,
                                     .decode_mb = o->decode_mb,
                                     .pre_ms = t,
                                     .prefill_jobs = o->prefill_jobs / ceil((double)in->batch /
                                                                            (double)o->prefill_mb),
                                     .dec_ms = t + n,
                                     .link_pre_ms = t + 2 * n,
                                     .link_dec_ms = t + 3 * n,
                                     .back = back,
                                     .way_pre_ms = t + 4 * n,
                                     .way_dec_ms = t + 5 * n };
    as.stages += back != NULL; /* no stage is the last, which has the way back as if it were work */
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_plan_stage_cost c;
        tsr_status                 st = tsr_plan_stage(in, &as, i, &c, err);
        if (st != TSR_OK) {
            free(p);
            return st;
        }
        t[i] = c.pre_ms - (back && i == 0 ? back->head_pre_ms / fmax(1, p->prefill_jobs) : 0);
        t[n + i] = c.dec_ms - (back && i == 0 ? back->head_dec_ms : 0);
        if (i + 1 < n) {
            uint64_t e = tsr_plan_link(in, s, i);
            t[2 * n + i] = o->comm_pre_ms[e];
            t[3 * n + i] = o->comm_dec_ms[e];
            t[4 * n + i] = t[5 * n + i] = 0;
            for (uint64_t k = 0; links_ms && k < 4; k++)
                t[(2 + k) * n + i] = links_ms[k * (n - 1) + i];
        }
    }
    *out = p;
    return TSR_OK;
}
