/* pipeline/quantize_plan.h - the packing of a plan file (docs/formats/plan.md) as rules. */
#ifndef TSR_PIPELINE_QUANTIZE_PLAN_H
#define TSR_PIPELINE_QUANTIZE_PLAN_H

#include "model/model.h"
#include "plan/file/plan_file.h"

struct tsr_pipeline_plan_rules {
    struct tsr_plan_file file;
    struct tsr_config_node
        list; /* the plan's rules, then those given; borrows from both documents */
    struct tsr_config_node **items;
};

/* Reads the plan and puts its rules before `rules` (a list, or NULL), whose document must outlive p.
 * Errors of the file go to d; then p holds nothing usable but must still be freed. */
tsr_status tsr_pipeline_plan_rules_load(struct tsr_pipeline_plan_rules *p, const char *path,
                                        const struct tsr_config_node *rules, struct tsr_diag *d,
                                        struct tsr_err *err);
/* Gives a scheme's map that has no `use` the first one that a rule names: a plan's rules say theirs.  keys and items
 * have room for one more.  Borrows from p. */
void tsr_pipeline_plan_rules_use(const struct tsr_pipeline_plan_rules *p,
                                 struct tsr_config_node               *map);
/* TSR_E_INPUT when the plan was made for another model.  original: the model that m was packed from, for which the plan may
 * be, too; NULL: none. */
tsr_status tsr_pipeline_plan_rules_fit(const struct tsr_pipeline_plan_rules *p,
                                       const struct tsr_model *m, const char *original,
                                       struct tsr_err *err);
void       tsr_pipeline_plan_rules_free(struct tsr_pipeline_plan_rules *p);

#endif
