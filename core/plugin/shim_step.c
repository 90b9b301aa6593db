/* Guarded steps. */
#include "plugin/shim.h"

#include "tessera/step.h"

struct shim {
    struct tsr_plugin_shim base;
};
#define RAW ((const struct tsr_step_v1 *)shim->base.place->raw)

/* The host itself works inside these calls, and libraries that it starts may set handlers: only what a plugin can change
 * is compared. */
static tsr_status run(void *self, const struct tsr_step_job *job, struct tsr_err *err)
{
    TSR_CALL_STEP(shim, RAW, run, job, err);
}

static tsr_status check(const void *self, const struct tsr_step_job *job, struct tsr_err *err)
{
    TSR_CALL_STEP(shim, RAW, check, job, err);
}

static const struct tsr_step_v1 functions = { .destroy = tsr_plugin_shim_destroy,
                                              .run = run,
                                              .check = check,
                                              .extension = tsr_plugin_shim_extension };

const struct tsr_plugin_shim_kind tsr_shim_step = {
    .id = TSR_KIND_STEP,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct shim),
    .create_at = offsetof(struct tsr_step_v1, create),
    .destroy_at = offsetof(struct tsr_step_v1, destroy),
    .extension_at = offsetof(struct tsr_step_v1, extension),
};
