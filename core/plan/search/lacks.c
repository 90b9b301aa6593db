/* Kernels that candidates need and device profiles do not have. */
#include "plan/search/problem.h"

#include "base/mem.h"
#include "plan/cost/device.h"
#include "plan/cost/part.h"

#include <stdlib.h>
#include <string.h>

/* One sentence for each profile and kernel, "; " between them. */
struct lacks {
    char           *text;
    struct tsr_err *err;
};

static tsr_status note(struct lacks *z, const struct tsr_plan_profile *p, const char *kernel)
{
    char        one[256];
    const char *closest = tsr_plan_profile_closest(p, kernel);
    int n = snprintf(one, sizeof one, "the profile %.80s has no kernel %s", p->name, kernel);
    if (closest)
        (void)snprintf(one + n, sizeof one - (size_t)n, ", the closest that it has is %s", closest);
    if (strstr(z->text, one))
        return TSR_OK;
    size_t at = strlen(z->text), bytes = at + strlen(one) + 3;
    char  *more = tsr_renew(z->text, bytes, 1);
    if (!more)
        return tsr_fail_nomem(z->err, bytes, "a list of kernels");
    z->text = more;
    (void)snprintf(more + at, bytes - at, "%s%s", at ? "; " : "", one);
    return TSR_OK;
}

/* Of the layers of one class under one candidate. */
static tsr_status in_class(struct lacks *z, const struct tsr_plan_problem *p,
                           const struct tsr_plan_profile   *profile,
                           const struct tsr_plan_candidate *c, uint64_t cls)
{
    for (uint32_t k = 0; k < TSR_PLAN_PLACES; k++) {
        struct tsr_plan_part part;
        char                 kernel[TSR_PLAN_KERNEL_TEXT];
        if (!tsr_plan_part_at(c, p->shape, cls, k, &part))
            continue;
        TSR_TRY(tsr_plan_part_kernel(&part, p->shape, cls, kernel, z->err));
        tsr_plan_profile_scheme_kernel(profile, part.c->scheme, kernel);
        if (!tsr_plan_profile_runs(profile, kernel))
            TSR_TRY(note(z, profile, kernel));
    }
    return TSR_OK;
}

tsr_status tsr_plan_problem_lacks(const struct tsr_plan_problem *p, char **text,
                                  struct tsr_err *err)
{
    struct lacks z = { .text = tsr_strdup(""), .err = err };
    tsr_status   st = z.text ? TSR_OK : tsr_fail_nomem(err, 1, "a list of kernels");
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        for (uint64_t i = 0; i < p->candidates.n; i++)
            for (uint64_t cls = 0; cls < p->shape->classes && st == TSR_OK; cls++)
                st = in_class(&z, p, p->cluster->groups[g].profile, &p->candidates.v[i], cls);
    if (st == TSR_OK)
        *text = z.text;
    else
        free(z.text);
    return st;
}
