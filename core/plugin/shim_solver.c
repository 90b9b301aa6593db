/* Guarded solvers. */
#include "plugin/shim.h"

#include "tessera/solver.h"

struct shim {
    struct tsr_plugin_shim base;
};
#define RAW ((const struct tsr_solver_v1 *)shim->base.place->raw)

static tsr_status solve(void *self, const struct tsr_solver_instance *in,
                        struct tsr_solver_solution *out, struct tsr_err *err)
{
    TSR_CALL_LIFE(shim, RAW, solve, in, out, err);
}

static const struct tsr_solver_v1 functions = { .destroy = tsr_plugin_shim_destroy,
                                                .solve = solve,
                                                .extension = tsr_plugin_shim_extension };

const struct tsr_plugin_shim_kind tsr_shim_solver = {
    .id = TSR_KIND_SOLVER,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct shim),
    .create_at = offsetof(struct tsr_solver_v1, create),
    .destroy_at = offsetof(struct tsr_solver_v1, destroy),
    .extension_at = offsetof(struct tsr_solver_v1, extension),
};
