/* Plans from indicators: for each table the widths with the smallest sum at a mean width, as files
 * that `quantize` and `compare` take (docs/formats/plan.md). */
#include "base/mem.h"
#include "base/output.h"
#include "pipeline/step.h"
#include "pipeline/steps/indicator_result.h"
#include "plan/search/widths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Weights of a layer's linears. */
static uint64_t weights_of(const struct tsr_model *m, uint64_t layer)
{
    const struct tsr_model_layer *l = &m->layers[layer];
    uint64_t                      n = 0;
    for (uint64_t i = 0; i < m->hp.linears; i++)
        n += l->lin[i].w.rows * l->lin[i].w.cols;
    return n;
}

static tsr_status same_size(const struct tsr_model *m, struct tsr_err *err)
{
    for (uint64_t l = 1; l < m->hp.layers; l++)
        if (weights_of(m, l) != weights_of(m, 0))
            return tsr_fail(err, TSR_E_INPUT,
                            "layers 0 and %llu differ in size, and a mean width is taken over "
                            "layers; leave out 'budget'",
                            (unsigned long long)l);
    return TSR_OK;
}

static tsr_status write_plan(struct tsr_pipeline_job *job, const char *file, const char *name,
                             const json_t *widths, double budget, struct tsr_err *err)
{
    char             *path = NULL;
    struct tsr_writer w;
    const json_t     *v;
    size_t            l, layers = json_array_size(widths);
    TSR_TRY(tsr_pipeline_job_output(job, file, &path, err));
    tsr_status st = tsr_writer_open(&w, path, err);
    free(path);
    if (st != TSR_OK)
        return st;
    tsr_writer_printf(&w,
                      "# The smallest sum of the indicator '%s' at %.6g bits on average.\n"
                      "format: tessera.plan/1\nmodel: %s\nlayers: %zu\nstages:\n"
                      "  - layers: 0-%zu\n    schemes:\n",
                      name, budget, job->model->hash, layers, layers - 1);
    json_array_foreach (widths, l, v) {
        if (json_integer_value(v) >= 16)
            tsr_writer_printf(&w, "      - {layers: %zu, keep: true}\n", l);
        else
            tsr_writer_printf(&w, "      - {layers: %zu, bits: %lld}\n", l,
                              (long long)json_integer_value(v));
    }
    return tsr_writer_commit(&w, err);
}

/* [layers] widths of one table. */
static tsr_status choose(const json_t *table, const uint32_t *bits, uint32_t n, uint64_t layers,
                         uint64_t total, json_t *out, double *sum, struct tsr_err *err)
{
    double    *cost = tsr_new(layers * n, sizeof *cost);
    uint32_t  *chosen = tsr_new(layers, sizeof *chosen);
    tsr_status st =
        cost && chosen ? TSR_OK : tsr_fail_nomem(err, layers * n * sizeof *cost, "a plan");
    for (uint64_t i = 0; st == TSR_OK && i < layers * n; i++) {
        const json_t *v =
            json_array_get(json_array_get(json_object_get(table, "omega"), i / n), i % n);
        cost[i] = json_is_number(v) ? json_number_value(v) : (double)NAN;
    }
    if (st == TSR_OK)
        st = tsr_plan_widths_choose(cost, layers, bits, n, total, chosen, sum, err);
    for (uint64_t l = 0; st == TSR_OK && l < layers; l++)
        if (json_array_append_new(out, json_integer((json_int_t)bits[chosen[l]])) != 0)
            st = tsr_fail_nomem(err, layers, "a plan");
    free(cost);
    free(chosen);
    return st;
}

static tsr_status one(struct tsr_pipeline_job *job, const json_t *table, const uint32_t *bits,
                      uint32_t n, double budget, json_t *list, struct tsr_err *err)
{
    const char *name = json_string_value(json_object_get(table, "name"));
    char        file[64];
    double      sum = 0;
    uint64_t    layers = job->model->hp.layers;
    json_t     *j = json_object(), *widths = json_array();
    (void)snprintf(file, sizeof file, "plan-%.40s.yaml", name);
    tsr_status st = j && widths ? TSR_OK : tsr_fail_nomem(err, 64, "a plan");
    if (st == TSR_OK)
        st = choose(table, bits, n, layers, (uint64_t)floor(budget * (double)layers + 1e-9), widths,
                    &sum, err);
    if (st == TSR_OK)
        st = write_plan(job, file, name, widths, budget, err);
    bool ok = tsr_pipeline_json_put_text(j, "name", name) &&
              tsr_pipeline_json_put_text(j, "file", file) &&
              tsr_pipeline_json_put_real(j, "omega", sum);
    ok = tsr_pipeline_json_put(j, "bits", widths) && ok;
    ok = json_array_append_new(list, j) == 0 && ok;
    return st == TSR_OK && !ok ? tsr_fail_nomem(err, 64, "a plan") : st;
}

tsr_status tsr_step_indicator_plans_write(struct tsr_pipeline_job *job, json_t *indicators,
                                          double budget, struct tsr_err *err)
{
    const json_t *table, *v;
    uint32_t      bits[TSR_WIDTHS], n = 0;
    size_t        i;
    json_t       *plans = json_object(), *list = json_array();
    tsr_status    st = same_size(job->model, err);
    json_array_foreach (json_object_get(indicators, "bits"), i, v)
        if (n < TSR_WIDTHS)
            bits[n++] = (uint32_t)json_integer_value(v);
    json_array_foreach (json_object_get(indicators, "tables"), i, table)
        if (st == TSR_OK)
            st = one(job, table, bits, n, budget, list, err);
    bool ok = tsr_pipeline_json_put_real(plans, "budget", budget);
    ok = tsr_pipeline_json_put(plans, "of", list) && ok;
    ok = tsr_pipeline_json_put(indicators, "plans", plans) && ok;
    return st == TSR_OK && !ok ? tsr_fail_nomem(err, 64, "the plans") : st;
}
