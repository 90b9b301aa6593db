/* Every quantizer on every recorded model: with a tiny calibration the model is packed into a folder, which loads and gives
 * finite logits near those of the original.  What a quantizer refuses is listed, with its sentence.  Half of the pairs, by
 * TSR_TEST_SEED, unless TSR_TEST_ALL=1. */
#include "golden.h"

#include "config/config.h"
#include "gradient/gradient.h"
#include "quant/quantize.h"
#include "tokenizer/tokenizer.h"

#include <ftw.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT TSR_SOURCE_ROOT "/configs/demo/calibration.txt"

/* bound: of the root of the mean squared difference of logits, in parts of their range: about twice the largest one that
 * was measured.  Weights of these models are random, so that 4 bits cost more than in a trained one; gptq sees fewer
 * tokens than it has columns to fit. */
static const struct {
    const char *use, *scheme;
    double      bound;
} quantizers[] = {
    { "rtn", "use: rtn\nbits: 4\ngroup: 8\n", 0.1 },
    { "gptq", "use: gptq\nbits: 4\ngroup: 8\n", 0.17 },
    { "awq", "use: awq\nbits: 4\ngroup: 8\n", 0.1 },
    { "mx", "use: mx\nelement: int8\n", 0.02 },
    { "int8", "use: int8\n", 0.02 },
    { "squeeze", "use: squeeze\nbits: 4\n", 0.1 },
    { "hqq", "use: hqq\nbits: 4\ngroup: 16\n", 0.1 },
    { "nvfp4", "use: nvfp4\n", 0.15 },
    { "mxfp4", "use: mxfp4\n", 0.15 },
    { "autoround", "use: autoround\nbits: 4\ngroup: 8\nsteps: 4\n", 0.1 },
    /* scales alone change nothing: what is left is what 8 bits cost */
    { "awq", "use: awq\nbits: 8\ngroup: 8\nscale: f32\nclip: false\n", 0.01 },
};
#define WAYS       (sizeof quantizers / sizeof *quantizers)
#define QUANTIZERS (WAYS - 1) /* the last is there twice */

/* A router chooses by the largest scores, and those of these models lie near each other, so that coarser weights change the
 * choice: an error jumps where the choice does.  With awq's 8 bits the bound of all models holds for both.  bound: about
 * twice what was measured; of all ways of 4 bits where `use` is NULL. */
static const struct {
    const char *model, *use;
    double      bound;
} near_ties[] = {
    { "deepseek_v3-halves", NULL, 0.5 }, /* 0.25 */
    { "qwen3_5_moe", "awq", 0.24 },      /* 0.117 */
    { "qwen3_5_moe", "mx", 0.12 },       /* 0.057 */
};

/* What is refused by all ("") or one of them: weights that are packed; and autoround refuses layers without gradients. */
static const struct {
    const char *use, *model, *says;
} refused[] = {
    { "", "gpt_oss-mxfp4", "is packed already; quantize the original" },
};

static struct tsr_registry  *registry;
static struct tsr_pool      *pool;
static struct tsr_tokenizer *bytes;
static double                worst[WAYS];

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

/* Ids are bytes: recorded models have no tokenizer. */
static struct tsr_tokenizer *byte_tokenizer(void)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_tokenizer *t = NULL;
    json_t               *vocab = json_object();
    unsigned              other = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool     own = (b >= 33 && b < 127) || (b >= 161 && b != 173);
        unsigned c = own ? b : other++;
        char     key[4] = { 0 };
        if (c < 128) {
            key[0] = (char)c;
        } else {
            key[0] = (char)(0xc0 | c >> 6);
            key[1] = (char)(0x80 | (c & 63));
        }
        assert_int_equal(json_object_set_new(vocab, key, json_integer(b)), 0);
    }
    json_t *j =
        json_pack("{s:s, s:[], s:n, s:{s:s}, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:o, s:[]}}",
                  "version", "1.0", "added_tokens", "normalizer", "decoder", "type", "ByteLevel",
                  "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                  "use_regex", 1, "model", "type", "BPE", "vocab", vocab, "merges");
    assert_non_null(j);
    char *text = json_dumps(j, 0);
    assert_non_null(text);
    must(tsr_tokenizer_parse(&t, "bytes", text, strlen(text), NULL, 0, &e.err), &e);
    free(text);
    json_decref(j);
    return t;
}

static int set_up(void **state)
{
    (void)state;
    registry = golden_registry(1, NULL, &pool);
    bytes = byte_tokenizer();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tsr_tokenizer_destroy(bytes);
    golden_registry_close(registry, pool);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st;
    (void)flag;
    (void)w;
    return remove(path);
}

static const char *refusal(const char *use, const char *model, const struct tsr_model *m)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if ((!*refused[i].use || strcmp(refused[i].use, use) == 0) &&
            strcmp(refused[i].model, model) == 0)
            return refused[i].says;
    for (uint64_t l = 0; l < m->hp.layers && strcmp(use, "autoround") == 0; l++)
        if (tsr_gradient_refusal(m, l))
            return "has no gradients: ";
    return NULL;
}

/* Packs m into the folder. */
static tsr_status pack(const struct tsr_model *m, struct tsr_quant_calibration *c,
                       const char *scheme, const char *folder, struct tsr_err *err)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_config_doc    *doc = NULL;
    struct tsr_diag          *d = NULL;
    struct tsr_quant_scheme  *s = NULL;
    struct tsr_model_overlay *o = NULL;
    uint64_t                  done;
    must(tsr_config_diag_create(&d, &e.err), &e);
    must(tsr_config_doc_parse(&doc, "scheme", scheme, strlen(scheme), d, &e.err), &e);
    must(tsr_quant_scheme_create(&s, registry, tsr_config_doc_root(doc), NULL, "scheme", d, &e.err),
         &e);
    must(tsr_config_diag_status(d, &e.err), &e);
    struct tsr_quantize_options opt = {
        .folder = folder, .options = tsr_config_doc_root(doc), .calibration = c, .drop = true
    };
    tsr_status st = tsr_quantize_model(s, registry, m, &opt, &o, &done, err);
    tsr_model_overlay_destroy(o);
    tsr_quant_scheme_destroy(s);
    tsr_config_diag_destroy(d);
    tsr_config_doc_destroy(doc);
    return st;
}

static float *logits_of(const struct tsr_model *m, const struct golden_case *c)
{
    struct tsr_engine *e = golden_engine(registry, m, NULL,
                                         (struct tsr_engine_options){ .act = TSR_ACT_F32,
                                                                      .kv_dtype = TSR_F32,
                                                                      .slots = 1,
                                                                      .context = c->n_prompt });
    float             *v = golden_forward(e, c->prompt, c->n_prompt, false);
    tsr_engine_destroy(e);
    return v;
}

static void near(const char *name, size_t q, const struct golden_case *c, const float *got,
                 const float *want, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(got[i]))
            fail_msg("%s, %s: logit %llu is %g", name, quantizers[q].use, (unsigned long long)i,
                     (double)got[i]);
        sum += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
    }
    double off = sqrt(sum / (double)n) / c->range, bound = quantizers[q].bound;
    bool   apart = false;
    for (size_t i = 0; i < sizeof near_ties / sizeof *near_ties; i++) {
        const char *use = near_ties[i].use;
        if (strcmp(name, near_ties[i].model) != 0 || apart)
            continue;
        apart = use ? quantizers[q].bound > 0.015 && strcmp(quantizers[q].use, use) == 0
                    : quantizers[q].bound > 0.05;
        if (apart)
            bound = near_ties[i].bound;
    }
    if (!apart)
        worst[q] = fmax(worst[q], off);
    if (!(off > 0) || !(off < bound))
        fail_msg("%s, %s: logits are off by %g of their range", name, quantizers[q].use, off);
}

static void one(const char *name, const struct golden *g, struct tsr_quant_calibration *c,
                const float *want, size_t q)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *packed = NULL;
    const char       *says = refusal(quantizers[q].use, name, g->model);
    char              folder[] = "/tmp/tessera-quantizers-XXXXXX";
    assert_non_null(mkdtemp(folder));
    tsr_status st = pack(g->model, c, quantizers[q].scheme, folder, &e.err);
    if (says && (st == TSR_OK || !strstr(e.text, says)))
        fail_msg("%s, %s: must be refused with '%s', got '%s'", name, quantizers[q].use, says,
                 e.text);
    if (!says && st != TSR_OK)
        fail_msg("%s, %s: %s", name, quantizers[q].use, e.text);
    if (st == TSR_OK) {
        must(tsr_model_load(&packed, folder, false, &e.err), &e);
        float *got = logits_of(packed, &g->cases[0]);
        near(name, q, &g->cases[0], got, want, g->cases[0].n_prompt * g->model->hp.vocab);
        free(got);
        tsr_model_destroy(packed);
    }
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void test_every_model(void **state)
{
    const char *all = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    size_t      each = all && *all ? 1 : 2, turn = s ? strtoull(s, NULL, 10) % each : 0, ran = 0;
    (void)state;
    print_message("one pair of %zu, TSR_TEST_SEED=%zu\n", each, turn);
    for (const char *const *name = golden_names; *name; name++, turn++) {
        struct tsr_errbuf                  e = TSR_ERRBUF(e);
        struct golden                      g;
        struct tsr_quant_calibration      *c = NULL;
        struct tsr_quant_calibrate_options co = {
            .text = TEXT, .samples = 4, .seqlen = 24, .defer = true
        };
        golden_load(&g, *name);
        must(tsr_quant_calibrate(&c, registry, g.model, bytes, &co, &e.err), &e);
        float *want = logits_of(g.model, &g.cases[0]);
        for (size_t q = turn % each; q < WAYS; q += each, ran++)
            one(*name, &g, c, want, q);
        free(want);
        tsr_quant_calibration_destroy(c);
        golden_free(&g);
    }
    assert_true(ran > 0);
    for (size_t q = 0; q < WAYS; q++)
        print_message("%s: at most %.4f of the range\n", quantizers[q].use, worst[q]);
}

/* A quantizer of this build that is not in the list would not be tested. */
static void test_list(void **state)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plugin_found f;
    uint64_t                n = 0;
    (void)state;
    must(tsr_plugin_registry_scan(registry, &e.err), &e);
    for (uint64_t i = 0; tsr_plugin_registry_component(registry, i, &f); i++) {
        bool known = false;
        if (strcmp(f.component->kind, TSR_KIND_QUANTIZER) != 0)
            continue;
        for (size_t q = 0; q < QUANTIZERS; q++)
            known = known || strcmp(quantizers[q].use, f.component->name) == 0;
        if (!known)
            fail_msg("quantizer '%s' is not in the list of this test", f.component->name);
        n++;
    }
    assert_int_equal(n, QUANTIZERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_every_model),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
