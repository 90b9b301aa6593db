/* Error compensation of a plan file: k of linears, and what they take where a layer's differ, so that no item has them
 * (plan/search/build.h, docs/formats/compensation.md). */
#include "plan/file/check.h"

#include "base/mem.h"
#include "compensate/compensation.h"
#include "quant/quant.h"
#include "quant/scheme.h"

#include <math.h>
#include <stdlib.h>

static const char *text_of(const struct tsr_config_node *map, const char *key)
{
    const struct tsr_config_node *n = tsr_config_node_get(map, key);
    return n && n->kind == TSR_CONFIG_NODE_SCALAR ? n->text : "";
}

/* k of a linear: the last entry that covers its layer and name. */
static tsr_status channels(const struct tsr_plan_file *f, const struct tsr_config_node *list,
                           uint64_t layer, int linear, uint32_t *k, struct tsr_err *err)
{
    char name[TSR_PLAN_LINEAR_TEXT];
    (void)tsr_plan_linear(layer, linear, name);
    *k = 0;
    for (uint64_t i = 0; i < list->n; i++) {
        const struct tsr_config_node *e = list->items[i];
        const char                   *tensors = text_of(e, "tensors");
        bool                          covers = true;
        if (*text_of(e, "layers"))
            TSR_TRY(tsr_plan_file_covers(f, e, layer, &covers, err));
        if (covers && (!*tensors || tsr_quant_name_matches(tensors, name)))
            *k = (uint32_t)strtoul(text_of(e, "k"), NULL, 10);
    }
    return TSR_OK;
}

/* Linears that share an input share the channels that are selected of it. */
static tsr_status differ(const struct tsr_config_node *list, uint64_t layer, int linear, uint32_t k,
                         uint32_t other, struct tsr_err *err)
{
    char name[TSR_PLAN_LINEAR_TEXT], place[300];
    tsr_config_mark_text(&list->mark, place, sizeof place);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: %s is given %u channels, the other linears with the same input %u; they "
                    "share a selection: "
                    "give them one k",
                    place, tsr_plan_linear(layer, linear, name), k, other);
}

static const struct tsr_plan_stage *stage_of(const struct tsr_plan_file *f, uint64_t layer)
{
    uint64_t i = 0;
    while (i + 1 < f->n_stages && layer >= f->stages[i].first + f->stages[i].count)
        i++;
    return &f->stages[i];
}

tsr_status tsr_plan_file_channels(const struct tsr_plan_file *f, const struct tsr_plan_shape *shape,
                                  uint64_t layer, uint32_t k[TSR_PLAN_LINEARS], bool *alike,
                                  struct tsr_err *err)
{
    const struct tsr_plan_stage       *s = stage_of(f, layer);
    const struct tsr_config_node      *list = tsr_config_node_get(s->map, "compensation");
    const struct tsr_plan_shape_layer *of = &shape->layer[shape->layer_class[layer]];
    uint32_t                           of_site[TSR_MODEL_SITES] = { 0 }, first = 0;
    bool                               seen[TSR_MODEL_SITES] = { false }, any = false;
    *alike = true;
    for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
        enum tsr_site site = tsr_compensation_kind(tsr_model_linear_site((enum tsr_linear_id)i));
        k[i] = 0;
        if (!of->lin[i].rows || !list || !s->compensated)
            continue;
        TSR_TRY(channels(f, list, layer, i, &k[i], err));
        if (seen[site] && k[i] != of_site[site])
            return differ(list, layer, i, k[i], of_site[site], err);
        seen[site] = true;
        of_site[site] = k[i];
        first = any ? first : k[i];
        any = true;
        *alike = *alike && k[i] == first;
    }
    for (int i = 0; i < TSR_PLAN_LINEARS && *alike && any; i++) /* also of what the layer lacks */
        k[i] = first;
    return TSR_OK;
}

/* A stage of which some layer's linears have different k. */
static tsr_status mixed_stage(struct tsr_plan_planned *a, const struct tsr_plan_problem *p,
                              const struct tsr_plan_file *f, uint64_t stage, struct tsr_err *err)
{
    struct tsr_plan_outcome_stage *s = &a->outcome.stages[stage];
    uint32_t(*k)[TSR_PLAN_LINEARS] = tsr_new(s->count, sizeof *k);
    bool       some = false, alike;
    tsr_status st = k ? TSR_OK : tsr_fail_nomem(err, s->count * sizeof *k, "channels of a plan");
    for (uint64_t l = 0; l < s->count && st == TSR_OK; l++) {
        st = tsr_plan_file_channels(f, p->shape, s->first + l, k[l], &alike, err);
        some = some || !alike;
    }
    if (st == TSR_OK && some)
        st = tsr_plan_outcome_compensate(&a->outcome, a->built, stage,
                                         a->solution->stage_kind[stage] +
                                             a->built->parts[a->part].first_kind,
                                         (const uint32_t(*)[TSR_PLAN_LINEARS])k, err);
    free(k);
    return st;
}

tsr_status tsr_plan_compensate(struct tsr_plan_planned *a, const struct tsr_plan_problem *p,
                               const struct tsr_plan_file *f, struct tsr_err *err)
{
    struct tsr_plan_outcome *o = &a->outcome;
    struct tsr_plan_workload one = p->work; /* that fills the slots once */
    double                   before;
    one.batch = p->memory.batch;
    tsr_plan_outcome_time(o, &one, one.batch);
    before = o->latency_ms;
    for (uint64_t i = 0; i < o->n_stages; i++) {
        struct tsr_plan_outcome_stage *s = &o->stages[i];
        char                           lack[TSR_BYTES_TEXT];
        TSR_TRY(mixed_stage(a, p, f, i, err));
        if (s->memory.total > s->memory.capacity)
            return tsr_fail(err, TSR_E_INFEASIBLE,
                            "stage %llu does not fit on %s with its compensation: short by %s",
                            (unsigned long long)i, s->mesh.name,
                            tsr_format_bytes(lack, sizeof lack,
                                             s->memory.total - s->memory.capacity));
        if (s->memory.host > s->memory.host_capacity)
            return tsr_fail(err, TSR_E_INFEASIBLE,
                            "stage %llu: experts and residuals do not fit in the memory of "
                            "the CPU next to %s: short by %s",
                            (unsigned long long)i, s->mesh.name,
                            tsr_format_bytes(lack, sizeof lack,
                                             s->memory.host - s->memory.host_capacity));
    }
    tsr_plan_outcome_time(o, &one, one.batch);
    if (p->o.objective == TSR_OBJECTIVE_STEADY)
        o->objective_ms += o->latency_ms - before;
    tsr_plan_outcome_time(o, &p->work, p->memory.batch);
    return TSR_OK;
}
