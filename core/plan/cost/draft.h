/* plan/cost/draft.h - a model that drafts tokens for the planned one (engine/drafter.h): its bytes on the first device.
 *
 * It runs whole in the process of rank 0, with the slots and the context of the plan, on the backend of the step that generates.
 */
#ifndef TSR_PLAN_COST_DRAFT_H
#define TSR_PLAN_COST_DRAFT_H

#include "plan/cost/memory.h"

/* Whose memory a draft model takes. */
enum tsr_plan_draft_place {
    TSR_PLAN_DRAFT_CPU,    /* that of the host */
    TSR_PLAN_DRAFT_DEVICE, /* that of a device with a backend of its own */
    TSR_PLAN_DRAFT_ANY     /* not known before the step runs */
};

struct tsr_plan_draft_options {
    char                     *model; /* a path or a name; NULL: the planned model, in fewer bits */
    uint32_t                  bits;  /* of that */
    uint32_t                  kv;    /* type of its cache */
    uint64_t                  chunk; /* most tokens of a forward; 0: the engine's choice */
    enum tsr_plan_draft_place place;
};

struct tsr_plan_draft {
    struct tsr_plan_draft_options o;
    struct tsr_plan_shape        *own;        /* NULL: the planned model's */
    struct tsr_plan_candidates    candidates; /* one, of all layers */
};

/* o->model is borrowed.  TSR_E_INPUT where there is no such model, or the planned one is packed and would draft for itself.
 * [setup] */
tsr_status tsr_plan_draft_open(struct tsr_plan_draft *d, struct tsr_registry *r,
                               const struct tsr_plan_draft_options *o,
                               const struct tsr_plan_shape *planned, struct tsr_err *err);
void       tsr_plan_draft_close(struct tsr_plan_draft *d); /* zeroed or filled */

#endif
