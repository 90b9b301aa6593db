/* plan/device_read.h - what the two files that read device profiles share. */
#ifndef TSR_PLAN_DEVICE_READ_H
#define TSR_PLAN_DEVICE_READ_H

#include "plan/device.h"
#include "plan/quantity.h"

struct tsr_profile_reading {
    struct tsr_profile *p;
    struct tsr_diag    *d;
    uint64_t            before; /* errors that d had */
    uint64_t            cap_points, cap_ends;
    bool                nomem;
};

#define TEXT(S, f, h)                                                                              \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .flags = TSR_OPT_REQUIRED,                  \
        .offset = TSR_FIELD(S, f, const char *), .def = {                                          \
            .s = ""                                                                                \
        }                                                                                          \
    }

#define FILL(r, table, node, what, into)                                                           \
    tsr_profile_fill(r, table, sizeof(table) / sizeof *(table), node, what, into)
void tsr_profile_fill(struct tsr_profile_reading *r, const struct tsr_option *o, uint64_t n,
                      const struct tsr_node *node, const char *what, void *into);
/* Items of a list of maps, each through `one`. */
void tsr_profile_each(struct tsr_profile_reading *r, const struct tsr_node *list, const char *what,
                      void (*one)(struct tsr_profile_reading *, const struct tsr_node *));
/* True for a kernel's name that fits where names are kept; else an error. */
bool tsr_profile_kernel_name(struct tsr_profile_reading *r, const struct tsr_node *map,
                             const char *name);

/* Entries of `layers` and of `ends`. */
void tsr_profile_layer(struct tsr_profile_reading *r, const struct tsr_node *map);
void tsr_profile_end(struct tsr_profile_reading *r, const struct tsr_node *map);

#endif
