/* The matrices of a file through a plugin and back. */
#include "cli/verbs/roundtrip_run.h"

#include "base/f16.h"
#include "base/mem.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ------------------------------------------------------------------ */

/* A tensor's numbers as F32, fresh. */
static tsr_status read_floats(const struct roundtrip *rt, const struct tsr_safetensors_tensor *t,
                              float **out, struct tsr_err *err)
{
    uint64_t size = tsr_dtype_size(t->dtype), bytes = t->end - t->begin;
    if (t->dtype != TSR_F32 && t->dtype != TSR_F16 && t->dtype != TSR_BF16)
        return tsr_fail(err, TSR_E_INPUT, "tensor '%s' is %s; F32, F16 or BF16 was wanted", t->name,
                        t->dtype_name);
    void  *raw = tsr_new_aligned(1, bytes);
    float *wide = t->dtype == TSR_F32 ? raw : tsr_new_aligned(bytes / size, sizeof *wide);
    if (!raw || !wide) {
        free(raw);
        if (wide != raw)
            free(wide);
        return tsr_fail_nomem(err, bytes / size * sizeof *wide, t->name);
    }
    tsr_status st = tsr_safetensors_read(&rt->in, t, raw, err);
    if (wide != raw) {
        if (st == TSR_OK)
            tsr_widen(wide, raw, t->dtype, bytes / size);
        free(raw);
    }
    if (st != TSR_OK)
        free(wide);
    else
        *out = wide;
    return st;
}

static const struct tsr_safetensors_tensor *beside(const struct roundtrip      *rt,
                                                   const struct roundtrip_item *it,
                                                   const char                  *suffix)
{
    char name[TSR_ST_MAX_NAME + 32];
    (void)snprintf(name, sizeof name, "%s%s", it->name, suffix);
    return tsr_safetensors_find(&rt->in, name);
}

/* A statistic of rows x cols numbers; rows 0: any.  *out stays NULL if the file has none. */
static tsr_status read_beside(const struct roundtrip *rt, const struct roundtrip_item *it,
                              const char *suffix, uint64_t rows, const float **out, uint64_t *got,
                              struct tsr_err *err)
{
    const struct tsr_safetensors_tensor *t = beside(rt, it, suffix);
    float                               *v = NULL;
    if (!t)
        return TSR_OK;
    bool     vector = t->rank == 1;
    uint64_t n = vector ? 1 : t->rank == 2 ? t->shape[0] : 0;
    uint64_t cols = t->rank ? t->shape[t->rank - 1] : 0;
    if (n == 0 || cols != it->cols || (rows && n != rows))
        return tsr_fail(err, TSR_E_INPUT, "tensor '%s' has another shape than %s%llu x %llu",
                        t->name, rows ? "" : "any number of rows, ",
                        (unsigned long long)(rows ? rows : n), (unsigned long long)it->cols);
    TSR_TRY(read_floats(rt, t, &v, err));
    *out = v;
    if (got)
        *got = n;
    return TSR_OK;
}

static void stats_free(struct tsr_quant_stats *s)
{
    const float *const all[] = { s->hessian,  s->absmax,      s->mean,   s->variance,
                                 s->mean_abs, s->sensitivity, s->inputs, s->cross };
    for (uint64_t i = 0; i < sizeof all / sizeof *all; i++)
        free((void *)(uintptr_t)all[i]);
}

static tsr_status read_stats(const struct roundtrip *rt, const struct roundtrip_item *it,
                             struct tsr_quant_stats *s, struct tsr_err *err)
{
    *s = (struct tsr_quant_stats){ .struct_size = sizeof *s, .cols = it->cols };
    TSR_TRY(read_beside(rt, it, ".hessian", it->cols, &s->hessian, NULL, err));
    TSR_TRY(read_beside(rt, it, ".cross", it->cols, &s->cross, NULL, err));
    TSR_TRY(read_beside(rt, it, ".absmax", 1, &s->absmax, NULL, err));
    TSR_TRY(read_beside(rt, it, ".mean", 1, &s->mean, NULL, err));
    TSR_TRY(read_beside(rt, it, ".var", 1, &s->variance, NULL, err));
    TSR_TRY(read_beside(rt, it, ".mean_abs", 1, &s->mean_abs, NULL, err));
    TSR_TRY(read_beside(rt, it, ".sensitivity", it->rows, &s->sensitivity, NULL, err));
    TSR_TRY(read_beside(rt, it, ".inputs", 0, &s->inputs, &s->input_rows, err));
    s->tokens = s->input_rows;
    return TSR_OK;
}

/* ---- through the plugin --------------------------------------------------------- */

/* What needs are not in the file is said with the name to add. */
static tsr_status check_beside(const struct tsr_quantizer *q, const struct tsr_matrix *w,
                               const struct tsr_quant_stats *s, struct tsr_err *err)
{
    struct tsr_quant_plan p;
    tsr_status            st = tsr_quantizer_plan(q, w, &p, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s', tensor '%s'", q->name, w->name);
    const struct {
        uint64_t     bit;
        const float *have;
        const char  *suffix;
    } need[] = { { TSR_NEED_HESSIAN, s->hessian, "hessian" },
                 { TSR_NEED_ABSMAX, s->absmax, "absmax" },
                 { TSR_NEED_MEAN, s->mean, "mean" },
                 { TSR_NEED_VARIANCE, s->variance, "var" },
                 { TSR_NEED_MEAN_ABS, s->mean_abs, "mean_abs" },
                 { TSR_NEED_SENSITIVITY, s->sensitivity, "sensitivity" },
                 { TSR_NEED_INPUTS, s->inputs, "inputs" },
                 { TSR_NEED_CROSS, s->cross, "cross" } };
    for (uint64_t i = 0; i < sizeof need / sizeof *need; i++)
        if (p.need & need[i].bit && !need[i].have)
            return tsr_fail(err, TSR_E_INPUT,
                            "quantizer '%s' needs a tensor '%s.%s' in the input "
                            "file",
                            q->name, w->name, need[i].suffix);
    return TSR_OK;
}

static tsr_status quantize_item(struct roundtrip *rt, struct roundtrip_item *it, float *w,
                                float *out, struct tsr_err *err)
{
    struct tsr_quantizer     q = { .iface = rt->spec.found.iface,
                                   .name = rt->spec.found.component->name,
                                   .found = &rt->spec.found,
                                   .options = rt->spec.options };
    struct tsr_quant_stats   s;
    struct tsr_model_packed *p = NULL;
    struct tsr_matrix        m = { .struct_size = sizeof m,
                                   .dtype = TSR_F32,
                                   .name = it->name,
                                   .data = w,
                                   .rows = it->rows,
                                   .cols = it->cols,
                                   .row_stride = it->cols * sizeof *w };
    TSR_TRY(
        q.iface->create(tsr_plugin_registry_host(rt->registry), rt->spec.options, &q.self, err));
    tsr_status st = read_stats(rt, it, &s, err);
    if (st == TSR_OK)
        st = check_beside(&q, &m, &s, err);
    if (st == TSR_OK)
        st = tsr_quantize_matrix(rt->registry, &q, &m, &s, &p, err);
    if (st == TSR_OK)
        st = tsr_model_packed_dequantize(p, 0, it->rows, out, err);
    if (st == TSR_OK) {
        double weights = (double)it->rows * (double)it->cols;
        it->bits = 8.0 * (double)tsr_model_packed_bytes(p) / weights;
        (void)snprintf(it->format, sizeof it->format, "%s", p->format_id);
    }
    tsr_model_packed_destroy(p);
    stats_free(&s);
    q.iface->destroy(q.self);
    return st;
}

static tsr_status calibrate_codec(struct roundtrip *rt, const struct roundtrip_item *it,
                                  const struct tsr_codec_v1 *f, void *self, struct tsr_err *err)
{
    const float *rows = NULL;
    uint64_t     n = 0;
    TSR_TRY(read_beside(rt, it, ".calibration", 0, &rows, &n, err));
    if (!rows)
        return TSR_OK;
    tsr_status st = TSR_OK;
    if (!f->observe || !f->freeze)
        st = tsr_fail(err, TSR_E_INPUT,
                      "'%s.calibration' is there, but codec '%s' has no "
                      "calibration",
                      it->name, rt->spec.found.component->name);
    for (uint64_t r = 0; r < n && st == TSR_OK; r++) {
        struct tsr_codec_job job = {
            .struct_size = sizeof job, .rows = 1, .cols = it->cols, .src = rows + r * it->cols
        };
        st = f->observe(self, &job, err);
    }
    if (st == TSR_OK)
        st = f->freeze(self, err);
    free((void *)(uintptr_t)rows);
    return st;
}

static tsr_status code_rows(const struct roundtrip_item *it, const struct tsr_codec_v1 *f,
                            void *self, const float *x, float *out, uint64_t *bytes,
                            struct tsr_err *err)
{
    TSR_TRY(f->wire_bytes(self, 1, it->cols, bytes, err));
    void *wire = tsr_new_aligned(1, *bytes);
    if (!wire)
        return tsr_fail_nomem(err, *bytes, "a message");
    tsr_status st = TSR_OK;
    for (uint64_t r = 0; r < it->rows && st == TSR_OK; r++) {
        struct tsr_codec_job job = { .struct_size = sizeof job,
                                     .rows = 1,
                                     .cols = it->cols,
                                     .src = x + r * it->cols,
                                     .wire = wire,
                                     .wire_bytes = *bytes };
        st = f->encode(self, &job, err);
        job.src = NULL;
        job.dst = out + r * it->cols;
        if (st == TSR_OK)
            st = f->decode(self, &job, err);
        if (st != TSR_OK)
            st = tsr_err_prefix(err, st, "row %llu", (unsigned long long)r);
    }
    free(wire);
    return st;
}

static tsr_status code_item(struct roundtrip *rt, struct roundtrip_item *it, const float *x,
                            float *out, struct tsr_err *err)
{
    const struct tsr_codec_v1 *f = rt->spec.found.iface;
    void                      *self = NULL;
    uint64_t                   bytes = 0;
    TSR_TRY(f->create(tsr_plugin_registry_host(rt->registry), rt->spec.options, &self, err));
    tsr_status st = calibrate_codec(rt, it, f, self, err);
    if (st == TSR_OK)
        st = code_rows(it, f, self, x, out, &bytes, err);
    f->destroy(self);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "codec '%s', tensor '%s'", rt->spec.found.component->name,
                              it->name);
    it->bits = 8.0 * (double)bytes / (double)it->cols;
    return TSR_OK;
}

static tsr_status run_item(struct roundtrip *rt, struct roundtrip_item *it, struct tsr_st_out *o,
                           struct tsr_err *err)
{
    uint64_t n;
    float   *w = NULL, *out;
    if (it->rows == 0 || it->cols == 0)
        return tsr_fail(err, TSR_E_INPUT, "tensor '%s' is empty", it->name);
    TSR_TRY(read_floats(rt, it->tensor, &w, err));
    out = tsr_mul(it->rows, it->cols, &n) ? tsr_new_aligned(n, sizeof *out) : NULL;
    tsr_status st = !out        ? tsr_fail_nomem(err, n * sizeof *out, it->name)
                    : rt->codec ? code_item(rt, it, w, out, err)
                                : quantize_item(rt, it, w, out, err);
    double     error = 0.0, norm = 0.0;
    for (uint64_t i = 0; st == TSR_OK && i < n; i++) {
        double d = (double)w[i] - (double)out[i];
        error += d * d;
        norm += (double)w[i] * (double)w[i];
    }
    it->squared_error = error;
    it->relative_error = error == 0.0 ? 0.0 : sqrt(error / norm);
    if (st == TSR_OK)
        tsr_safetensors_put(o, out, n * sizeof *out);
    free(w);
    free(out);
    return st;
}

tsr_status roundtrip_run(struct roundtrip *rt, const char *output, struct tsr_err *err)
{
    struct tsr_st_out *o = NULL;
    TSR_TRY(tsr_safetensors_create(&o, output, err));
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < rt->n && st == TSR_OK; i++) {
        const uint64_t shape[2] = { rt->items[i].rows, rt->items[i].cols };
        st = tsr_safetensors_declare(o, rt->items[i].name, TSR_F32, 2, shape, err);
    }
    if (st == TSR_OK)
        st = tsr_safetensors_begin(o, err);
    for (uint64_t i = 0; i < rt->n && st == TSR_OK; i++) {
        if (tsr_plugin_cancelled())
            st = tsr_fail(err, TSR_E_CANCELLED, "stopped");
        else
            st = run_item(rt, &rt->items[i], o, err);
    }
    if (st != TSR_OK) {
        tsr_safetensors_abort(o);
        return st;
    }
    return tsr_safetensors_commit(o, err);
}
