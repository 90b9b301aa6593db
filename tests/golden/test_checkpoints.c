/* Checkpoints that other programs quantized (checkpoints/README.md): they load, their weights are
 * those of their writer's own dequantizer, they run packed where a layout of ours holds them, and
 * their logits are as recorded. */
#include "golden.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/import/import.h"
#include "checkpoint/packed/packed_model.h"

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CHECKPOINTS TSR_SOURCE_ROOT "/tests/golden/checkpoints/"

/* F32 in another order of additions: the recorded logits repeat to 7e-6 in F64, and ours differ
 * from the recorded ones by up to 2e-5. */
#define TOLERANCE 2e-4

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s: %s", name, #call, e.text);                                           \
    } while (0)

/* What a linear became: what stands in the table is tsr_model_format_name(), or "" for stored as is. */
struct expectation {
    const char *folder, *q, *o; /* formats of layer 0's q_proj and o_proj */
    uint64_t    group;          /* of q_proj */
    uint32_t    scales;         /* dtype, int only */
    bool        stored_zero;
    const char *logits; /* in expected.safetensors */
    double      rows;   /* how far dequantized rows may be off, as a part of the value; 0: equal */
};
static const struct expectation table[] = {
    { "gptq2-g64", "tessera.int/1 with 2 bits", NULL, 64, TSR_F16, false, "logits", 0 },
    { "gptq3-g128", "tessera.int/1 with 3 bits", NULL, 0, TSR_F16, false, "logits", 0 },
    { "gptq4-g128", "tessera.int/1 with 4 bits", NULL, 0, TSR_F16, false, "logits", 0 },
    /* the inputs of q_proj are one group, whose order does not matter; those of o_proj are two */
    { "gptq4-g128-actorder", "tessera.int/1 with 4 bits", NULL, 0, TSR_F16, false, "logits", 0 },
    { "gptq4-v1-asym-g32", "tessera.int/1 with 4 bits", NULL, 32, TSR_F16, true, "logits", 0 },
    { "gptq4-v1-asym-zero0", "tessera.int/1 with 4 bits", NULL, 32, TSR_F16, true, "logits", 0 },
    { "gptq4-v2-asym-g64", "tessera.int/1 with 4 bits", NULL, 64, TSR_F16, true, "logits", 0 },
    { "gptq8-g32", "tessera.int/1 with 8 bits", NULL, 32, TSR_F16, false, "logits", 0 },
    { "awq4-g128-gptqmodel", "tessera.int/1 with 4 bits", NULL, 0, TSR_F16, true, "logits", 0 },
    { "awq4-g64-autoawq", "tessera.int/1 with 4 bits", NULL, 64, TSR_F16, true, "logits", 0 },
    /* the package multiplies by 1/127 after the row's maximum, we divide that before: two roundings
     * against two, each half an ulp */
    { "bnb-int8", "tessera.int/1 with 8 bits", NULL, 0, TSR_F32, false, "logits_definition",
      4 * 0x1p-24 },
    /* a row of 64 is a block; one of 96 is one and a half, so that groups of 32 share a scale */
    { "bnb-nf4", "tessera.table/1 with 4 bits", NULL, 0, TSR_F32, false, "logits", 0 },
    { "bnb-fp4-nested", "tessera.table/1 with 4 bits", NULL, 0, TSR_F32, false, "logits", 0 },
    { "ct-fp8-channel", "tessera.fp8/1 with fp8_e4m3", NULL, 0, TSR_BF16, false, "logits", 0 },
    /* four groups: patterns go before classes */
    { "ct-mixed", "tessera.int/1 with 4 bits", "tessera.fp8/1 with fp8_e4m3", 32, TSR_F32, true,
      "logits", 0 },
    /* 32/bits codes to a word: 3, 5, 6 and 7 bits, the last with zero points */
    { "ct-gapped", "tessera.int/1 with 3 bits", "tessera.int/1 with 5 bits", 32, TSR_F16, false,
      "logits", 0 },
    { "ct-mxfp4", "tessera.mx/1 with fp4_e2m1", NULL, 32, 0, false, "logits", 0 },
    /* the package rounds the weights to BF16 */
    { "ct-nvfp4", "tessera.table/1 with 4 bits", NULL, 16, 0, false, "logits_definition", 0x1p-8 },
    { "ct-w3a16-g32", "tessera.int/1 with 3 bits", NULL, 32, TSR_F16, false, "logits", 0 },
    { "ct-w4a16-g128-sym", "tessera.int/1 with 4 bits", NULL, 0, TSR_F32, false, "logits", 0 },
    { "ct-w4a16-g64-actorder", "tessera.int/1 with 4 bits", NULL, 64, TSR_F16, false, "logits", 0 },
    { "ct-w4a16-g64-asym", "tessera.int/1 with 4 bits", NULL, 64, TSR_F16, true, "logits", 0 },
    { "ct-w8a8-int-channel", "tessera.int/1 with 8 bits", NULL, 0, TSR_F32, false, "logits", 0 },
    { "hf-bf16-sharded", "", NULL, 0, 0, false, "logits", 0 },
    { "hf-f16", "", NULL, 0, 0, false, "logits", 0 },
};

struct recorded {
    struct tsr_safetensors st;
    uint32_t              *prompt;
    uint64_t               n;
};

static float *floats(const struct recorded *c, const char *name, const char *tensor, uint64_t n)
{
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(&c->st, tensor);
    float                               *v = malloc(n * sizeof *v);
    assert_non_null(v);
    if (!t || t->end - t->begin != n * sizeof *v)
        fail_msg("%s: no %s of %d floats is recorded", name, tensor, (int)n);
    OK(tsr_safetensors_read(&c->st, t, v, &e.err));
    return v;
}

static void read_recorded(struct recorded *c, const char *name)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              path[512];
    json_t           *root = NULL;
    (void)snprintf(path, sizeof path, CHECKPOINTS "%s/expected.safetensors", name);
    OK(tsr_safetensors_open(&c->st, path, &e.err));
    (void)snprintf(path, sizeof path, CHECKPOINTS "%s/case.json", name);
    OK(tsr_json_load(&root, path, 1 << 20, 16, &e.err));
    const json_t *ids = json_object_get(root, "prompt");
    c->n = json_array_size(ids);
    c->prompt = calloc(c->n + 1, sizeof *c->prompt);
    assert_non_null(c->prompt);
    for (uint64_t i = 0; i < c->n; i++)
        c->prompt[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    json_decref(root);
}

static void recorded_free(struct recorded *c)
{
    tsr_safetensors_close(&c->st);
    free(c->prompt);
}

static void compare_logits(const char *name, const float *got, const float *want, uint64_t n,
                           uint64_t vocab)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t best = 0, second = 1, ours = 0;
        for (uint64_t k = 0; k < vocab; k++) {
            double off = fabs((double)got[i * vocab + k] - (double)want[i * vocab + k]);
            if (!(off <= TOLERANCE))
                fail_msg("%s: position %d, id %d is %.9g, recorded %.9g", name, (int)i, (int)k,
                         (double)got[i * vocab + k], (double)want[i * vocab + k]);
            ours = got[i * vocab + k] > got[i * vocab + ours] ? k : ours;
            best = want[i * vocab + k] > want[i * vocab + best] ? k : best;
        }
        second = best == 0;
        for (uint64_t k = 0; k < vocab; k++)
            if (k != best && want[i * vocab + k] > want[i * vocab + second])
                second = k;
        if (want[i * vocab + best] - want[i * vocab + second] > 2 * TOLERANCE)
            assert_int_equal(ours, best);
    }
}

/* The first 8 rows of one matrix as its writer dequantizes it. */
static void compare_rows(const struct tsr_model_packed *p, const struct recorded *c,
                         const struct expectation *x)
{
    const char       *name = x->folder;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          n = 8 * p->cols;
    float            *got = malloc(n * sizeof *got);
    float *want = floats(c, name, "dequant_rows_0_to_7.model.layers.0.self_attn.k_proj.weight", n);
    assert_non_null(got);
    OK(tsr_model_packed_dequantize(p, 0, 8, got, &e.err));
    for (uint64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        if (!(off <= x->rows * fabs((double)want[i])))
            fail_msg("%s: k_proj row %d column %d is %.9g, its writer says %.9g", name,
                     (int)(i / p->cols), (int)(i % p->cols), (double)got[i], (double)want[i]);
    }
    free(got);
    free(want);
}

static void check_format(const char *name, const struct tsr_model_packed *p, const char *want)
{
    char format[64] = "";
    if (strcmp(want, "?") == 0)
        return;
    if (p)
        tsr_model_format_name(&p->format, format, sizeof format);
    assert_true((p != NULL) == (*want != '\0'));
    if (strcmp(format, want) != 0)
        fail_msg("%s: stored as %s, not %s", name, format, want);
}

static void check_formats(const struct tsr_model *m, const struct expectation *x)
{
    const struct tsr_model_packed *q = m->packed ? m->packed->lin[0][TSR_MODEL_Q] : NULL;
    check_format(x->folder, q, x->q);
    check_format(x->folder, m->packed ? m->packed->lin[0][TSR_MODEL_O] : NULL, x->o ? x->o : x->q);
    assert_true((m->packed_as != NULL) == (q != NULL));
    if (!q)
        return;
    assert_int_equal(q->format.group, x->group);
    assert_int_equal(q->format.zero, x->stored_zero ? TSR_ZERO_STORED : TSR_ZERO_MID);
    if (strcmp(q->format.id, TSR_FORMAT_INT) == 0)
        assert_int_equal(q->format.scale_dtype, x->scales);
}

/* Headers alone say the same formats and sizes. */
static void check_headers(const char *name, const struct tsr_model *m, const char *path)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *h = NULL;
    OK(tsr_model_load(&h, path, true, &e.err));
    assert_int_equal(h->parameters, m->parameters);
    assert_int_equal(h->bytes, m->bytes);
    for (uint64_t l = 0; m->packed && l < m->hp.layers; l++)
        for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
            const struct tsr_model_packed *a = m->packed->lin[l][i], *b = h->packed->lin[l][i];
            assert_null(b->codes);
            assert_string_equal(a->format.id, b->format.id);
            assert_int_equal(a->format.bits, b->format.bits);
            assert_int_equal(a->format.group, b->format.group);
            assert_int_equal(a->format.zero, b->format.zero);
            assert_int_equal(a->code_stride, b->code_stride);
            assert_int_equal(a->meta_stride, b->meta_stride);
        }
    tsr_model_destroy(h);
}

static void check(struct tsr_registry *r, const struct expectation *x)
{
    const char       *name = x->folder;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    struct recorded   c = { 0 };
    char              path[512];
    (void)snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    read_recorded(&c, name);
    OK(tsr_model_load(&m, path, false, &e.err));
    check_formats(m, x);
    if (m->packed)
        compare_rows(m->packed->lin[0][TSR_MODEL_K], &c, x);
    check_headers(name, m, path);
    struct tsr_engine_options opt = { .on.backend = "cpu" };
    struct tsr_engine        *engine = golden_engine(r, m, NULL, opt);
    float                    *want = floats(&c, name, x->logits, c.n * m->hp.vocab);
    float                    *got = golden_forward(engine, c.prompt, c.n, false);
    compare_logits(name, got, want, c.n, m->hp.vocab);
    free(got);
    free(want);
    tsr_engine_destroy(engine);
    tsr_model_destroy(m);
    recorded_free(&c);
}

static void checkpoints_as_recorded(void **state)
{
    struct tsr_pool     *pool = NULL;
    struct tsr_registry *r = golden_registry(2, NULL, &pool);
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(r, &table[i]);
    golden_registry_close(r, pool);
}

/* gpt-oss: tensors without a model, experts one below the other. */
static void gpt_oss_tensors(void **state)
{
    static const struct {
        const char *tensor;
        uint64_t    rows, cols;
    } all[] = { { "model.layers.0.mlp.experts.down_proj", 48, 96 },
                { "model.layers.0.mlp.experts.gate_up_proj", 192, 64 },
                { "model.layers.1.mlp.experts.down_proj", 16, 64 } };
    const char                  *name = "mxfp4-gptoss-tensors";
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_checkpoint_shards shards;
    struct tsr_import            im;
    struct recorded              c = { 0 };
    json_t                      *config = json_pack("{s:s}", "quant_method", "mxfp4");
    (void)state;
    read_recorded(&c, name);
    OK(tsr_checkpoint_shards_open_file(&shards, CHECKPOINTS "mxfp4-gptoss-tensors",
                                       "model.safetensors", &e.err));
    OK(tsr_import_open(&im, config, name, &shards, &e.err));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        uint64_t                 n = all[i].rows * all[i].cols;
        struct tsr_model_packed *p = NULL;
        float                   *got = malloc(n * sizeof *got);
        float                   *want = floats(&c, name, all[i].tensor, n);
        assert_non_null(got);
        OK(tsr_import_linear(&im, all[i].tensor, all[i].rows, all[i].cols, &p));
        assert_non_null(p);
        check_format(name, p, "tessera.mx/1 with fp4_e2m1");
        OK(tsr_model_packed_dequantize(p, 0, p->rows, got, &e.err));
        for (uint64_t k = 0; k < n; k++)
            assert_true(got[k] == want[k]);
        tsr_model_packed_destroy(p);
        free(got);
        free(want);
    }
    tsr_import_close(&im);
    tsr_checkpoint_shards_close(&shards);
    json_decref(config);
    recorded_free(&c);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st;
    (void)flag;
    (void)w;
    return remove(path);
}

static void same_matrix(const char *name, const struct tsr_matrix *x, const struct tsr_matrix *y)
{
    assert_true((x->data != NULL) == (y->data != NULL));
    assert_int_equal(x->dtype, y->dtype);
    assert_int_equal(x->row_stride, y->row_stride);
    if (x->data && memcmp(x->data, y->data, x->rows * x->row_stride) != 0)
        fail_msg("%s: %s has other bytes", name, x->name);
}

static void same_layer(const char *name, const struct tsr_model *a, const struct tsr_model *b,
                       uint64_t l)
{
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        const struct tsr_model_packed *x = a->packed ? a->packed->lin[l][i] : NULL;
        const struct tsr_model_packed *y = b->packed ? b->packed->lin[l][i] : NULL;
        assert_true((x != NULL) == (y != NULL));
        if (!x) {
            same_matrix(name, &a->layers[l].lin[i].w, &b->layers[l].lin[i].w);
            continue;
        }
        assert_string_equal(x->format.id, y->format.id);
        assert_int_equal(x->code_stride, y->code_stride);
        assert_int_equal(x->meta_stride, y->meta_stride);
        if (memcmp(x->codes, y->codes, x->rows * x->code_stride) != 0 ||
            (x->meta && memcmp(x->meta, y->meta, x->rows * x->meta_stride) != 0) ||
            x->ordered != y->ordered ||
            (x->ordered && memcmp(x->order, y->order, x->cols * sizeof *x->order) != 0))
            fail_msg("%s: %s has other bytes", name, a->layers[l].lin[i].w.name);
    }
}

static void same_packed(const char *name, const struct tsr_model *a, const struct tsr_model *b)
{
    for (uint64_t l = 0; l < a->hp.layers; l++)
        same_layer(name, a, b, l);
}

/* Name and shape of a tensor of ct-mxfp4 as gpt-oss would have it. */
static uint32_t gpt_oss_shape(const struct tsr_safetensors_tensor *t, char *to, size_t cap,
                              uint64_t shape[TSR_ST_MAX_RANK])
{
    static const char *const suffixes[][2] = { { ".weight_packed", "_blocks" },
                                               { ".weight_scale", "_scales" } };
    memcpy(shape, t->shape, sizeof t->shape);
    (void)snprintf(to, cap, "%s", t->name);
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(t->name, suffixes[i][0]);
        if (!at)
            continue;
        (void)snprintf(to, cap, "%.*s%s", (int)(at - t->name), t->name, suffixes[i][1]);
        if (i == 0) {
            shape[1] = t->shape[1] / 16;
            shape[2] = 16;
            return 3;
        }
    }
    return t->rank;
}

/* ct-mxfp4 under the names and shapes of gpt-oss is the same model. */
static void gpt_oss_model(void **state)
{
    const char        *name = "ct-mxfp4";
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    char               folder[] = "/tmp/tessera-gptoss-XXXXXX", path[512], to[TSR_ST_MAX_NAME + 1];
    uint64_t           shape[TSR_ST_MAX_RANK];
    struct tsr_st_out *o = NULL;
    struct tsr_checkpoint_shards s;
    struct tsr_model            *a = NULL, *b = NULL;
    json_t                      *config = NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    OK(tsr_checkpoint_shards_open(&s, CHECKPOINTS "ct-mxfp4", &e.err));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    OK(tsr_safetensors_create(&o, path, &e.err));
    for (uint64_t i = 0; i < s.n; i++) {
        uint32_t rank = gpt_oss_shape(s.tensors[i].t, to, sizeof to, shape);
        OK(tsr_safetensors_declare(o, to, s.tensors[i].t->dtype, rank, shape, &e.err));
    }
    OK(tsr_safetensors_begin(o, &e.err));
    for (uint64_t i = 0; i < s.n; i++) {
        const struct tsr_safetensors_tensor *t = s.tensors[i].t;
        void                                *raw = malloc(t->end - t->begin);
        assert_non_null(raw);
        OK(tsr_safetensors_read(&s.files[s.tensors[i].file], t, raw, &e.err));
        tsr_safetensors_put(o, raw, t->end - t->begin);
        free(raw);
    }
    OK(tsr_safetensors_commit(o, &e.err));
    tsr_checkpoint_shards_close(&s);
    OK(tsr_json_load(&config, CHECKPOINTS "ct-mxfp4/config.json", 1 << 20, 16, &e.err));
    assert_int_equal(json_object_set_new(config, "quantization_config",
                                         json_pack("{s:s}", "quant_method", "mxfp4")),
                     0);
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    OK(tsr_model_load(&a, CHECKPOINTS "ct-mxfp4", false, &e.err));
    OK(tsr_model_load(&b, folder, false, &e.err));
    same_packed(name, a, b);
    tsr_model_destroy(a);
    tsr_model_destroy(b);
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* act-order: the linears whose order of columns matters have one, and no two columns trade places
 * unless their groups differ. */
static void orders_of_columns(void **state)
{
    static const char *const names[] = { "gptq4-g128-actorder", "ct-w4a16-g64-actorder" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char       *name = names[i];
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_model *m = NULL;
        unsigned          ordered = 0;
        char              path[512];
        (void)snprintf(path, sizeof path, CHECKPOINTS "%s", name);
        OK(tsr_model_load(&m, path, false, &e.err));
        for (uint64_t l = 0; l < m->hp.layers; l++)
            for (int k = 0; k < TSR_MODEL_LINEARS; k++) {
                const struct tsr_model_packed *p = m->packed->lin[l][k];
                if (!p->ordered)
                    continue;
                ordered++;
                for (uint64_t j = 1; j < p->cols; j++)
                    if (j % p->format.group != 0)
                        assert_true(p->order[j - 1] < p->order[j]);
            }
        assert_true(ordered >= 2);
        tsr_model_destroy(m);
    }
}

/* What was read can be stored as a packed model of ours, which is the same model. */
static void stored_as_packed(void **state)
{
    static const char *const names[] = { "gptq4-v1-asym-zero0",
                                         "bnb-int8",
                                         "bnb-nf4",
                                         "ct-fp8-channel",
                                         "ct-mxfp4",
                                         "ct-nvfp4",
                                         "gguf-iq4_nl/model.gguf",
                                         "gguf-q3_k_m/model.gguf",
                                         "gptq4-g128-actorder",
                                         "ct-w4a16-g64-actorder",
                                         "gguf-q4_k_m/model.gguf",
                                         "gguf-q2_k/model.gguf",
                                         "gguf-q5_1/model.gguf" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char       *name = names[i];
        struct tsr_errbuf e = TSR_ERRBUF(e);
        char              folder[] = "/tmp/tessera-stored-XXXXXX", path[512];
        struct tsr_model *a = NULL, *b = NULL;
        assert_non_null(mkdtemp(folder));
        (void)snprintf(path, sizeof path, CHECKPOINTS "%s", name);
        OK(tsr_model_load(&a, path, false, &e.err));
        for (uint64_t l = 0; l < a->hp.layers; l++)
            OK(tsr_packed_layer_write(folder, a, l, a->packed, "test", &e.err));
        if (a->packed->head)
            OK(tsr_packed_layer_write(folder, a, a->hp.layers, a->packed, "test", &e.err));
        OK(tsr_packed_model_finish(folder, a, a->packed, &e.err));
        OK(tsr_model_load(&b, folder, false, &e.err));
        assert_string_equal(b->packed_as, TSR_PACKED_FORMAT);
        if (!a->hp.tied) /* a packed folder counts a tied head that is packed */
            assert_int_equal(a->parameters, b->parameters);
        same_packed(name, a, b);
        tsr_model_destroy(a);
        tsr_model_destroy(b);
        (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

/* Layer by layer a model is the same: its hash, and what a layer holds while it is open. */
static void check_streamed(const char *name)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              path[512];
    struct tsr_model *a = NULL, *b = NULL;
    (void)snprintf(path, sizeof path, "%s%s", CHECKPOINTS, name);
    OK(tsr_model_load(&a, path, false, &e.err));
    OK(tsr_model_load_streamed(&b, path, &e.err));
    assert_string_equal(a->hash, b->hash);
    assert_int_equal(a->parameters, b->parameters);
    assert_int_equal(a->bytes, b->bytes);
    assert_true((a->packed != NULL) == (b->packed != NULL));
    for (unsigned twice = 0; twice < 2; twice++) /* what is closed can be opened again */
        for (uint64_t l = 0; l < a->hp.layers; l++) {
            OK(tsr_model_open_layer(b, l, &e.err));
            OK(tsr_model_open_layer(b, l, &e.err));
            tsr_model_close_layer(b, l);
            same_layer(name, a, b, l);
            tsr_model_close_layer(b, l);
            for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
                assert_null(b->layers[l].lin[i].w.data);
                const struct tsr_model_packed *p = b->packed ? b->packed->lin[l][i] : NULL;
                assert_true(!p || (!p->codes && !p->order));
            }
        }
    tsr_model_destroy(a);
    tsr_model_destroy(b);
}

static void streamed_is_the_same(void **state)
{
    static const char *const files[] = { "gguf-q4_0/model.gguf",   "gguf-q3_k_m/model.gguf",
                                         "gguf-q4_k_m/model.gguf", "gguf-mxfp4/model.gguf",
                                         "gguf-q5_1/model.gguf",   "gguf-q2_k/model.gguf" };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check_streamed(table[i].folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_streamed(files[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_as_recorded), cmocka_unit_test(gpt_oss_tensors),
        cmocka_unit_test(gpt_oss_model),           cmocka_unit_test(stored_as_packed),
        cmocka_unit_test(orders_of_columns),       cmocka_unit_test(streamed_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
