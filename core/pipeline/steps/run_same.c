#include "pipeline/steps/run_same.h"

#include "base/clock.h"
#include "base/log.h"
#include "batch/watch.h"
#include "checkpoint/prepacked/prepacked.h"
#include "pipeline/job.h"
#include "pipeline/running.h"

#define MB UINT64_C(1000000)

static void on_bytes(uint64_t done, uint64_t of)
{
    tsr_batch_watch_beat(); /* a slow disk is not a stall */
    tsr_progress("hashing the weights, MB", done / MB, of / MB);
}

tsr_status tsr_step_run_verify(const struct tsr_pipeline_job *job, struct tsr_err *err)
{
    const struct tsr_prepacked *p = job->model->prepacked;
    double                      t = tsr_now_s();
    if (!p)
        return TSR_OK;
    TSR_TRY(tsr_prepacked_verify(p, tsr_plugin_registry_pool(job->registry), on_bytes, err));
    t = tsr_now_s() - t;
    tsr_logf(TSR_LOG_INFO, "hashed %.1f MB of weights in %.3f s, %.2f GB/s", (double)p->bytes / 1e6,
             t, t > 0 ? (double)p->bytes / 1e9 / t : 0.0);
    return TSR_OK;
}

tsr_status tsr_step_run_same(void *ctx, bool end, struct tsr_err *err)
{
    const struct tsr_step_run_same *s = ctx;
    tsr_status st = tsr_pipeline_mapped_unchanged(s->job->model, s->residuals, err);
    if (st == TSR_OK && end)
        st = tsr_stamps_check(&s->job->state->stamps, err);
    if (st == TSR_OK)
        return TSR_OK;
    return tsr_err_append(
        err, st,
        "; %s is not written. What is done is kept: run again, which compares what the "
        "file holds",
        s->output);
}
