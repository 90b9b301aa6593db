/* The parts of a layer that have one kernel each. */
#include "plan/cost/part.h"

#include <string.h>

/* Whether two stored matrices run with one kernel, with scales over as many columns. */
static bool alike(const struct tsr_plan_shape_matrix *a, const struct tsr_plan_shape_matrix *b)
{
    struct tsr_format f[2];
    char              kernel[2][TSR_PLAN_KERNEL_TEXT];
    for (int i = 0; i < 2; i++) {
        const struct tsr_plan_shape_matrix *m = i ? b : a;
        f[i] = m->packed.id ? m->packed
                            : (struct tsr_format){ .struct_size = sizeof *f,
                                                   .dtype = m->dtype,
                                                   .id = TSR_FORMAT_FLOAT };
        tsr_plan_kernel_name(&f[i], kernel[i]);
    }
    return strcmp(kernel[0], kernel[1]) == 0 && f[0].group == f[1].group;
}

/* A place's linear and group, in the order of a mix's parts; then all linears, for those that mixes give the scheme of
 * another. */
static bool at_place(const struct tsr_plan_shape *s, uint64_t cls, uint32_t place,
                     struct tsr_plan_shape_matrix *m)
{
    uint32_t group = 0;
    int      linear;
    if (place < TSR_PLAN_MIXED) {
        linear = (int)tsr_plan_mixed((int)place);
    } else if (place < TSR_PLAN_PARTS) {
        linear = TSR_MODEL_GATE + (int)((place - TSR_PLAN_MIXED) % TSR_EXPERT_LINEARS);
        group = 1 + (place - TSR_PLAN_MIXED) / TSR_EXPERT_LINEARS;
    } else {
        linear = (int)(place - TSR_PLAN_PARTS);
    }
    *m = tsr_plan_shape_matrix_of(s, &s->layer[cls], linear, group);
    return m->rows && m->count;
}

/* The layout at a place of a packed layer, unless an earlier place has it. */
static bool stored_at(const struct tsr_plan_shape *s, uint64_t cls, uint32_t place,
                      struct tsr_plan_part *part)
{
    struct tsr_plan_shape_matrix other;
    if (!at_place(s, cls, place, &part->like))
        return false;
    for (uint32_t k = 0; k < TSR_PLAN_PLACES; k++) {
        if (!at_place(s, cls, k, &other))
            continue;
        bool same = alike(&other, &part->like);
        if (same && k < place)
            return false;
        part->several = part->several || !same;
    }
    return true;
}

bool tsr_plan_part_at(const struct tsr_plan_candidate *c, const struct tsr_plan_shape *s,
                      uint64_t cls, uint32_t place, struct tsr_plan_part *part)
{
    *part = (struct tsr_plan_part){ .c = c };
    if (!c->mixed && !c->q.self && *s->packed)
        return stored_at(s, cls, place, part);
    part->c = place < TSR_PLAN_PARTS ? tsr_plan_candidate_nth(c, place) : NULL;
    part->mix = c->mixed ? c : NULL;
    return part->c != NULL;
}

bool tsr_plan_part_has(const struct tsr_plan_part *p, const struct tsr_plan_shape *s, uint64_t cls,
                       int linear, uint32_t group)
{
    if (p->mix)
        return tsr_plan_candidate_part(p->mix, linear, group) == p->c;
    if (!p->several)
        return true;
    struct tsr_plan_shape_matrix m = tsr_plan_shape_matrix_of(s, &s->layer[cls], linear, group);
    return m.rows && alike(&m, &p->like);
}

tsr_status tsr_plan_part_matrix(const struct tsr_plan_part *p, const struct tsr_plan_shape *s,
                                uint64_t cls, int linear, struct tsr_format *f, uint64_t *bytes,
                                struct tsr_err *err)
{
    struct tsr_plan_shape_matrix m = s->layer[cls].lin[linear];
    bool                         has = !p->several;
    for (uint32_t g = 0; g < tsr_plan_shape_groups(s) && !has; g++) {
        struct tsr_plan_shape_matrix one = tsr_plan_shape_matrix_of(s, &s->layer[cls], linear, g);
        has = one.count && tsr_plan_part_has(p, s, cls, linear, g);
        m = has ? one : m;
    }
    if (!has) {
        m.packed = p->like.packed;
        m.dtype = p->like.dtype;
    }
    return tsr_plan_candidate_matrix(p->c, &m, f, bytes, err);
}

tsr_status tsr_plan_part_kernel(const struct tsr_plan_part *p, const struct tsr_plan_shape *s,
                                uint64_t cls, char kernel[TSR_PLAN_KERNEL_TEXT],
                                struct tsr_err *err)
{
    struct tsr_format f;
    uint64_t          bytes;
    if (!p->several)
        return tsr_plan_candidate_kernel(p->c, s, cls, kernel, err);
    TSR_TRY(tsr_plan_candidate_matrix(p->c, &p->like, &f, &bytes, err));
    tsr_plan_kernel_name(&f, kernel);
    return TSR_OK;
}
