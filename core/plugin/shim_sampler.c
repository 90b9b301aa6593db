/* Guarded samplers. */
#include "plugin/shim.h"

#include "tessera/sampler.h"

struct shim {
    struct tsr_plugin_shim base;
};
#define RAW ((const struct tsr_sampler_v1 *)shim->base.place->raw)

static tsr_status tokens(void *self, const struct tsr_sampler_tokens *t, struct tsr_err *err)
{
    TSR_CALL_LIFE(shim, RAW, tokens, t, err);
}

static tsr_status sizes(const void *self, uint64_t vocab, struct tsr_sampler_sizes *s,
                        struct tsr_err *err)
{
    TSR_CALL(shim, RAW, sizes, vocab, s, err);
}

static tsr_status start(const void *self, const struct tsr_sampler_request *request, void *state,
                        struct tsr_err *err)
{
    TSR_CALL(shim, RAW, start, request, state, err);
}

static tsr_status sample(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
                         struct tsr_err *err)
{
    TSR_CALL(shim, RAW, sample, job, token, err);
}

static tsr_status accept(const void *self, void *state, uint32_t token, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, accept, state, token, err);
}

static const struct tsr_sampler_v1 functions = {
    .destroy = tsr_plugin_shim_destroy,
    .tokens = tokens,
    .sizes = sizes,
    .start = start,
    .sample = sample,
    .accept = accept,
    .extension = tsr_plugin_shim_extension,
};

const struct tsr_plugin_shim_kind tsr_shim_sampler = {
    .id = TSR_KIND_SAMPLER,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct shim),
    .create_at = offsetof(struct tsr_sampler_v1, create),
    .destroy_at = offsetof(struct tsr_sampler_v1, destroy),
    .extension_at = offsetof(struct tsr_sampler_v1, extension),
};
