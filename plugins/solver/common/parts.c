#include "parts.h"

#include <math.h>

#define HAS(in, member) TSR_HAS(struct tsr_solver_instance, in, member)

uint64_t plan_links(const struct tsr_solver_instance *in)
{
    return HAS(in, n_links) && in->n_links > 1 ? in->n_links : 1;
}

double plan_kind_omega(const struct tsr_solver_instance *in, uint64_t k, uint64_t l)
{
    return HAS(in, kind_omega) && in->kind_omega ? in->kind_omega[k * in->layers + l] : 0;
}

double plan_link_omega(const struct tsr_solver_instance *in, uint64_t v, uint64_t l)
{
    return HAS(in, link_omega) && in->link_omega ? in->link_omega[v * in->layers + l] : 0;
}

bool plan_has_link_omega(const struct tsr_solver_instance *in)
{
    for (uint64_t v = 0; v < plan_links(in); v++)
        for (uint64_t l = 0; l + 1 < in->layers; l++)
            if (plan_link_omega(in, v, l) > 0)
                return true;
    return false;
}

double plan_option_omega(const struct tsr_solver_option *o)
{
    return TSR_HAS(struct tsr_solver_option, o, omega) ? o->omega : 0;
}

uint64_t plan_embed_bytes(const struct tsr_solver_instance *in, const struct tsr_solver_option *o)
{
    bool has = TSR_HAS(struct tsr_solver_option, o, embed_bytes);
    return plan_add(in->embed_bytes, has ? o->embed_bytes : 0);
}

uint64_t plan_head_bytes(const struct tsr_solver_instance *in, const struct tsr_solver_option *o)
{
    bool has = TSR_HAS(struct tsr_solver_option, o, head_bytes);
    return plan_add(in->head_bytes, has ? o->head_bytes : 0);
}

double plan_first_limit(const struct tsr_solver_instance *in)
{
    if (!HAS(in, max_first_ms) || !(in->max_first_ms > 0))
        return INFINITY;
    return in->max_first_ms + 1e-9 * fmax(1, in->max_first_ms);
}

double plan_link_ms(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                    uint64_t v, uint64_t k, uint64_t j, bool dec)
{
    uint64_t e = (v * in->n_kinds + k) * in->n_kinds + j;
    return dec ? o->comm_dec_ms[e] : o->comm_pre_ms[e];
}

bool plan_parts_any(const struct tsr_solver_instance *in)
{
    bool any = plan_links(in) > 1 || plan_has_link_omega(in) || plan_first_limit(in) < INFINITY;
    for (uint64_t k = 0; k < in->n_kinds; k++)
        for (uint64_t l = 0; l < in->layers; l++)
            any = any || plan_kind_omega(in, k, l) > 0;
    for (uint64_t i = 0; i < in->n_options; i++) {
        const struct tsr_solver_option *o = in->options[i];
        any = any || plan_option_omega(o) > 0 || plan_embed_bytes(in, o) != in->embed_bytes ||
              plan_head_bytes(in, o) != in->head_bytes;
    }
    return any;
}
