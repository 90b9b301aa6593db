/* Folders that other programs wrote, read and exported again: every tensor has the same name, type and
 * bytes, and the configuration says the same of the weights. */
#include "base/json.h"
#include "base/mem.h"

#include "checkpoint/export/export.h"
#include "checkpoint/safetensors/safetensors.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct tsr_errbuf err = TSR_ERRBUF(err);

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

static void *bytes_of(struct tsr_safetensors *s, const struct tsr_safetensors_tensor *t)
{
    void *p = tsr_new(1, t->end - t->begin);
    assert_non_null(p);
    OK(tsr_safetensors_read(s, t, p, &err.err));
    return p;
}

/* Every tensor of the golden, and none else but norms that other programs write otherwise. */
static void same_tensors(const char *golden, const char *folder)
{
    struct tsr_safetensors a, b;
    char                   path[600];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", golden);
    OK(tsr_safetensors_open(&a, path, &err.err));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    OK(tsr_safetensors_open(&b, path, &err.err));
    for (uint64_t i = 0; i < a.n; i++) {
        const struct tsr_safetensors_tensor *x = &a.tensors[i],
                                            *y = tsr_safetensors_find(&b, x->name);
        if (!y)
            fail_msg("%s: %s is missing", golden, x->name);
        assert_string_equal(x->dtype_name, y->dtype_name);
        if (x->end - x->begin != y->end - y->begin)
            fail_msg("%s: %s has another size", golden, x->name);
        void *p = bytes_of(&a, x), *q = bytes_of(&b, y);
        if (memcmp(p, q, x->end - x->begin) != 0)
            fail_msg("%s: %s has other bytes", golden, x->name);
        free(p);
        free(q);
    }
    if (a.n != b.n)
        fail_msg("%s: %d tensors, exported %d", golden, (int)a.n, (int)b.n);
    tsr_safetensors_close(&a);
    tsr_safetensors_close(&b);
}

static json_t *quantization(const char *folder)
{
    char    path[600];
    json_t *j, *q;
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    OK(tsr_json_load(&j, path, 1 << 20, 32, &err.err));
    q = json_incref(json_object_get(j, "quantization_config"));
    assert_non_null(q);
    json_decref(j);
    return q;
}

/* What both say has the same value. */
static void same_words(const char *name, const json_t *a, const json_t *b)
{
    const char *key;
    json_t     *v;
    json_object_foreach ((json_t *)(uintptr_t)b, key, v) {
        const json_t *w = json_object_get(a, key);
        if (json_is_object(v) && json_is_object(w))
            same_words(name, w, v);
        else if (w && !json_equal(v, w))
            fail_msg("%s: \"%s\" differs", name, key);
    }
}

static void remove_folder(const char *folder, const char *out)
{
    static const char *const files[] = { "model.safetensors", "config.json" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s/%s", out, files[i]);
        (void)remove(path);
    }
    (void)remove(out);
    (void)remove(folder);
}

static void back(const char *name, enum tsr_export_format format, uint64_t packed)
{
    struct tsr_export_options o = { .format = format };
    struct tsr_export_report  r;
    struct tsr_model         *m;
    char                      folder[64] = "/tmp/tessera-export-XXXXXX", golden[400], out[128];
    (void)snprintf(golden, sizeof golden, "%s/checkpoints/%s", TEST_GOLDEN, name);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(out, sizeof out, "%s/out", folder);
    OK(tsr_model_load_streamed(&m, golden, &err.err));
    OK(tsr_export(m, NULL, out, &o, &r, &err.err));
    assert_int_equal(r.widened + r.quantized + r.requantized + r.rounded, 0);
    assert_int_equal(r.packed, packed);
    tsr_model_destroy(m);
    same_tensors(golden, out);
    json_t *a = quantization(golden), *b = quantization(out);
    same_words(name, a, b);
    json_decref(a);
    json_decref(b);
    remove_folder(folder, out);
}

static void test_compressed_tensors(void **state)
{
    (void)state;
    back("ct-nvfp4", TSR_EXPORT_CT, 14);
    back("ct-mxfp4", TSR_EXPORT_CT, 14);
    back("ct-w4a16-g64-asym", TSR_EXPORT_CT, 14);
    back("ct-fp8-channel", TSR_EXPORT_CT, 14);
}

static void test_fp8(void **state)
{
    (void)state;
    back("fp8-qwen3", TSR_EXPORT_FP8, 14);
    back("fp8-qwen3-ue8m0", TSR_EXPORT_FP8, 14);
    back("fp8-deepseek_v3", TSR_EXPORT_FP8, 28);
}

static struct tsr_model *load(const char *path)
{
    struct tsr_model *m;
    OK(tsr_model_load(&m, path, false, &err.err));
    return m;
}

/* Blocks of FP8 as compressed-tensors, and back: the same codes and scales in memory. */
static void test_fp8_elsewhere(void **state)
{
    static const char *const names[] = { "fp8-qwen3", "fp8-qwen3-ue8m0", "fp8-deepseek_v3" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tsr_export_options o = { .format = TSR_EXPORT_CT };
        struct tsr_export_report  r;
        char                      folder[64] = "/tmp/tessera-export-XXXXXX", golden[400], out[128];
        (void)snprintf(golden, sizeof golden, "%s/checkpoints/%s", TEST_GOLDEN, names[i]);
        assert_non_null(mkdtemp(folder));
        (void)snprintf(out, sizeof out, "%s/out", folder);
        struct tsr_model *a = load(golden);
        OK(tsr_export(a, NULL, out, &o, &r, &err.err));
        struct tsr_model *b = load(out);
        assert_string_equal(b->packed_as, "compressed-tensors");
        for (uint64_t l = 0; l < a->hp.layers; l++)
            for (uint64_t k = 0; k < a->hp.linears; k++) {
                const struct tsr_model_packed *p = a->packed->lin[l][k], *q = b->packed->lin[l][k];
                assert_int_equal(!p, !q);
                if (!p)
                    continue;
                assert_string_equal(p->format.id, q->format.id);
                assert_int_equal(p->format.group, q->format.group);
                assert_memory_equal(p->codes, q->codes, p->rows * p->code_stride);
                assert_memory_equal(p->meta, q->meta, p->rows * p->meta_stride);
            }
        tsr_model_destroy(a);
        tsr_model_destroy(b);
        remove_folder(folder, out);
    }
}

static void test_awq(void **state)
{
    (void)state;
    back("awq4-g64-autoawq", TSR_EXPORT_AWQ, 14);
    back("awq4-g128-gptqmodel", TSR_EXPORT_AWQ, 14);
}

static void refused(const char *name, enum tsr_export_format format, const char *says)
{
    struct tsr_export_options o = { .format = format };
    struct tsr_export_report  r;
    struct tsr_model         *m;
    char                      golden[400];
    (void)snprintf(golden, sizeof golden, "%s/checkpoints/%s", TEST_GOLDEN, name);
    OK(tsr_model_load_streamed(&m, golden, &err.err));
    assert_int_equal(tsr_export(m, NULL, "/tmp/tessera-export-none", &o, &r, &err.err),
                     TSR_E_INPUT);
    if (!strstr(err.text, says))
        fail_msg("%s: %s", name, err.text);
    tsr_model_destroy(m);
}

static void test_refused(void **state)
{
    (void)state;
    refused("ct-nvfp4", TSR_EXPORT_AWQ, "not integers of 4 bits");
    refused("gptq8-g32", TSR_EXPORT_AWQ, "not integers of 4 bits");
    refused("gptq4-g128-actorder", TSR_EXPORT_AWQ, "permuted order");
    refused("hf-f16", TSR_EXPORT_AWQ, "no linear of");
    refused("ct-nvfp4", TSR_EXPORT_FP8, "not E4M3 numbers");
    refused("ct-fp8-channel", TSR_EXPORT_FP8, "row 1 has another scale");
    refused("hf-f16", TSR_EXPORT_FP8, "no linear of");
    refused("bnb-nf4", TSR_EXPORT_CT, "of tables it has NVFP4 alone");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_compressed_tensors),
                                        cmocka_unit_test(test_awq), cmocka_unit_test(test_fp8),
                                        cmocka_unit_test(test_fp8_elsewhere),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
