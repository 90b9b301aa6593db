/* What compensated channels add to a plan: bytes of residuals, and the time to read those of the
 * channels that a token selects (docs/formats/compensation.md). */
#include "plan/file/check.h"

#include "base/mem.h"
#include "compensate/compensation.h"
#include "compensate/select.h"
#include "plan/cost/fit.h"
#include "quant/quant.h"
#include "quant/scheme.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_BITS 4u /* of residuals: the default of the step `compensate` */

static const char *text_of(const struct tsr_config_node *map, const char *key)
{
    const struct tsr_config_node *n = tsr_config_node_get(map, key);
    return n && n->kind == TSR_CONFIG_NODE_SCALAR ? n->text : "";
}

/* k of a linear: the last entry that covers its layer and name. */
static tsr_status channels(const struct tsr_plan_file *f, const struct tsr_config_node *list,
                           uint64_t layer, int linear, uint64_t *k, struct tsr_err *err)
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
            *k = strtoull(text_of(e, "k"), NULL, 10);
    }
    return TSR_OK;
}

/* a += b * c */
static tsr_status count(uint64_t *a, uint64_t b, uint64_t c, struct tsr_err *err)
{
    uint64_t n;
    return tsr_mul(b, c, &n) && tsr_add(*a, n, a)
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "residuals take more bytes than can be counted");
}

/* Matrices of a linear that have residuals: of a packed model the packed ones alone. */
static uint64_t residuals(const struct tsr_plan_shape *s, const struct tsr_plan_shape_layer *l,
                          int linear)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < tsr_plan_shape_groups(s); g++) {
        const struct tsr_plan_shape_matrix m = tsr_plan_shape_matrix_of(s, l, linear, g);
        n += m.rows && (!*s->packed || m.packed.id) ? m.count : 0;
    }
    return n;
}

/* What the engine's ranks and their devices work in, as compensate_load.c makes it where what is generated is
 * compensated: a list of channels for each request, which tokens of a forward are meant; of several ranks each whole
 * inputs and sums; and a copy of the scales in the order of the device's kernels. */
static tsr_status working(const struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                          const struct tsr_plan_mesh *m, uint64_t listed, uint64_t widest,
                          uint64_t scales, uint64_t *bytes, struct tsr_err *err)
{
    uint64_t n = p->memory.batch, each = 1 + listed, tokens;
    uint64_t chunk = p->memory.chunk ? p->memory.chunk : p->memory.prompt;
    *bytes = 0;
    if (!tsr_mul((uint64_t)f->prefill_mb, chunk, &tokens) ||
        !tsr_mul(tokens, UINT64_C(1) + p->shape->experts_used,
                 &tokens)) /* and the rows of experts */
        tokens = UINT64_MAX;
    if (m->tp > 1 && !(tsr_add(each, widest, &each) && tsr_add(each, p->shape->hidden, &each)))
        each = UINT64_MAX;
    TSR_TRY(count(bytes, n, each, err));
    TSR_TRY(count(bytes, tokens > n ? tokens : n, 1, err));
    uint64_t one = *bytes;
    *bytes = scales;
    for (int i = 0; i < 4; i++) /* bytes of a number */
        TSR_TRY(count(bytes, one, m->tp, err));
    return TSR_OK;
}

/* Linears that share an input share the channels that are selected of it. */
static tsr_status differ(const struct tsr_config_node *list, uint64_t layer, int linear, uint64_t k,
                         uint64_t other, struct tsr_err *err)
{
    char name[TSR_PLAN_LINEAR_TEXT], place[300];
    tsr_config_mark_text(&list->mark, place, sizeof place);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: %s is given %llu channels, the other linears with the same input %llu; "
                    "they share a selection: give them one k",
                    place, tsr_plan_linear(layer, linear, name), (unsigned long long)k,
                    (unsigned long long)other);
}

/* Memory and time of a stage's compensation on that mesh, with residuals of `bits` (0: those that
 * `compensate` keeps by default). On a CPU device, residuals are in its memory and are read at its
 * bandwidth. On other devices they are in host memory and are read at the rate of the profile, or in
 * unknown time. Those of experts that the CPU of the node runs are in its memory, and are read at its bandwidth. Assumes
 * that nothing else runs during the reads. */
static tsr_status stage_compensation(const struct tsr_plan_problem *p,
                                     const struct tsr_plan_file *f, uint64_t stage,
                                     const struct tsr_plan_mesh *m, uint32_t bits,
                                     struct tsr_plan_stage_compensation *out, struct tsr_err *err)
{
    const struct tsr_plan_stage   *s = &f->stages[stage];
    const struct tsr_config_node  *list = tsr_config_node_get(s->map, "compensation");
    const struct tsr_plan_profile *d = m->profile;
    uint64_t read[2] = { 0 }; /* bytes for a token: by the device, by the CPU */
    uint64_t listed = 0, widest = 0, scales = 0;
    *out =
        (struct tsr_plan_stage_compensation){ .host = !d->backend || strcmp(d->backend, "cpu") != 0,
                                              .bits = bits ? bits : USUAL_BITS,
                                              .assumed = !bits };
    for (uint64_t l = s->first; list && s->compensated && l < s->first + s->count; l++) {
        uint64_t                           of_site[TSR_MODEL_SITES] = { 0 };
        bool                               seen[TSR_MODEL_SITES] = { false };
        const struct tsr_plan_shape_layer *of = &p->shape->layer[p->shape->layer_class[l]];
        for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
            const struct tsr_plan_shape_matrix *w = &of->lin[i];
            bool          cpu = f->cpu_experts[l] && tsr_plan_shape_is_expert(of, i);
            uint64_t      bytes = 0, n = residuals(p->shape, of, i);
            enum tsr_site site =
                tsr_compensation_kind(tsr_model_linear_site((enum tsr_linear_id)i));
            uint64_t k, row = tsr_compensate_residual_stride(out->bits, w->rows);
            if (!w->rows)
                continue;
            TSR_TRY(channels(f, list, l, i, &k, err));
            if (seen[site] && k != of_site[site])
                return differ(list, l, i, k, of_site[site], err);
            seen[site] = true;
            of_site[site] = k;
            if (!tsr_compensate_select_count((uint32_t)k, w->cols) || !n)
                continue;
            uint64_t selected = tsr_compensate_select_count((uint32_t)k, w->cols);
            out->k = k > out->k ? k : out->k;
            listed = selected > listed ? selected : listed;
            widest = w->cols > widest ? w->cols : widest;
            TSR_TRY(count(&scales, cpu ? 0 : n * w->rows, 2, err));
            TSR_TRY(count(&bytes, n * w->cols, row, err));
            TSR_TRY(count(&bytes, n * w->rows, out->bits == 16 ? 0 : 2, err));
            TSR_TRY(count(&out->bytes, bytes, 1, err));
            TSR_TRY(count(&out->on_cpu, cpu ? bytes : 0, 1, err));
            TSR_TRY(count(&read[cpu],
                          selected * (uint64_t)(tsr_plan_shape_used(p->shape, w) * (double)n /
                                                (double)w->count),
                          row, err));
        }
    }
    if (out->bytes)
        TSR_TRY(working(p, f, m, listed, widest, scales, &out->work, err));
    /* a profile may lack the rate at which the device reads host memory */
    double rate = out->host ? d->host_bandwidth : d->bandwidth;
    double rows = 1e3 * (double)f->decode_mb;
    out->decode_ms = read[0] == 0 ? 0
                     : rate > 0   ? rows * (double)read[0] / (rate * (double)m->tp)
                                  : (double)NAN;
    if (read[1]) /* one after the other: the CPU begins with what the device has made */
        out->decode_ms += rows * (double)read[1] / (m->cpu->bandwidth * m->cpu_share);
    return TSR_OK;
}

tsr_status tsr_plan_compensate(struct tsr_plan_planned *a, const struct tsr_plan_problem *p,
                               const struct tsr_plan_file *f, struct tsr_err *err)
{
    struct tsr_plan_outcome *o = &a->outcome;
    struct tsr_plan_workload one = p->work; /* that fills the slots once */
    double                   before;
    uint32_t                 bits = 0;
    one.batch = p->memory.batch;
    tsr_plan_outcome_time(o, &one, one.batch);
    before = o->latency_ms;
    if (*p->shape->packed)
        TSR_TRY(tsr_compensation_bits(p->o.model, &bits, err));
    for (uint64_t i = 0; i < o->n_stages; i++) {
        struct tsr_plan_outcome_stage *s = &o->stages[i];
        char                           lack[TSR_BYTES_TEXT];
        TSR_TRY(stage_compensation(p, f, i, &s->mesh, bits, &s->compensation, err));
        if (s->compensation.decode_ms > 0)
            s->dec_ms += s->compensation.decode_ms;
        if (!s->compensation.bytes)
            continue;
        uint64_t here = s->compensation.host ? 0 : s->compensation.bytes - s->compensation.on_cpu;
        s->memory.host += s->compensation.on_cpu;
        s->memory.weights += here;
        s->memory.workspace += s->compensation.work;
        s->memory.total += here + s->compensation.work;
        if (s->memory.total > s->memory.capacity)
            return tsr_fail(err, TSR_E_INFEASIBLE,
                            "stage %llu does not fit on %s with its compensation: short by %s",
                            (unsigned long long)i, s->mesh.name,
                            tsr_format_bytes(lack, sizeof lack,
                                             s->memory.total - s->memory.capacity));
        if (s->memory.host > s->memory.host_capacity)
            return tsr_fail(err, TSR_E_INFEASIBLE,
                            "stage %llu: experts and their residuals do not fit in the memory of "
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
