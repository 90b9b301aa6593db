/* Reading trees: the comparison and the options. */
#include "claims.h"

#include <math.h>
#include <string.h>

struct tsr_step_value claims_member(const struct tsr_step_job *j, const struct tsr_step_value *of,
                                    const char *key)
{
    struct tsr_step_value v = { .struct_size = sizeof v };
    j->member(j->ctx, of, key, &v);
    return v;
}

struct tsr_step_value claims_item(const struct tsr_step_job *j, const struct tsr_step_value *of,
                                  uint64_t i)
{
    struct tsr_step_value v = { .struct_size = sizeof v };
    j->item(j->ctx, of, i, &v);
    return v;
}

uint64_t claims_count(const struct tsr_step_value *v, uint32_t type)
{
    return v->type == type ? v->n : 0;
}

double claims_number(const struct tsr_step_job *j, const struct tsr_step_value *of, const char *key)
{
    struct tsr_step_value v = claims_member(j, of, key);
    return v.type == TSR_STEP_NUMBER ? v.number : (double)NAN;
}

const char *claims_string(const struct tsr_step_job *j, const struct tsr_step_value *of,
                          const char *key)
{
    struct tsr_step_value v = claims_member(j, of, key);
    return v.type == TSR_STEP_TEXT ? v.text : "";
}

bool claims_has(const struct tsr_step_job *j, const struct tsr_step_value *of, const char *key)
{
    return claims_member(j, of, key).type != TSR_STEP_ABSENT;
}

bool claims_arm(const struct claims_job *c, const char *name, struct tsr_step_value *arm)
{
    struct tsr_step_value arms = claims_member(c->job, &c->compare, "arms");
    for (uint64_t i = 0; i < claims_count(&arms, TSR_STEP_LIST); i++) {
        *arm = claims_item(c->job, &arms, i);
        if (strcmp(claims_string(c->job, arm, "name"), name) == 0)
            return true;
    }
    return false;
}

static const char *name_of(const struct tsr_step_job *j, const struct tsr_step_value *pair,
                           uint64_t i)
{
    return claims_item(j, pair, i).text; /* NULL: no scalar, or null */
}

bool claims_pair(const struct tsr_step_job *j, const struct tsr_step_value *item,
                 const char **better, const char **worse)
{
    if (claims_count(item, TSR_STEP_LIST) != 2)
        return false;
    *better = name_of(j, item, 0);
    *worse = name_of(j, item, 1);
    return *better && *worse;
}
