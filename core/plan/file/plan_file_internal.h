/* plan/file/plan_file_internal.h - declarations shared by the two files that read plans. */
#ifndef TSR_PLAN_FILE_PLAN_FILE_INTERNAL_H
#define TSR_PLAN_FILE_PLAN_FILE_INTERNAL_H

#include "plan/file/plan_file.h"

#include <math.h>

#define TSR_PLAN_BYTES (INT64_C(1) << 53) /* largest integer that JSON and YAML hold exactly */

/* The two sets of layers while a file is read: of the stages so far, and of one stage's rules. */
struct tsr_plan_reading {
    struct tsr_plan_file *p;
    struct tsr_diag      *d;
    uint64_t              before; /* earlier errors in d */
    uint64_t              next;   /* the first layer that no stage has yet */
    bool                 *in, *covered;
};

static inline bool tsr_plan_failed(const struct tsr_plan_reading *r)
{
    return tsr_config_diag_errors(r->d) != r->before;
}

void tsr_plan_fill(const struct tsr_plan_reading *r, const struct tsr_option *o, uint64_t n,
                   void *into, const struct tsr_config_node *map, const char *what);
#define TSR_PLAN_FILL(r, table, into, map, what)                                                   \
    tsr_plan_fill(r, table, sizeof(table) / sizeof *(table), into, map, what)

/* False after an error at the node, or at `at` where there is none. */
bool tsr_plan_is_list(const struct tsr_config_node *n, const struct tsr_config_mark *at,
                      const char *what, struct tsr_diag *d);

/* Reads one entry of `stages` and appends it to those of r->p. */
tsr_status tsr_plan_read_stage(struct tsr_plan_reading *r, const struct tsr_config_node *n,
                               struct tsr_err *err);

#define REQUIRED_TEXT(S, f, h)                                                                     \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .flags = TSR_OPT_REQUIRED,                  \
        .offset = TSR_FIELD(S, f, const char *), .def = {                                          \
            .s = ""                                                                                \
        }                                                                                          \
    }
#define REQUIRED_INT(S, f, lo, hi, h)                                                              \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_INT, .flags = TSR_OPT_REQUIRED,                     \
        .offset = TSR_FIELD(S, f, int64_t), .min = { .i = lo }, .max = {                           \
            .i = hi                                                                                \
        }                                                                                          \
    }
#define SAID_MS(S, f, h) TSR_OPTION_REAL(S, f, NAN, 0, 1e18, "ms", h)

#endif
