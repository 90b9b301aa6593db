/* How a packed model has the linears of a layer. */
#include "plan/cost/shape_internal.h"

#include "base/mem.h"
#include "model/packed_table.h"
#include "quant/quant.h"

#include <string.h>

static const char *const ours[] = { TSR_FORMAT_FLOAT, TSR_FORMAT_INT, TSR_FORMAT_AFFINE,
                                    TSR_FORMAT_TABLE, TSR_FORMAT_LUT, TSR_FORMAT_MX,
                                    TSR_FORMAT_FP8 };

/* The id, as long as the shape; NULL: not one of ours, and not kept. */
static const char *id_of(const struct tsr_plan_shape *s, const char *id)
{
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(id, ours[i]) == 0)
            return ours[i];
    for (uint64_t i = 0; i < s->n_ids; i++)
        if (strcmp(id, s->ids[i]) == 0)
            return s->ids[i];
    return NULL;
}

/* Units that a plugin multiplies or decodes; values that one decoded in the past run as F32. */
static bool has_units(const struct tsr_model_packed *p)
{
    return p && p->own.unit > 0;
}

static tsr_status keep_id(struct tsr_plan_shape *s, const struct tsr_model_packed *p,
                          struct tsr_err *err)
{
    if (!has_units(p) || id_of(s, p->format.id))
        return TSR_OK;
    char **more = tsr_renew(s->ids, s->n_ids + 1, sizeof *more);
    if (!more)
        return tsr_fail_nomem(err, (s->n_ids + 1) * sizeof *more, "the formats of a model");
    s->ids = more;
    s->ids[s->n_ids] = tsr_strdup(p->format.id);
    if (!s->ids[s->n_ids])
        return tsr_fail_nomem(err, strlen(p->format.id), "the formats of a model");
    s->n_ids++;
    return TSR_OK;
}

tsr_status tsr_plan_shape_keep_ids(struct tsr_plan_shape *s, const struct tsr_model_overlay *o,
                                   struct tsr_err *err)
{
    if (!o)
        return TSR_OK;
    for (uint64_t l = 0; l < o->layers; l++)
        for (uint64_t i = 0; i < o->linears; i++)
            TSR_TRY(keep_id(s, o->lin[l][i], err));
    TSR_TRY(keep_id(s, o->embed, err));
    return keep_id(s, o->head, err);
}

void tsr_plan_shape_put_packed(const struct tsr_plan_shape *s, struct tsr_plan_shape_matrix *m,
                               const struct tsr_model_packed *p)
{
    if (!p)
        return;
    m->packed = p->format;
    m->ordered = p->ordered;
    m->packed.id = id_of(s, p->format.id);
    if (tsr_model_format_known(&m->packed))
        return;
    m->packed.id = has_units(p) ? m->packed.id : "decoded"; /* F32 values */
    m->packed.group = has_units(p) ? p->own.unit : 1;
    m->packed.outliers = tsr_model_packed_bytes(p);
    m->packed.bits = /* part of its kernel's name */
        (uint32_t)(8.0 * (double)m->packed.outliers / ((double)p->rows * (double)p->cols) + 0.5);
}

void tsr_plan_shape_put_ends(struct tsr_plan_shape *s, const struct tsr_model_overlay *o)
{
    if (o && o->embed)
        tsr_plan_shape_put_packed(s, &s->embed, o->embed);
    if (s->tied)
        s->head = s->embed;
    if (o && o->head && o->head != o->embed) { /* its own copy then */
        s->tied = false;
        tsr_plan_shape_put_packed(s, &s->head, o->head);
    }
}

bool tsr_plan_shape_same_format(const struct tsr_format *a, const struct tsr_format *b)
{
    if (!a->id || !b->id)
        return a->id == b->id;
    return strcmp(a->id, b->id) == 0 && a->dtype == b->dtype && a->bits == b->bits &&
           a->zero == b->zero && a->group == b->group && a->scale_dtype == b->scale_dtype &&
           a->element == b->element && a->scale_bits == b->scale_bits &&
           a->outliers == b->outliers && a->act8 == b->act8 &&
           tsr_model_same_table(a->table, b->table);
}

/* How the three matrices of an expert are, and their bits together. */
struct stored {
    struct tsr_plan_shape_stored lin[TSR_EXPERT_LINEARS];
    uint32_t                     bits;
};

static struct stored stored_of(const struct tsr_plan_shape       *shape,
                               const struct tsr_plan_shape_layer *l,
                               struct tsr_model_packed *const *lin, uint64_t expert)
{
    struct stored s = { 0 };
    for (int i = 0; i < TSR_EXPERT_LINEARS; i++) {
        enum tsr_linear_id           kind = (enum tsr_linear_id)(TSR_MODEL_GATE + i);
        struct tsr_plan_shape_matrix m = { .dtype = l->lin[kind].dtype };
        tsr_plan_shape_put_packed(shape, &m, lin[tsr_model_expert_linear(expert, kind)]);
        bool coded = m.packed.id && tsr_model_format_known(&m.packed) &&
                     strcmp(m.packed.id, TSR_FORMAT_FLOAT) != 0;
        s.lin[i] = (struct tsr_plan_shape_stored){ m.packed, m.ordered };
        s.bits += coded ? m.packed.bits : (uint32_t)(8 * tsr_dtype_size(m.dtype));
    }
    return s;
}

static bool same_stored(const struct stored *a, const struct stored *b)
{
    for (int i = 0; i < TSR_EXPERT_LINEARS; i++)
        if (!tsr_plan_shape_same_format(&a->lin[i].format, &b->lin[i].format) ||
            a->lin[i].ordered != b->lin[i].ordered)
            return false;
    return true;
}

/* Puts a new group to its place, and says which that is. */
static uint32_t insert(struct stored *g, uint32_t n, const struct stored *one)
{
    uint32_t at = n;
    for (; at > 0 && g[at - 1].bits < one->bits; at--)
        g[at] = g[at - 1];
    g[at] = *one;
    return at;
}

uint32_t tsr_plan_shape_group_packed(const struct tsr_plan_shape *s, struct tsr_plan_shape_layer *l,
                                     struct tsr_model_packed *const *lin, uint64_t experts,
                                     uint8_t *of)
{
    struct stored g[TSR_PLAN_GROUPS] = { 0 };
    uint32_t      n = 0;
    for (uint64_t e = 0; e < experts; e++) {
        struct stored one = stored_of(s, l, lin, e);
        uint32_t      at = 0;
        while (at < n && !same_stored(&g[at], &one))
            at++;
        if (at == TSR_PLAN_GROUPS)
            return 0;
        if (at == n) {
            at = insert(g, n++, &one);
            for (uint64_t k = 0; k < e; k++)
                of[k] = (uint8_t)(of[k] + (of[k] >= at));
        }
        of[e] = (uint8_t)at;
    }
    for (int i = 0; i < TSR_EXPERT_LINEARS; i++) {
        l->lin[TSR_MODEL_GATE + i].packed = g[0].lin[i].format;
        l->lin[TSR_MODEL_GATE + i].ordered = g[0].lin[i].ordered;
        for (uint32_t k = 1; k < n; k++)
            l->further[k - 1][i] = g[k].lin[i];
    }
    return n;
}
