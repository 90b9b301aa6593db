/* cli/plan/simulate.h - output of `tessera plan` about a simulated plan. */
#ifndef TSR_CLI_PLAN_SIMULATE_H
#define TSR_CLI_PLAN_SIMULATE_H

#include "plan/simulate/simulate.h"

#include <jansson.h>

/* Two times: with the phase barrier (all prompts, then all tokens), as the objective `steady` has it,
 * and without; and how busy each stage and link is.  The result is {"barrier_ms": ..., ...}; NULL
 * with a status otherwise.  back, links_ms: as tsr_plan_pipeline_of() has them. */
tsr_status tsr_cli_plan_simulate(const struct tsr_solver_instance    *in,
                                 const struct tsr_solver_solution    *s,
                                 const struct tsr_plan_pipeline_back *back, const double *links_ms,
                                 json_t **out, struct tsr_err *err);
/* That object as lines for people. */
void tsr_cli_plan_simulation_print(const json_t *simulation);
/* The plan as a picture. */
tsr_status tsr_cli_plan_gantt(const struct tsr_solver_instance    *in,
                              const struct tsr_solver_solution    *s,
                              const struct tsr_plan_pipeline_back *back, const double *links_ms,
                              const char *const *notes, const char *title, const char *path,
                              struct tsr_err *err);

#endif
