/* plan/cost/device_internal.h - declarations shared by the two files that read device profiles. */
#ifndef TSR_PLAN_COST_DEVICE_INTERNAL_H
#define TSR_PLAN_COST_DEVICE_INTERNAL_H

#include "plan/cost/device.h"
#include "plan/cost/quantity.h"

struct tsr_plan_profile_reading {
    struct tsr_plan_profile *p;
    struct tsr_diag         *d;
    uint64_t                 before; /* earlier errors in d */
    uint64_t                 cap_points, cap_ends;
    bool                     nomem;
};

#define PROFILE_TEXT(S, f, h)                                                                      \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .flags = TSR_OPT_REQUIRED,                  \
        .offset = TSR_FIELD(S, f, const char *), .def = {                                          \
            .s = ""                                                                                \
        }                                                                                          \
    }

#define PROFILE_FILL(r, table, node, what, into)                                                   \
    tsr_plan_profile_fill(r, table, sizeof(table) / sizeof *(table), node, what, into)
void tsr_plan_profile_fill(struct tsr_plan_profile_reading *r, const struct tsr_option *o,
                           uint64_t n, const struct tsr_config_node *node, const char *what,
                           void *into);
/* Items of a list of maps, each through `one`. */
void tsr_plan_profile_each(struct tsr_plan_profile_reading *r, const struct tsr_config_node *list,
                           const char *what,
                           void (*one)(struct tsr_plan_profile_reading *,
                                       const struct tsr_config_node *));
/* True for a kernel's name that fits where names are kept; else an error. */
bool tsr_plan_profile_kernel_name(struct tsr_plan_profile_reading *r,
                                  const struct tsr_config_node *map, const char *name);

/* Entries of `layers` and of `ends`. */
void tsr_plan_profile_layer(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map);
void tsr_plan_profile_end(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map);
/* An entry of `codecs` (device_codecs.c). */
void tsr_plan_profile_codec(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map);

#endif
