/* Checkpoints that other programs wrote, read and written again in the same format: the tensors are
 * the same, byte for byte, and so is what the configuration says of them.  Models as GGUF: the tensors are those that
 * llama.cpp's converter writes. */
#include "golden.h"

#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/export/export.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/safetensors/shards.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CHECKPOINTS TSR_SOURCE_ROOT "/tests/golden/checkpoints/"

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s: %s", c->folder, #call, err.text);                                    \
    } while (0)

struct round_trip {
    const char            *folder;
    enum tsr_export_format format;
    const char            *skip;   /* suffix of tensors that differ on purpose */
    uint64_t               packed; /* tensors that keep their codes */
};
static const struct round_trip cases[] = {
    { "hf-f16", TSR_EXPORT_HF, NULL, 0 },
    { "hf-bf16-sharded", TSR_EXPORT_HF, NULL, 0 },
    { "gptq2-g64", TSR_EXPORT_GPTQ, NULL, 14 },
    { "gptq3-g128", TSR_EXPORT_GPTQ, NULL, 14 },
    { "gptq4-g128", TSR_EXPORT_GPTQ, NULL, 14 },
    { "gptq4-g128-actorder", TSR_EXPORT_GPTQ, NULL, 14 },
    { "gptq8-g32", TSR_EXPORT_GPTQ, NULL, 14 },
    { "gptq4-v2-asym-g64", TSR_EXPORT_GPTQ, NULL, 14 },
    { "gptq4-v1-asym-g32", TSR_EXPORT_GPTQ, ".qzeros", 14 }, /* becomes version 2 */
    { "ct-w3a16-g32", TSR_EXPORT_CT, NULL, 14 },
    { "ct-w4a16-g128-sym", TSR_EXPORT_CT, NULL, 14 },
    { "ct-w4a16-g64-asym", TSR_EXPORT_CT, NULL, 14 },
    { "ct-w8a8-int-channel", TSR_EXPORT_CT, NULL, 14 },
    { "ct-mxfp4", TSR_EXPORT_CT, NULL, 14 },
    { "../models/cohere-qknorm", TSR_EXPORT_HF, NULL, 0 },
    { "../models/cohere2", TSR_EXPORT_HF, NULL, 0 },
    { "../models/deepseek_v2-groups", TSR_EXPORT_HF, NULL, 0 },
    { "../families/ernie4_5_moe", TSR_EXPORT_HF, NULL, 0 },
    { "../families/exaone4", TSR_EXPORT_HF, NULL, 0 },
    { "../models/gemma3", TSR_EXPORT_HF, NULL, 0 },
    { "../models/granitemoe", TSR_EXPORT_HF, NULL, 0 },
    { "../models/mixtral", TSR_EXPORT_HF, NULL, 0 },
    { "../models/olmo3", TSR_EXPORT_HF, NULL, 0 },
    { "../models/opt", TSR_EXPORT_HF, NULL, 0 },
    { "../models/phi3-longrope", TSR_EXPORT_HF, NULL, 0 },
    { "../models/phimoe", TSR_EXPORT_HF, NULL, 0 },
    { "../families/minimax_m2", TSR_EXPORT_HF, NULL, 0 },
    { "../models/qwen3_next", TSR_EXPORT_HF, NULL, 0 },
    { "../families/qwen3_vl_moe", TSR_EXPORT_HF, NULL, 0 },
    { "../models/starcoder2", TSR_EXPORT_HF, NULL, 0 },
    { "../models/gpt_oss", TSR_EXPORT_HF, NULL, 0 },
    { "../models/gpt_oss-mxfp4", TSR_EXPORT_MXFP4, NULL, 4 },
};

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st;
    (void)flag;
    (void)w;
    return remove(path);
}

static bool ends(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = suffix ? strlen(suffix) : 0;
    return suffix && n > k && strcmp(name + n - k, suffix) == 0;
}

static void *bytes_of(const struct tsr_checkpoint_shards *s, const struct tsr_checkpoint_stored *e)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    void             *p = tsr_new(e->t->end - e->t->begin, 1);
    assert_non_null(p);
    if (tsr_safetensors_read(&s->files[e->file], e->t, p, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    return p;
}

static void compare(const struct round_trip *c, const char *golden, const char *folder)
{
    struct tsr_errbuf            err = TSR_ERRBUF(err);
    struct tsr_checkpoint_shards a, b;
    OK(tsr_checkpoint_shards_open(&a, golden, &err.err));
    OK(tsr_checkpoint_shards_open(&b, folder, &err.err));
    assert_int_equal(a.n, b.n);
    for (uint64_t i = 0; i < a.n; i++) {
        const struct tsr_checkpoint_stored *x = &a.tensors[i],
                                           *y = tsr_checkpoint_shards_find(&b, x->t->name);
        if (!y || strcmp(x->t->dtype_name, y->t->dtype_name) != 0 || x->t->rank != y->t->rank ||
            memcmp(x->t->shape, y->t->shape, x->t->rank * sizeof *x->t->shape) != 0)
            fail_msg("%s: %s is missing or of another shape", c->folder, x->t->name);
        if (ends(x->t->name, c->skip))
            continue;
        void *p = bytes_of(&a, x), *q = bytes_of(&b, y);
        if (memcmp(p, q, x->t->end - x->t->begin) != 0)
            fail_msg("%s: %s differs", c->folder, x->t->name);
        free(p);
        free(q);
    }
    tsr_checkpoint_shards_close(&a);
    tsr_checkpoint_shards_close(&b);
}

/* Keys of quantization_config that say what the tensors are. */
static void compare_config(const struct round_trip *c, const char *golden, const char *folder)
{
    static const char *const keys[] = { "quant_method", "bits",   "group_size",
                                        "desc_act",     "format", "ignore" };
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    char                     path[400];
    json_t                  *a = NULL, *b = NULL;
    if (c->skip)
        return;
    (void)snprintf(path, sizeof path, "%s/config.json", golden);
    OK(tsr_json_load(&a, path, 1 << 20, 64, &err.err));
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    OK(tsr_json_load(&b, path, 1 << 20, 64, &err.err));
    const json_t *x = json_object_get(a, "quantization_config"),
                 *y = json_object_get(b, "quantization_config");
    assert_int_equal(x != NULL, y != NULL);
    for (size_t i = 0; x && i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(x, keys[i]), *w = json_object_get(y, keys[i]);
        if (v && (!w || !json_equal(v, w)))
            fail_msg("%s: quantization_config: %s differs", c->folder, keys[i]);
    }
    json_decref(a);
    json_decref(b);
}

static void round_trips(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct round_trip  *c = &cases[i];
        struct tsr_errbuf         err = TSR_ERRBUF(err);
        struct tsr_export_options o = { .format = c->format, .shard_bytes = 100000 };
        struct tsr_export_report  r;
        struct tsr_model         *m = NULL;
        char                      golden[300], folder[] = "/tmp/tessera-export-XXXXXX", out[64];
        assert_non_null(mkdtemp(folder));
        (void)snprintf(golden, sizeof golden, CHECKPOINTS "%s", c->folder);
        (void)snprintf(out, sizeof out, "%s/out", folder);
        OK(tsr_model_load_streamed(&m, golden, &err.err));
        OK(tsr_export(m, NULL, out, &o, &r, &err.err));
        assert_int_equal(r.packed, c->packed);
        assert_int_equal(r.widened + r.rounded, 0);
        tsr_model_destroy(m);
        compare(c, golden, out);
        compare_config(c, golden, out);
        assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    }
}

/* ---- GGUF, against the files of llama.cpp's converter -------------------------------------- */

static void compare_tensors(const char *name, struct tsr_gguf *a, struct tsr_gguf *b)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    assert_int_equal(a->n, b->n);
    for (uint64_t i = 0; i < a->n; i++) {
        const struct tsr_gguf_tensor *x = &a->tensors[i], *y = tsr_gguf_find(b, x->name);
        if (!y || x->type != y->type || x->rank != y->rank || x->bytes != y->bytes ||
            memcmp(x->dims, y->dims, x->rank * sizeof *x->dims) != 0)
            fail_msg("%s: %s is missing, or of another type or shape", name, x->name);
        void *p = tsr_new(x->bytes, 1), *q = tsr_new(x->bytes, 1);
        assert_true(p && q);
        assert_int_equal(tsr_file_read(&a->file, x->at, p, x->bytes, &err.err), TSR_OK);
        assert_int_equal(tsr_file_read(&b->file, y->at, q, y->bytes, &err.err), TSR_OK);
        if (memcmp(p, q, x->bytes) != 0)
            fail_msg("%s: %s differs", name, x->name);
        free(p);
        free(q);
    }
}

/* Every tensor of ../models/NAME has the name, type, shape and bytes that the converter gives it. */
static void as_the_converter(void **state)
{
    static const char *const names[] = { "bloom-6heads", "phimoe", "llama3",
                                         "mixtral",      "qwen2",  "deepseek_v3" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct round_trip   one = { .folder = names[i] }, *c = &one;
        struct tsr_errbuf         err = TSR_ERRBUF(err);
        struct tsr_export_options o = { .format = TSR_EXPORT_GGUF };
        struct tsr_export_report  r;
        struct tsr_model         *m = NULL;
        struct tsr_gguf           a, b;
        char                      golden[300], folder[] = "/tmp/tessera-export-XXXXXX", out[64];
        assert_non_null(mkdtemp(folder));
        (void)snprintf(golden, sizeof golden, CHECKPOINTS "../models/%s", names[i]);
        (void)snprintf(out, sizeof out, "%s/out.gguf", folder);
        OK(tsr_model_load_streamed(&m, golden, &err.err));
        OK(tsr_export(m, NULL, out, &o, &r, &err.err));
        tsr_model_destroy(m);
        (void)snprintf(golden, sizeof golden, CHECKPOINTS "../gguf/%s-bf16.gguf", names[i]);
        OK(tsr_gguf_open(&a, golden, &err.err));
        OK(tsr_gguf_open(&b, out, &err.err));
        compare_tensors(names[i], &a, &b);
        tsr_gguf_close(&a);
        tsr_gguf_close(&b);
        assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(round_trips),
                                        cmocka_unit_test(as_the_converter) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
