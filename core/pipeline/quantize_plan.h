/* pipeline/quantize_plan.h - what a plan file (docs/formats/plan.md) says about packing, as rules. */
#ifndef TSR_PIPELINE_QUANTIZE_PLAN_H
#define TSR_PIPELINE_QUANTIZE_PLAN_H

#include "model/model.h"
#include "plan/plan_file.h"

struct tsr_plan_rules {
    struct tsr_plan_file file;
    struct tsr_node      list; /* the plan's rules, then those given; borrows from both documents */
    struct tsr_node    **items;
};

/* Reads the plan and puts its rules in front of `rules` (a list, or NULL), whose document must
 * outlive p.  What is wrong with the file goes to d; then p holds nothing to use, but is freed as
 * always. */
tsr_status tsr_plan_rules_load(struct tsr_plan_rules *p, const char *path,
                               const struct tsr_node *rules, struct tsr_diag *d,
                               struct tsr_err *err);
/* TSR_E_INPUT when the plan was made for another model. */
tsr_status tsr_plan_rules_fit(const struct tsr_plan_rules *p, const struct tsr_model *m,
                              struct tsr_err *err);
void       tsr_plan_rules_free(struct tsr_plan_rules *p);

#endif
