/* Bytes of a whole stage, with the draft models that are in its memory. */
#include "base/mem.h"
#include "plan/cost/memory_internal.h"

tsr_status tsr_plan_memory_ends(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                uint64_t *embed, uint64_t *head, uint64_t *shared,
                                struct tsr_err *err)
{
    struct tsr_plan_stage_memory draft;
    TSR_TRY(tsr_plan_memory_own_ends(j, m, embed, head, shared, err));
    TSR_TRY(tsr_plan_memory_draft(j, m, &draft, err));
    return tsr_add(*embed, draft.total, embed) ? TSR_OK : tsr_plan_memory_too_large(err);
}

tsr_status tsr_plan_memory_stage(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 const struct tsr_plan_candidates *c, const uint32_t *bits,
                                 const uint8_t *cpu_experts, uint64_t first, uint64_t n,
                                 uint64_t prefill_mb, uint64_t decode_mb,
                                 struct tsr_plan_stage_memory *out, struct tsr_err *err)
{
    struct tsr_plan_stage_memory draft = { 0 };
    uint64_t                     beside = 0, lack;
    if (first == 0)
        TSR_TRY(tsr_plan_memory_draft(j, m, &draft, err));
    else
        TSR_TRY(tsr_plan_memory_draft_beside(j, m, &beside, err));
    TSR_TRY(tsr_plan_memory_own_stage(j, m, c, bits, cpu_experts, first, n, prefill_mb, decode_mb,
                                      draft.total, out, err));
    TSR_TRY(tsr_plan_memory_host_left(j, m, &out->host_capacity, &lack, err));
    out->draft_lack = first == 0 ? lack : 0;
    if (!tsr_add(out->uneven, beside, &out->uneven))
        return tsr_plan_memory_too_large(err);
    out->capacity = tsr_capacity_left(out->capacity, beside);
    return TSR_OK;
}
