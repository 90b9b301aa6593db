/* planning/rules.h - the rules of a plan file as candidates of layers; for check.c and launch/emulate.c. */
#ifndef TSR_PLANNING_RULES_H
#define TSR_PLANNING_RULES_H

#include "planning/planning.h"

#define TSR_PLANNING_NO_EXPERT (-1) /* in place of an expert: a linear of the layer itself */

/* The entries that cover a layer. */
struct tsr_planning_covering {
    uint64_t *at, n; /* [n] of the file's; room for all */
};
tsr_status tsr_planning_rules_cover(const struct tsr_plan_file *f, uint64_t layer,
                                    struct tsr_planning_covering *c, struct tsr_err *err);
/* Is a linear meant?  A rule without names is about the whole layer; in[experts]: the experts of the rule, NULL: all
 * linears. */
bool tsr_planning_rules_names(const struct tsr_config_node *e, const bool *in, uint64_t layer,
                              int linear, int64_t expert);

/* What rules say of linears. */
struct tsr_planning_reading {
    const struct tsr_plan_file   *f;
    const char                   *use;
    const struct tsr_config_node *node;    /* of the step, or NULL */
    bool *const                  *experts; /* as below, or NULL */
    bool                         *used;    /* [entries]; NULL: not recorded */
    struct tsr_diag              *d;
};
/* The rules' result for a linear; *last: the last of them, else unchanged. */
tsr_status tsr_planning_rules_text(const struct tsr_planning_reading  *r,
                                   const struct tsr_planning_covering *c, uint64_t layer,
                                   int linear, int64_t expert, char text[TSR_PLANNING_TEXT],
                                   const struct tsr_config_node **last, struct tsr_err *err);

struct tsr_planning_rules {
    struct tsr_planning *pl; /* its texts */
    struct tsr_registry *registry;
    const struct tsr_pipeline_job
               *job; /* whose model and calibration say of experts; NULL: shape does */
    const char *use; /* the quantizer of a rule that names none */
    const struct tsr_config_node *node; /* of the step, or NULL */
    const struct tsr_plan_file   *f;
    struct tsr_diag              *d;
    const struct tsr_plan_shape
                          *shape;   /* with job: where some rule is about some experts, else NULL */
    struct tsr_plan_shape *own;     /* that, if it is ours */
    bool                  *used;    /* [entries] some linear of any model has the name */
    bool                 **experts; /* [entries] -> [experts] that it names, or NULL */
    uint8_t               *group_of; /* [layers][experts] groups with equal rules; with shape */
};

/* candidate[layers]: index of each layer's among the texts of z->pl, where they are put.  z has its first seven members,
 * and without a job the shape.  Errors go to z->d; z is freed whatever is returned. */
tsr_status tsr_planning_rules_read(struct tsr_planning_rules *z, uint32_t *candidate,
                                   struct tsr_err *err);
/* With the problem open: every entry is about a linear of the model, and a mix of which a layer has one part alone is
 * that part. */
tsr_status tsr_planning_rules_settle(const struct tsr_planning_rules *z, uint32_t *candidate,
                                     struct tsr_err *err);
void       tsr_planning_rules_free(struct tsr_planning_rules *z);

#endif
