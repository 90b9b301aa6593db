/* @NAME@ - lowers the logit of a token for each time that it was generated, so that texts repeat less. */
#include "@NAME@.h"

#include <tessera/guard.hpp>

struct sampler {
    const tsr_host *host;
    const options  *o;
};

static tsr_status create(const tsr_host *host, const void *opts, void **self, tsr_err *err)
{
    void *p = host->alloc(host->ctx, sizeof(sampler), alignof(sampler));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof(sampler));
    *self = new (p) sampler{ host, static_cast<const options *>(opts) };
    return TSR_OK;
}

static void destroy(void *self)
{
    if (auto *s = static_cast<sampler *>(self))
        s->host->release(s->host->ctx, s, sizeof *s);
}

/* No state: the history that the host gives says everything.  A sampler that needs one asks for state_bytes here. */
static tsr_status sizes(const void *, uint64_t, tsr_sampler_sizes *s, tsr_err *)
{
    s->state_bytes = s->scratch_bytes = 0;
    return TSR_OK;
}

static tsr_status start(const void *, const tsr_sampler_request *, void *, tsr_err *)
{
    return TSR_OK;
}

/* Leaves *token as it is, so the next sampler, and at last the host, decides. */
static tsr_status sample(const void *self, const tsr_sampler_job *job, uint32_t *, tsr_err *)
{
    auto penalty = static_cast<float>(static_cast<const sampler *>(self)->o->penalty);
    for (uint64_t i = job->n_prompt; i < job->n_history; i++)
        if (job->history[i] < job->vocab)
            job->logits[job->history[i]] -= penalty;
    return TSR_OK;
}

static tsr_status accept(const void *, void *, uint32_t, tsr_err *)
{
    return TSR_OK;
}

const tsr_sampler_v1 table = {
    .struct_size = sizeof table, .reserved = 0, .needs = 0, .create = tsr_guard<create>,
    .destroy = destroy, .tokens = nullptr, .sizes = tsr_guard<sizes>, .start = tsr_guard<start>,
    .sample = tsr_guard<sample>, .accept = tsr_guard<accept>, .extension = nullptr,
};
