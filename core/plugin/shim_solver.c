/* Guarded solvers. */
#include "plugin/shim.h"

#include "tessera/draft/lines.h"
#include "tessera/solver.h"

struct shim {
    struct tsr_plugin_shim base;
    struct {
        const void                *raw;
        struct tsr_solver_lines_v1 table;
    } lines;
};
#define RAW ((const struct tsr_solver_v1 *)shim->base.place->raw)
#define LINES                                                                                      \
    ((const struct tsr_solver_lines_v1 *)tsr_shim_raw(&shim->base, &shim->lines.raw,               \
                                                      TSR_SOLVER_LINES))

static tsr_status solve(void *self, const struct tsr_solver_instance *in,
                        struct tsr_solver_solution *out, struct tsr_err *err)
{
    TSR_CALL_LIFE(shim, RAW, solve, in, out, err);
}

static const struct tsr_solver_v1 functions = { .destroy = tsr_plugin_shim_destroy,
                                                .solve = solve,
                                                .extension = tsr_plugin_shim_extension };

static tsr_status solve_lines(void *self, const struct tsr_solver_instance *in,
                              struct tsr_solver_solution *out, struct tsr_solver_line *lines,
                              struct tsr_err *err)
{
    TSR_CALL_LIFE(shim, LINES, solve, in, out, lines, err);
}

static const struct tsr_solver_lines_v1 with_lines = { .solve = solve_lines };

static const struct tsr_plugin_shim_extension extensions[] = {
    TSR_SHIM_EXTENSION(struct shim, TSR_SOLVER_LINES, lines, with_lines),
};

const struct tsr_plugin_shim_kind tsr_shim_solver = {
    .id = TSR_KIND_SOLVER,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct shim),
    .create_at = offsetof(struct tsr_solver_v1, create),
    .destroy_at = offsetof(struct tsr_solver_v1, destroy),
    .extension_at = offsetof(struct tsr_solver_v1, extension),
    .extensions = extensions,
    .n_extensions = sizeof extensions / sizeof *extensions,
};
