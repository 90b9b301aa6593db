/* plan/cost/memory_paper.h - `accounting: paper`: LLM-PQ's memory model, from its code. */
#ifndef TSR_PLAN_COST_MEMORY_PAPER_H
#define TSR_PLAN_COST_MEMORY_PAPER_H

#include "plan/cost/memory_job.h"

/* Whole MiB of a layer with its KV; the rest after KV are the weights. */
void     tsr_plan_paper_layer(const struct tsr_plan_memory_job *j, uint64_t cls, uint32_t bits,
                              uint64_t *weights, uint64_t *kv);
uint64_t tsr_plan_paper_ends(const struct tsr_plan_memory_job *j);
/* Temporary memory of a stage. */
uint64_t tsr_plan_paper_workspace(const struct tsr_plan_memory_job *j, uint64_t prefill_mb,
                                  bool first);
/* Of one device: 0.95 of the papers' table, less 1930 MiB. */
uint64_t tsr_plan_paper_capacity(const struct tsr_plan_profile *p);

#endif
