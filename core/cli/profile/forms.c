/* tessera profile: layers of one form in a model. */
#include "cli/profile/profile.h"

bool profile_same_form(const struct tsr_plan_shape_layer *a, const struct tsr_plan_shape_layer *b)
{
    return a->recurrent == b->recurrent && !a->router.rows == !b->router.rows;
}

uint64_t profile_first(const struct profile_model *m)
{
    uint64_t l = 0;
    while (m->shape->layer_class[l] != m->cls)
        l++;
    return l;
}
