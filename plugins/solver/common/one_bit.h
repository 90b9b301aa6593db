/* one_bit.h - plans with the same bit candidate for every layer: the baselines.
 *
 *   uniform   even stages: their layers differ by one at most
 *   pipeedge  the partition with the fastest slowest decode step
 *   het       any partition, by the objective
 *
 * Each is the best that its policy allows, over all device orders, options and bits, ties of pipeedge by
 * the objective. */
#ifndef TSR_SOLVER_ONE_BIT_H
#define TSR_SOLVER_ONE_BIT_H

#include "plan.h"

enum one_bit_policy { ONE_BIT_EVEN, ONE_BIT_DECODE, ONE_BIT_ANY };

#define ONE_BIT_BEST   0 /* the bit with the least objective */
#define ONE_BIT_WIDEST 1 /* the first with a plan, from the largest layers to the smallest */

struct one_bit_opts {
    int64_t labels, pick;
};

/* The functions of the table; `name` appears in messages. */
tsr_status one_bit_create(const struct tsr_host *host, const void *opts, void **self,
                          struct tsr_err *err);
void       one_bit_destroy(void *self);
tsr_status one_bit_solve(void *self, const char *name, enum one_bit_policy policy,
                         const struct tsr_solver_instance *in, struct tsr_solver_solution *out,
                         struct tsr_err *err);

extern const struct tsr_option one_bit_options[2];
#define ONE_BIT_SUPPORTS                                                                           \
    (TSR_SOLVER_CLASSES | TSR_SOLVER_MAX_OMEGA | TSR_SOLVER_LINKS | TSR_SOLVER_USE_ALL |           \
     TSR_SOLVER_FORBIDDEN | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS | TSR_SOLVER_FIXED_ORDER |      \
     TSR_SOLVER_HOST | TSR_SOLVER_JOBS)

/* A whole plugin with one policy. */
#define ONE_BIT_PLUGIN(id_, policy, summary_)                                                      \
    static tsr_status solve(void *self, const struct tsr_solver_instance *in,                      \
                            struct tsr_solver_solution *out, struct tsr_err *err)                  \
    {                                                                                              \
        return one_bit_solve(self, #id_, policy, in, out, err);                                    \
    }                                                                                              \
    static const struct tsr_solver_v1 table = {                                                    \
        .struct_size = sizeof table,                                                               \
        .supports = ONE_BIT_SUPPORTS,                                                              \
        .create = one_bit_create,                                                                  \
        .destroy = one_bit_destroy,                                                                \
        .solve = solve,                                                                            \
    };                                                                                             \
    static const struct tsr_component component = {                                                \
        .struct_size = sizeof(struct tsr_component),                                               \
        .option_stride = sizeof(struct tsr_option),                                                \
        .kind = TSR_KIND_SOLVER,                                                                   \
        .name = #id_,                                                                              \
        .summary = summary_,                                                                       \
        .iface = &table,                                                                           \
        .options = one_bit_options,                                                                \
        .n_options = sizeof one_bit_options / sizeof one_bit_options[0],                           \
        .options_size = sizeof(struct one_bit_opts),                                               \
    };                                                                                             \
    static const struct tsr_component *const components[] = { &component };                        \
    TSR_PLUGIN_SYMBOL(id_) = {                                                                     \
        TSR_PLUGIN_HEADER,       .id = "org.tessera." #id_, .version = "0.1.0",                    \
        .license = "Apache-2.0", .build = __VERSION__,      .components = components,              \
        .n_components = 1,                                                                         \
    }

#endif
