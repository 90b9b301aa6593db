#include "host.h"

bool plan_host_any(const struct tsr_solver_instance *in)
{
    return TSR_HAS(struct tsr_solver_instance, in, host_bytes);
}

uint64_t plan_host_bytes(const struct tsr_solver_instance *in, uint64_t layer, uint64_t q)
{
    return plan_host_any(in) ? in->host_bytes[in->layer_class[layer] * in->bits + q] : 0;
}

uint64_t plan_host_room(const struct tsr_solver_instance *in, uint64_t k)
{
    return plan_host_any(in) ? in->kinds[k]->host_capacity_bytes : 0;
}

bool plan_host_fits_stage(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                          uint64_t i)
{
    uint64_t bytes = 0;
    for (uint64_t l = s->stage_first[i]; l < s->stage_first[i] + s->stage_count[i]; l++)
        bytes = plan_add(bytes, plan_host_bytes(in, l, s->layer_bits[l]));
    return bytes <= plan_host_room(in, s->stage_kind[i]);
}
