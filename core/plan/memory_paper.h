/* plan/memory_paper.h - `accounting: paper`: LLM-PQ's memory model, from its code. */
#ifndef TSR_PLAN_MEMORY_PAPER_H
#define TSR_PLAN_MEMORY_PAPER_H

#include "plan/memory.h"

/* Whole MiB of a layer with its KV; the weights are what is not KV. */
void tsr_paper_layer(const struct tsr_memory_job *j, uint64_t cls, uint32_t bits, uint64_t *weights,
                     uint64_t *kv);
uint64_t tsr_paper_ends(const struct tsr_memory_job *j);
/* Temporary memory of a stage. */
uint64_t tsr_paper_workspace(const struct tsr_memory_job *j, uint64_t prefill_mb, bool first);
/* Of one device: 0.95 of what the papers' table says, less 1930 MiB. */
uint64_t tsr_paper_capacity(const struct tsr_profile *p);

#endif
