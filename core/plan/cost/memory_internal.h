/* plan/cost/memory_internal.h - shared by memory.c and memory_*.c. */
#ifndef TSR_PLAN_COST_MEMORY_INTERNAL_H
#define TSR_PLAN_COST_MEMORY_INTERNAL_H

#include "base/mem.h"
#include "plan/cost/memory.h"
#include "tessera/draft/sizes.h"

tsr_status tsr_plan_memory_too_large(struct tsr_err *err);
/* a += b * c; false on overflow. */
static inline bool tsr_plan_memory_add(uint64_t *a, uint64_t b, uint64_t c)
{
    uint64_t n;
    return tsr_mul(b, c, &n) && tsr_add(*a, n, a);
}

/* Who says how a mesh's backend keeps things; *sizes NULL: nobody, so as they are packed. */
tsr_status tsr_plan_memory_sizes(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 const struct tsr_sizes_v1 **sizes, const void **self,
                                 struct tsr_err *err);
/* One matrix, which all of a rank's part, on a device; *scratch: of a LINEAR over `tokens` rows (0:
 * not asked).  What the backend does not read is there as F32. */
tsr_status tsr_plan_memory_matrix(const struct tsr_plan_memory_job *j,
                                  const struct tsr_plan_mesh *m, const struct tsr_plan_candidate *c,
                                  const struct tsr_plan_shape_matrix *of, uint64_t tokens,
                                  uint64_t *bytes, uint64_t *scratch, struct tsr_err *err);
/* Positions of a request in the cache of a layer.  The largest forward is not known yet: it is a chunk of a prompt or a
 * decode step of the whole batch. */
bool tsr_plan_memory_kv_rows(const struct tsr_plan_memory_job *j, uint64_t window, uint64_t *rows);
/* As tsr_plan_memory_workspace(), of the candidates whose bit is set in `used`. */
tsr_status tsr_plan_memory_work(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                const struct tsr_plan_candidates *c, uint64_t used,
                                uint64_t prefill_mb, uint64_t decode_mb, bool first, bool last,
                                uint64_t *bytes, uint64_t *lead, struct tsr_err *err);

/* memory_own.c. tsr_plan_memory_ends() and tsr_plan_memory_stage() without draft models, and without the node's memory; draft:
 * bytes beside the embedding. */
tsr_status tsr_plan_memory_own_ends(const struct tsr_plan_memory_job *j,
                                    const struct tsr_plan_mesh *m, uint64_t *embed, uint64_t *head,
                                    uint64_t *shared, struct tsr_err *err);
tsr_status tsr_plan_memory_own_stage(const struct tsr_plan_memory_job *j,
                                     const struct tsr_plan_mesh       *m,
                                     const struct tsr_plan_candidates *c, const uint32_t *bits,
                                     const uint8_t *cpu_experts, uint64_t first, uint64_t n,
                                     uint64_t prefill_mb, uint64_t decode_mb, uint64_t draft,
                                     struct tsr_plan_stage_memory *out, struct tsr_err *err);

#endif
