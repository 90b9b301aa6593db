#include "even_layout.h"

#include "base/mem.h"

tsr_status even_layout(struct tsr_runtime_layout *l, const struct tsr_model_hparams *hp,
                       uint32_t replicas, uint32_t stages, uint32_t ranks, uint32_t slots,
                       struct tsr_err *err)
{
    *l = (struct tsr_runtime_layout){ .replicas = replicas, .n_stages = stages, .slots = slots };
    if (replicas == 0 || ranks == 0 || stages == 0 || stages > hp->layers || slots < replicas)
        return tsr_fail(err, TSR_E_CONFIG,
                        "%u replicas of %u stages of %u ranks, %u slots, for %llu layers", replicas,
                        stages, ranks, slots, (unsigned long long)hp->layers);
    l->stages = tsr_new(stages, sizeof *l->stages);
    if (!l->stages)
        return tsr_fail_nomem(err, stages * sizeof *l->stages, "stages");
    for (uint32_t i = 0; i < stages; i++) {
        l->stages[i].first = hp->layers * i / stages;
        l->stages[i].end = hp->layers * (i + 1) / stages;
        l->stages[i].ranks = ranks;
    }
    l->prefill_mb = l->decode_mb = (slots + replicas - 1) / replicas;
    return TSR_OK;
}
