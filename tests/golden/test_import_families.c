/* Every family with quantized linears: fused ones are cut as dense ones are, names and prefixes are
 * found, biases of zeros that the family does not have are left.  Each golden model is written twice:
 * as a compressed-tensors int8 checkpoint, and with what that means as dense weights. */
#include "golden.h"

#include "base/f16.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors/shards.h"

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODELS TSR_SOURCE_ROOT "/tests/golden/models/"

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s: %s", name, #call, e.text);                                           \
    } while (0)

static const char config[] = "{\"quant_method\":\"compressed-tensors\",\"quantization_status\":"
                             "\"compressed\",\"config_groups\":{\"a\":{\"targets\":[\"Linear\"],"
                             "\"weights\":{\"num_bits\":8,\"strategy\":\"channel\"}}}}";

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st;
    (void)flag;
    (void)w;
    return remove(path);
}

static int  heads; /* that were compared */
static bool tied;  /* the family at hand stores no head of its own */

static bool is_linear(const struct tsr_safetensors_tensor *t)
{
    size_t n = strlen(t->name), k = strlen("lm_head.weight");
    if (n >= k && strcmp(t->name + n - k, "lm_head.weight") == 0)
        return !tied;
    return t->rank == 2 && (strstr(t->name, "layers.") || strstr(t->name, "h.")) &&
           !strstr(t->name, "embed") && !strstr(t->name, "_norm.") && !strstr(t->name, "vision") &&
           !strstr(t->name, "projector");
}

/* "x.weight" -> "x.SUFFIX" */
static const char *beside(const char *weight, const char *suffix)
{
    static char buf[TSR_ST_MAX_NAME + 64];
    (void)snprintf(buf, sizeof buf, "%.*s%s", (int)(strlen(weight) - strlen("weight")), weight,
                   suffix);
    return buf;
}

struct both {
    struct tsr_st_out *quantized, *dense;
};

/* Codes and scales of a row: any will do, as long as every row has others. */
static void put_linear(struct both *b, const struct tsr_safetensors_tensor *t, const float *w,
                       bool bias)
{
    uint64_t n = t->shape[0] * t->shape[1];
    int8_t  *q = malloc(n);
    float   *scale = malloc(t->shape[0] * sizeof *scale), *back = malloc(n * sizeof *back);
    assert_non_null(q);
    assert_non_null(scale);
    assert_non_null(back);
    for (uint64_t r = 0; r < t->shape[0]; r++) {
        float most = 0x1p-20f;
        for (uint64_t k = 0; k < t->shape[1]; k++)
            most = fmaxf(most, fabsf(w[r * t->shape[1] + k]));
        scale[r] = most / 127;
        for (uint64_t k = 0; k < t->shape[1]; k++) {
            uint64_t i = r * t->shape[1] + k;
            q[i] = (int8_t)lrintf(w[i] / scale[r]);
            back[i] = (float)q[i] * scale[r];
        }
    }
    tsr_safetensors_put(b->quantized, q, n);
    tsr_safetensors_put(b->quantized, scale, t->shape[0] * sizeof *scale);
    if (bias) {
        memset(scale, 0, t->shape[0] * sizeof *scale);
        tsr_safetensors_put(b->quantized, scale, t->shape[0] * sizeof *scale);
    }
    tsr_safetensors_put(b->dense, back, n * sizeof *back);
    free(q);
    free(scale);
    free(back);
}

static void declare(const char *name, struct both *b, const struct tsr_safetensors_tensor *t,
                    bool bias)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const uint64_t    one_each[2] = { t->shape[0], 1 };
    uint32_t          dtype = is_linear(t) ? TSR_F32 : t->dtype;
    OK(tsr_safetensors_declare(b->dense, t->name, dtype, t->rank, t->shape, &e.err));
    OK(tsr_safetensors_declare(b->quantized, t->name, is_linear(t) ? TSR_I8 : t->dtype, t->rank,
                               t->shape, &e.err));
    if (is_linear(t))
        OK(tsr_safetensors_declare(b->quantized, beside(t->name, "weight_scale"), TSR_F32, 2,
                                   one_each, &e.err));
    if (bias)
        OK(tsr_safetensors_declare(b->quantized, beside(t->name, "bias"), TSR_F32, 1, t->shape,
                                   &e.err));
}

static void put_raw(struct both *b, const struct tsr_safetensors_tensor *t, const void *raw,
                    uint64_t bytes, bool bias)
{
    uint64_t n = bytes / tsr_dtype_size(t->dtype);
    float   *w = malloc(n * sizeof *w);
    assert_non_null(w);
    tsr_widen(w, raw, t->dtype, n);
    if (is_linear(t)) {
        put_linear(b, t, w, bias);
    } else {
        tsr_safetensors_put(b->quantized, raw, bytes);
        tsr_safetensors_put(b->dense, raw, bytes);
    }
    free(w);
}

static void *raw_of(const char *name, const struct tsr_checkpoint_shards *s,
                    const struct tsr_checkpoint_stored *x)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *raw = malloc(x->t->end - x->t->begin);
    assert_non_null(raw);
    OK(tsr_safetensors_read(&s->files[x->file], x->t, raw, &e.err));
    return raw;
}

static void put(const char *name, struct both *b, const struct tsr_checkpoint_shards *s,
                const struct tsr_checkpoint_stored *x, bool bias)
{
    void *raw = raw_of(name, s, x);
    put_raw(b, x->t, raw, x->t->end - x->t->begin, bias);
    free(raw);
}

/* Experts of one tensor, each in a tensor of its own: gate above up of each, or down. raw NULL: declares them. */
static void one_by_one(const char *name, struct both *b, const struct tsr_safetensors_tensor *t,
                       const char *raw)
{
    static const char *const kinds[2][2] = { { "down_proj", NULL }, { "gate_proj", "up_proj" } };
    static const char        mark[] = ".experts.";
    uint64_t                 n = strstr(t->name, "gate_up_proj") ? 2 : 1;
    uint64_t                 bytes = (t->end - t->begin) / t->shape[0] / n;
    int                      at = (int)(strstr(t->name, mark) - t->name) + (int)sizeof mark - 1;
    for (uint64_t i = 0; i < t->shape[0] * n; i++) {
        struct tsr_safetensors_tensor one = *t;
        char                          text[256];
        (void)snprintf(text, sizeof text, "%.*s%llu.%s.weight", at, t->name,
                       (unsigned long long)(i / n), kinds[n - 1][i % n]);
        one.name = text;
        one.rank = 2;
        one.shape[0] = t->shape[1] / n;
        one.shape[1] = t->shape[2];
        if (raw)
            put_raw(b, &one, raw + i * bytes, bytes, false);
        else
            declare(name, b, &one, false);
    }
}

static bool is_stack(const struct tsr_safetensors_tensor *t)
{
    return t->rank == 3 && strstr(t->name, ".experts.");
}

/* The first linear that has no bias gets one of zeros, as early writers gave to all. */
static bool gets_bias(const struct tsr_checkpoint_shards *s, uint64_t i)
{
    for (uint64_t k = 0; k <= i; k++)
        if (is_linear(s->tensors[k].t) &&
            !tsr_checkpoint_shards_find(s, beside(s->tensors[k].t->name, "bias")))
            return k == i;
    return false;
}

static void write_config(const char *name, const char *folder, bool quantized)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              path[512];
    json_t           *j = NULL, *q = json_loads(config, 0, NULL);
    (void)snprintf(path, sizeof path, MODELS "%s/config.json", name);
    OK(tsr_json_load(&j, path, 1 << 20, 16, &e.err));
    assert_non_null(q);
    if (quantized)
        assert_int_equal(json_object_set(j, "quantization_config", q), 0);
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(j, path, 0), 0);
    json_decref(j);
    json_decref(q);
}

static void write_both(const char *name, const char *quantized, const char *dense)
{
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_checkpoint_shards s;
    struct both                  b = { 0 };
    char                         path[512];
    (void)snprintf(path, sizeof path, MODELS "%s", name);
    OK(tsr_checkpoint_shards_open(&s, path, &e.err));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", quantized);
    OK(tsr_safetensors_create(&b.quantized, path, &e.err));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dense);
    OK(tsr_safetensors_create(&b.dense, path, &e.err));
    for (uint64_t i = 0; i < s.n; i++)
        if (is_stack(s.tensors[i].t))
            one_by_one(name, &b, s.tensors[i].t, NULL);
        else
            declare(name, &b, s.tensors[i].t, gets_bias(&s, i));
    OK(tsr_safetensors_begin(b.quantized, &e.err));
    OK(tsr_safetensors_begin(b.dense, &e.err));
    for (uint64_t i = 0; i < s.n; i++)
        if (is_stack(s.tensors[i].t)) {
            char *raw = raw_of(name, &s, &s.tensors[i]);
            one_by_one(name, &b, s.tensors[i].t, raw);
            free(raw);
        } else {
            put(name, &b, &s, &s.tensors[i], gets_bias(&s, i));
        }
    OK(tsr_safetensors_commit(b.quantized, &e.err));
    OK(tsr_safetensors_commit(b.dense, &e.err));
    tsr_checkpoint_shards_close(&s);
    write_config(name, quantized, true);
    write_config(name, dense, false);
}

static void compare_linear(const char *name, const struct tsr_model_packed *p,
                           const struct tsr_model_linear *a, const struct tsr_model_linear *b)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(a->w.rows, b->w.rows);
    assert_int_equal(a->w.cols, b->w.cols);
    assert_true((a->bias != NULL) == (b->bias != NULL));
    if ((p != NULL) != (b->w.rows != 0))
        fail_msg("%s: %s is %s", name, b->w.name, p ? "packed where there is none" : "not packed");
    if (!p)
        return;
    size_t bytes = p->rows * p->cols * sizeof(float);
    float *got = malloc(bytes);
    assert_non_null(got);
    OK(tsr_model_packed_dequantize(p, 0, p->rows, got, &e.err));
    if (memcmp(got, b->w.data, bytes) != 0)
        fail_msg("%s: %s is not what was stored", name, a->w.name);
    if (a->bias && memcmp(a->bias, b->bias, p->rows * sizeof(float)) != 0)
        fail_msg("%s: %s has another bias", name, a->w.name);
    free(got);
}

static void check_family(const char *name)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              quantized[] = "/tmp/tessera-import-XXXXXX";
    char              dense[] = "/tmp/tessera-import-XXXXXX";
    struct tsr_model *a = NULL, *b = NULL;
    char              path[512];
    (void)snprintf(path, sizeof path, MODELS "%s", name);
    OK(tsr_model_load(&a, path, true, &e.err));
    tied = a->hp.tied;
    tsr_model_destroy(a);
    assert_non_null(mkdtemp(quantized));
    assert_non_null(mkdtemp(dense));
    write_both(name, quantized, dense);
    OK(tsr_model_load(&a, quantized, false, &e.err));
    OK(tsr_model_load(&b, dense, false, &e.err));
    assert_non_null(a->packed);
    assert_int_equal(a->parameters, b->parameters);
    for (uint64_t l = 0; l < a->hp.layers; l++)
        for (uint64_t i = 0; i < a->hp.linears; i++)
            compare_linear(name, a->packed->lin[l][i], &a->layers[l].lin[i], &b->layers[l].lin[i]);
    if (!tied)
        compare_linear(name, a->packed->head, &a->head, &b->head);
    heads += !tied;
    tsr_model_destroy(a);
    tsr_model_destroy(b);
    (void)nftw(quantized, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)nftw(dense, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void families(void **state)
{
    (void)state;
    /* no form for experts in one tensor; where the family names single ones, too, they are stored so */
    for (size_t i = 0; golden_names[i]; i++)
        if (strncmp(golden_names[i], "gpt_oss", 7) != 0 &&
            strcmp(golden_names[i], "granitemoe") != 0)
            check_family(golden_names[i]);
    assert_true(heads > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(families) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
