/* What single experts add to what their layer suffers, from a file of indicators. */
#include "plan/cost/quality_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The table of that name, if it says of experts. */
static tsr_status look(struct tsr_quality_table *t, const char *name, struct tsr_err *err)
{
    json_t *list = json_object_get(t->root, "tables");
    for (size_t i = 0; i < json_array_size(list) && !t->experts; i++) {
        json_t *one = json_array_get(list, i), *experts;
        json_t *is = json_object_get(one, "name");
        if (!json_is_string(is) || strcmp(json_string_value(is), name) != 0)
            continue;
        TSR_TRY(tsr_json_sub(one, t->path, "experts", false, JSON_ARRAY, &experts, err));
        if (!experts)
            continue;
        TSR_TRY(tsr_json_sub(one, t->path, "omega", true, JSON_ARRAY, &t->experts_omega, err));
        t->experts = experts;
        t->experts_name = json_string_value(is);
    }
    return TSR_OK;
}

static tsr_status number(const struct tsr_quality_table *t, const json_t *row, uint64_t l,
                         uint32_t col, double *v, struct tsr_err *err)
{
    const json_t *n = json_array_get(row, col);
    *v = json_is_number(n) ? json_number_value(n) : NAN;
    if (*v >= 0 && *v <= TSR_QUALITY_MOST)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: a number of \"%s\" for layer %llu and its experts at %u bits is not one "
                    "from 0 to 1e100",
                    t->path, t->experts_name, (unsigned long long)l, t->bits[col]);
}

static bool has_experts(const struct tsr_plan_shape *s, uint64_t l)
{
    return s->experts && s->layer[s->layer_class[l]].router.rows;
}

/* Every layer's experts are there: as many as the model has, with all widths. */
static tsr_status check(const struct tsr_quality_table *t, const struct tsr_plan_shape *s,
                        struct tsr_err *err)
{
    for (uint64_t l = 0; l < s->layers; l++) {
        const json_t *layer = json_array_get(t->experts, l);
        double        v;
        if (!has_experts(s, l))
            continue;
        if (json_array_size(layer) != s->experts)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: \"experts\" of \"%s\" has %zu of the %u experts of layer %llu",
                            t->path, t->experts_name, json_array_size(layer), s->experts,
                            (unsigned long long)l);
        for (uint32_t e = 0; e < s->experts; e++)
            for (uint32_t b = 0; b < t->n; b++)
                TSR_TRY(number(t, json_array_get(layer, e), l, b, &v, err));
        for (uint32_t b = 0; b < t->n; b++)
            TSR_TRY(number(t, json_array_get(t->experts_omega, l), l, b, &v, err));
    }
    return TSR_OK;
}

tsr_status tsr_quality_find_experts(struct tsr_quality_table *t, const struct tsr_plan_shape *s,
                                    struct tsr_err *err)
{
    if (!s->experts)
        return TSR_OK;
    TSR_TRY(look(t, t->name, err));
    TSR_TRY(look(t, "hessian", err));
    TSR_TRY(look(t, "variance", err));
    return t->experts ? check(t, s, err) : TSR_OK;
}

/* At one width of the file: parts of omega, which may be 0. */
static void at_width(const struct tsr_quality_table *t, const struct tsr_plan_shape *s, uint64_t l,
                     uint32_t col, double share, double *parts, bool *known)
{
    const json_t *layer = json_array_get(t->experts, l);
    uint32_t      groups = tsr_plan_shape_groups(s);
    double        all = json_number_value(json_array_get(json_array_get(t->experts_omega, l), col));
    double        rest = all;
    *known = *known && all > 0;
    for (uint32_t e = 0; e < s->experts && *known; e++) {
        double v = json_number_value(json_array_get(json_array_get(layer, e), col));
        parts[s->groups > 1 ? s->group_of[l * s->experts + e] : 0] += share * v / all;
        rest -= v;
    }
    if (*known)
        parts[groups] += share * fmax(rest, 0) / all;
}

void tsr_quality_parts(const struct tsr_quality_table *t, const struct tsr_plan_shape *s,
                       uint64_t l, uint32_t bits, double *parts, bool *known)
{
    uint32_t groups = tsr_plan_shape_groups(s), k = 0;
    memset(parts, 0, (groups + 1) * sizeof *parts);
    *known = t->experts && has_experts(s, l);
    if (!*known)
        return;
    while (k + 1 < t->n && t->bits[k] < bits)
        k++;
    if (t->bits[k] <= bits || k == 0) {
        at_width(t, s, l, k, 1, parts, known);
        return;
    }
    double at = (double)(bits - t->bits[k - 1]) / (double)(t->bits[k] - t->bits[k - 1]);
    at_width(t, s, l, k - 1, 1 - at, parts, known);
    at_width(t, s, l, k, at, parts, known);
}

tsr_status tsr_quality_order(const struct tsr_quality_table *t, struct tsr_plan_shape *s,
                             struct tsr_err *err)
{
    uint64_t all;
    if (!t->experts)
        return TSR_OK;
    double *v = tsr_mul(s->layers, s->experts, &all) ? tsr_new(all, sizeof *v) : NULL;
    if (!v)
        return tsr_fail_nomem(err, s->layers * s->experts * sizeof *v, "indicators of experts");
    for (uint64_t l = 0; l < s->layers; l++)
        for (uint64_t e = 0; e < s->experts && has_experts(s, l); e++)
            v[l * s->experts + e] = json_number_value(
                json_array_get(json_array_get(json_array_get(t->experts, l), e), 0));
    free(s->suffers);
    s->suffers = v;
    return TSR_OK;
}
