#include "gptq_case.h"
#include "place.h"

#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "tessera/quantizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "%s/tests/golden/quant"

struct tsr_registry          *gptq_registry;
static struct tsr_pool       *pool;
struct tsr_plugin_found       gptq_found;
static struct tsr_safetensors goldens;
json_t                       *gptq_cases;

void gptq_must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

int gptq_setup(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              tensors[512], cases[512];
    (void)state;
    (void)snprintf(tensors, sizeof tensors, FOLDER "/gptq.safetensors", TEST_ROOT);
    (void)snprintf(cases, sizeof cases, FOLDER "/gptq.json", TEST_ROOT);
    if (tsr_pool_create(&pool, 2, &e.err) != TSR_OK ||
        tsr_plugin_registry_create(&gptq_registry, pool, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(gptq_registry, TEST_PLUGINS, &e.err) != TSR_OK ||
        tsr_plugin_registry_find(gptq_registry, TSR_KIND_QUANTIZER, "gptq", &gptq_found, &e.err) !=
            TSR_OK ||
        tsr_safetensors_open(&goldens, tensors, &e.err) != TSR_OK ||
        tsr_json_load(&gptq_cases, cases, 1 << 20, 16, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    return 0;
}

int gptq_teardown(void **state)
{
    (void)state;
    json_decref(gptq_cases);
    tsr_safetensors_close(&goldens);
    tsr_plugin_registry_destroy(gptq_registry);
    tsr_pool_destroy(pool);
    return 0;
}

float *gptq_tensor(const char *name)
{
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(&goldens, name);
    if (!t)
        fail_msg("no tensor %s", name);
    uint64_t bytes = t->end - t->begin, n = bytes / tsr_dtype_size(t->dtype);
    float   *v = tsr_new(n, sizeof *v);
    void    *raw = tsr_new(1, bytes);
    assert_true(v && raw);
    gptq_must(tsr_safetensors_read(&goldens, t, raw, &e.err), &e);
    tsr_widen(v, raw, t->dtype, n);
    free(raw);
    return v;
}

static double number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_number(v) && !json_is_boolean(v))
        fail_msg("no number '%s'", key);
    return json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
}

struct gptq_options gptq_defaults(void)
{
    return (struct gptq_options){ .bits = 4,
                                  .group = 128,
                                  .act_order = 1,
                                  .damp = 0.01,
                                  .scale = TSR_F16,
                                  .refine = 1,
                                  .block = 128,
                                  .alpha = 0.25 };
}

struct gptq_case gptq_case_open(const json_t *c)
{
    const char      *letter = json_string_value(json_object_get(c, "problem"));
    const json_t    *p = json_object_get(json_object_get(gptq_cases, "problems"), letter);
    struct gptq_case q = { .c = c,
                           .name = json_string_value(json_object_get(c, "name")),
                           .rows = (uint64_t)number(p, "rows"),
                           .cols = (uint64_t)number(p, "cols"),
                           .w = gptq_tensor(json_string_value(json_object_get(p, "W"))),
                           .h = gptq_tensor(json_string_value(json_object_get(p, "H"))),
                           .reference = number(c, "layer_error"),
                           .rtn = number(c, "rtn_layer_error"),
                           .o = gptq_defaults() };
    q.o.bits = (int64_t)number(c, "bits");
    q.o.group = (int64_t)number(c, "groupsize");
    q.o.symmetric = number(c, "sym") != 0;
    q.o.mse = number(c, "mse") != 0;
    q.o.act_order = number(c, "actorder") != 0;
    q.o.static_groups = number(c, "static_groups") != 0;
    q.o.damp = number(c, "percdamp");
    q.o.scale = TSR_F32;
    q.width = q.o.group < 0 ? q.cols : (uint64_t)q.o.group;
    q.groups = (q.cols + q.width - 1) / q.width;
    return q;
}

void gptq_case_close(struct gptq_case *p)
{
    free(p->w);
    free(p->h);
}

struct tsr_matrix gptq_matrix(const float *w, uint64_t rows, uint64_t cols)
{
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = "w",
                                .data = (void *)(uintptr_t)w,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * sizeof *w };
}

void gptq_result_free(struct gptq_result *r)
{
    tsr_model_packed_destroy(r->packed);
    free(r->dense);
}

void gptq_quantize_cross(struct gptq_result *r, const struct gptq_options *o, const float *w,
                         const float *h, const float *cross, uint64_t rows, uint64_t cols)
{
    const struct tsr_quantizer_v1 *f = gptq_found.iface;
    struct tsr_matrix              m = gptq_matrix(w, rows, cols);
    struct tsr_quant_stats         s = {
                .struct_size = sizeof s, .cols = cols, .hessian = h, .cross = cross
    };
    struct tsr_quantizer q = { .iface = f, .name = "gptq" };
    *r = (struct gptq_result){ .err = TSR_ERRBUF(r->err) };
    r->status = f->create(tsr_plugin_registry_host(gptq_registry), o, &q.self, &r->err.err);
    if (r->status != TSR_OK)
        return;
    r->status = tsr_quantize_matrix(gptq_registry, &q, &m, &s, &r->packed, &r->err.err);
    if (r->status == TSR_OK) {
        r->report = r->packed->report;
        r->dense = tsr_new(rows * cols, sizeof *r->dense);
        assert_non_null(r->dense);
        gptq_must(tsr_model_packed_dequantize(r->packed, 0, rows, r->dense, &r->err.err), &r->err);
    }
    f->destroy(q.self);
}

void gptq_quantize(struct gptq_result *r, const struct gptq_options *o, const float *w,
                   const float *h, uint64_t rows, uint64_t cols)
{
    gptq_quantize_cross(r, o, w, h, NULL, rows, cols);
}

double gptq_layer_error(const float *w, const float *q, const float *h, uint64_t rows,
                        uint64_t cols)
{
    double  sum = 0.0;
    double *e = calloc(cols, sizeof *e);
    assert_non_null(e);
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t k = 0; k < cols; k++)
            e[k] = (double)w[r * cols + k] - (double)q[r * cols + k];
        for (uint64_t i = 0; i < cols; i++) {
            double dot = 0.0;
            for (uint64_t k = 0; k < cols; k++)
                dot += (double)h[i * cols + k] * e[k];
            sum += e[i] * dot;
        }
    }
    free(e);
    return sum;
}

struct gptq_case gptq_case_named(const char *name)
{
    size_t        i;
    const json_t *c;
    json_array_foreach (json_object_get(gptq_cases, "cases"), i, c)
        if (strcmp(json_string_value(json_object_get(c, "name")), name) == 0)
            return gptq_case_open(c);
    fail_msg("no case %s", name);
    return (struct gptq_case){ 0 };
}
