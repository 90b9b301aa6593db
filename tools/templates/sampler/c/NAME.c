/* @NAME@ - lowers the logit of a token for each time that it was generated, so that texts repeat less. */
#include <tessera/sampler.h>

struct options {
    double penalty;
};

static const struct tsr_option options[] = {
    TSR_OPTION_REAL(struct options, penalty, 0.5, 0.0, 100.0, NULL,
                    "What a logit loses for each time that its token was generated."),
};

struct sampler {
    const struct tsr_host *host;
    const struct options  *o;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct sampler *s = host->alloc(host->ctx, sizeof *s, 16);
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof *s);
    *s = (struct sampler){ host, opts };
    *self = s;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct sampler *s = self;
    if (s)
        s->host->release(s->host->ctx, s, sizeof *s);
}

/* No state: the history that the host gives says everything.  A sampler that needs one asks for state_bytes here. */
static tsr_status sizes(const void *self, uint64_t vocab, struct tsr_sampler_sizes *s,
                        struct tsr_err *err)
{
    (void)self;
    (void)vocab;
    (void)err;
    s->state_bytes = s->scratch_bytes = 0;
    return TSR_OK;
}

static tsr_status start(const void *self, const struct tsr_sampler_request *request, void *state,
                        struct tsr_err *err)
{
    (void)self;
    (void)request;
    (void)state;
    (void)err;
    return TSR_OK;
}

/* Leaves *token as it is, so the next sampler, and at last the host, decides. */
static tsr_status sample(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
                         struct tsr_err *err)
{
    const struct sampler *s = self;
    (void)token;
    (void)err;
    for (uint64_t i = job->n_prompt; i < job->n_history; i++)
        if (job->history[i] < job->vocab)
            job->logits[job->history[i]] -= (float)s->o->penalty;
    return TSR_OK;
}

static tsr_status accept(const void *self, void *state, uint32_t token, struct tsr_err *err)
{
    (void)self;
    (void)state;
    (void)token;
    (void)err;
    return TSR_OK;
}

static const struct tsr_sampler_v1 table = {
    .struct_size = sizeof table, .create = create, .destroy = destroy, .sizes = sizes,
    .start = start, .sample = sample, .accept = accept,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SAMPLER, .name = "@NAME@", .iface = &table,
    .summary = "Lowers logits of tokens that were generated.",
    .options = options, .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
