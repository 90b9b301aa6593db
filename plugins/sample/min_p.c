/* min_p - leaves the tokens that have a part of the best one's probability, before the temperature.
 *
 *   softmax(l)[i] >= p * max softmax(l)   is   l[i] >= max l + ln p
 *
 * The key min_p of a request is the same after temperature, top-k and top-p. */
#include "tessera/sampler.h"

#include <math.h>

struct options {
    double p;
};

struct min_p {
    const struct tsr_host *host;
    double                 below; /* ln p, or -INFINITY */
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct min_p *m = host->alloc(host->ctx, sizeof *m, 16);
    if (!m)
        return tsr_fail(err, TSR_E_NOMEM, "min_p: out of memory: %zu bytes", sizeof *m);
    *m = (struct min_p){ host, log(((const struct options *)opts)->p) };
    *self = m;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct min_p *m = self;
    if (m)
        m->host->release(m->host->ctx, m, sizeof *m);
}

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

static tsr_status sample(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
                         struct tsr_err *err)
{
    const struct min_p *m = self;
    float               best = -INFINITY;
    (void)token;
    (void)err;
    for (uint64_t i = 0; i < job->vocab; i++)
        best = job->logits[i] > best ? job->logits[i] : best;
    for (uint64_t i = 0; i < job->vocab; i++)
        if ((double)job->logits[i] < (double)best + m->below)
            job->logits[i] = -INFINITY;
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
    .struct_size = sizeof table,
    .create = create,
    .destroy = destroy,
    .sizes = sizes,
    .start = start,
    .sample = sample,
    .accept = accept,
};

static const struct tsr_option options[] = {
    TSR_OPTION_REAL(struct options, p, 0.05, 0.0, 1.0, NULL,
                    "Least part of the best token's probability; 0 takes all."),
};

static const struct tsr_component min_p = {
    .struct_size = sizeof min_p,
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SAMPLER,
    .name = "min_p",
    .summary = "Leaves tokens with a part of the best one's probability.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};
static const struct tsr_component *const components[] = { &min_p };

TSR_PLUGIN_SYMBOL(min_p) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.min_p", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,  .n_components = 1,
};
