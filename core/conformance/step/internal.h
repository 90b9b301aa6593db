/* conformance/step/internal.h - what the functions of the rules' job share. */
#ifndef TSR_CONFORMANCE_STEP_INTERNAL_H
#define TSR_CONFORMANCE_STEP_INTERNAL_H

#include "conformance/step/step.h"

/* The first fault of a kind. */
__attribute__((format(printf, 3, 4))) void tsr_step_rules_note(struct tsr_step_rules_test *x,
                                                               enum tsr_step_rules_wrong   which,
                                                               const char *fmt, ...);
/* The beginning of a call.  need: TSR_STEP_* that the function belongs to, or 0; running: not in check(). */
tsr_status tsr_step_rules_enter(struct tsr_step_rules_test *x, const char *function, uint64_t need,
                                bool running, struct tsr_err *err);
/* Takes the time that a function takes in a long run. */
void tsr_step_rules_burn(void);
/* What the step gave, for comparisons: takes v. */
tsr_status tsr_step_rules_record(struct tsr_step_rules_test *x, const char *what, const char *name,
                                 json_t *v);
/* The functions of the job that read its model (model.c). */
void tsr_step_rules_model_functions(struct tsr_step_job *j);

#endif
