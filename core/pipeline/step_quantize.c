/* quantize: packs the model's linears by a scheme; later steps run the packed weights. */
#include "pipeline/step.h"

#include "base/f16.h"
#include "quant/scheme.h"

#define WHAT "step 'quantize'"

static tsr_status check(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_scheme *s = NULL;
    TSR_TRY(tsr_scheme_create(&s, job->registry, node, opts, WHAT, d, err));
    tsr_scheme_destroy(s);
    return TSR_OK;
}

static bool put_linear(json_t *list, const struct tsr_matrix *w, const struct tsr_packed *p)
{
    if (!p)
        return true;
    json_t *j = json_object();
    bool ok = tsr_json_put_text(j, "name", w->name) && tsr_json_put_text(j, "plugin", p->plugin) &&
              tsr_json_put_text(j, "format", p->format_id) &&
              tsr_json_put_real(j, "bits_per_weight",
                                8.0 * (double)tsr_packed_bytes(p) /
                                    ((double)p->rows * (double)p->cols)) &&
              tsr_json_put_real(j, "squared_error", p->squared_error);
    return json_array_append_new(list, j) == 0 && ok;
}

static json_t *result(const struct tsr_model *m, const struct tsr_overlay *o)
{
    uint64_t weights, bytes, original;
    tsr_overlay_size(m, NULL, &weights, &original);
    if (o->head)
        original += m->head.w.rows * m->head.w.cols * tsr_dtype_size(m->head.w.dtype);
    tsr_overlay_size(m, o, &weights, &bytes);
    json_t *j = json_object(), *list = json_array();
    bool    ok = tsr_json_put_int(j, "weights", weights) && tsr_json_put_int(j, "bytes", bytes) &&
              tsr_json_put_int(j, "original_bytes", original) &&
              tsr_json_put_real(j, "bits_per_weight", 8.0 * (double)bytes / (double)weights);
    for (uint64_t l = 0; l < o->layers; l++)
        for (int i = 0; i < TSR_LINEARS; i++)
            ok = ok && put_linear(list, &m->layers[l].lin[i].w, o->lin[l][i]);
    ok = ok && put_linear(list, &m->head.w, o->head);
    ok = tsr_json_put(j, "linears", list) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static void print(const json_t *r, FILE *to)
{
    (void)fprintf(to, "quantized %zu linears: %.4g bits per weight, %lld bytes instead of %lld\n",
                  json_array_size(json_object_get(r, "linears")),
                  json_number_value(json_object_get(r, "bits_per_weight")),
                  (long long)json_integer_value(json_object_get(r, "bytes")),
                  (long long)json_integer_value(json_object_get(r, "original_bytes")));
}

static tsr_status run(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err)
{
    struct tsr_diag    *d = NULL;
    struct tsr_scheme  *s = NULL;
    struct tsr_overlay *o = NULL;
    TSR_TRY(tsr_job_need_model(job, err));
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = tsr_scheme_create(&s, job->registry, node, opts, WHAT, d, err);
    if (st == TSR_OK)
        st = tsr_diag_status(d, err);
    tsr_diag_destroy(d);
    if (st == TSR_OK)
        st = tsr_scheme_apply(s, job->registry, job->model, job->calibration, &o, err);
    tsr_scheme_destroy(s);
    if (st != TSR_OK)
        return st;
    tsr_overlay_destroy(job->overlay);
    job->overlay = o;
    json_t *j = result(job->model, o);
    if (j && !job->json)
        print(j, stdout);
    return tsr_step_result(job, "quantize", j, err);
}

static tsr_status need(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                       uint64_t *need, struct tsr_err *err)
{
    struct tsr_diag   *d = NULL;
    struct tsr_scheme *s = NULL;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = tsr_scheme_create(&s, job->registry, node, opts, WHAT, d, err);
    if (st == TSR_OK)
        st = tsr_diag_status(d, err);
    tsr_diag_destroy(d);
    if (st == TSR_OK)
        st = tsr_scheme_needs(s, job->registry, job->model, need, err);
    tsr_scheme_destroy(s);
    return st;
}

const struct tsr_step tsr_step_quantize = {
    .name = "quantize",
    .summary = "packs the model's weights by a plugin and rules",
    .options = tsr_scheme_options,
    .n_options = TSR_SCHEME_OPTIONS,
    .options_size = sizeof(struct tsr_scheme_keys),
    .open = true,
    .check = check,
    .run = run,
    .need = need,
    .print = print,
};
