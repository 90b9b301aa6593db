/* plan/cost/quality_internal.h - a file of indicators while it is read; shared by quality.c and quality_experts.c. */
#ifndef TSR_PLAN_COST_QUALITY_INTERNAL_H
#define TSR_PLAN_COST_QUALITY_INTERNAL_H

#include "base/json.h"
#include "plan/cost/quality.h"

#define TSR_QUALITY_WIDTHS 8u    /* most of a file */
#define TSR_QUALITY_MOST   1e100 /* so that sums over any model are numbers */

struct tsr_quality_table {
    const char *path;
    json_t     *root, *rows; /* rows: omega of the table that is used */
    uint32_t    bits[TSR_QUALITY_WIDTHS], n;
    int64_t     layers;
    const char *name;
    json_t     *experts, *experts_omega; /* of the table that says of experts, or NULL */
    const char *experts_name;
};

/* The table's numbers of single experts; a table without them takes those of hessian or of a variance, if there are any:
 * their parts of their layer.  [setup] */
tsr_status tsr_quality_find_experts(struct tsr_quality_table *t, const struct tsr_plan_shape *s,
                                    struct tsr_err *err);
/* parts[groups + 1]: of what layer l suffers at `bits`, which are in the file's range, the part of each group of experts,
 * and of all else.  *known: false where the file does not say.  [any] */
void tsr_quality_parts(const struct tsr_quality_table *t, const struct tsr_plan_shape *s,
                       uint64_t l, uint32_t bits, double *parts, bool *known);
/* s->suffers from the file's fewest bits, where it says of experts.  [setup] */
tsr_status tsr_quality_order(const struct tsr_quality_table *t, struct tsr_plan_shape *s,
                             struct tsr_err *err);

/* Whether a file is tessera.indicators/2, and reads it: q has its tables, t the root.  [setup] */
bool       tsr_quality_is_kl(const struct tsr_quality_table *t);
tsr_status tsr_quality_read_kl(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                               const char *want, const struct tsr_plan_shape *s,
                               const struct tsr_plan_candidates *c, struct tsr_err *err);

/* "compensation" of a file: q->kl.kept of all candidates.  [setup] */
tsr_status tsr_quality_read_kept(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                                 const struct tsr_plan_candidates *c, struct tsr_err *err);
/* "interval": [low, high] as half of its width, NAN where it is null or not there; false: it is neither.  [any] */
bool tsr_quality_read_interval(const json_t *v, double *half);
/* Whether a candidate is the scheme of a file's text, "gptq:bits=4": the quantizer, and all its options. */
bool tsr_quality_is_scheme(const struct tsr_plan_candidate *c, const char *text);

#endif
