/* test_prepacked [VAULT.so]: every golden model and checkpoint as a prepacked file gives the bytes of
 * its source, on the CPU and on a device whose memory the host cannot read; damaged files are
 * refused.  Some of the checkpoints, by TSR_TEST_SEED, unless TSR_TEST_ALL=1. */
#include "../fixtures/error_is.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/export/export.h"
#include "checkpoint/prepacked/prepacked.h"
#include "checkpoint/tokenizer.h"
#include "golden.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define GOLDEN TSR_SOURCE_ROOT "/tests/golden/"
#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, e.text);                                                     \
    } while (0)

static bool has_tokenizer(const char *path)
{
    bool there = false;
    assert_int_equal(tsr_checkpoint_tokenizer_there(path, &there, NULL), TSR_OK);
    return there;
}

static const char          *vault;
static struct tsr_registry *registry;
static struct tsr_pool     *pool;

static const uint32_t ids[] = { 1, 5, 30, 7, 2 };
#define IDS (sizeof ids / sizeof *ids)

static float *logits(const struct tsr_model *m, const char *backend, uint32_t act)
{
    struct tsr_engine_options opt = { .on.backend = backend, .act = act };
    struct tsr_engine        *engine = golden_engine(registry, m, NULL, opt);
    float                    *l = golden_forward(engine, ids, IDS, false);
    tsr_engine_destroy(engine);
    return l;
}

static void write_file(const char *source, const char *path, const char *backend)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_export_options o = { .format = TSR_EXPORT_PREPACKED,
                                    .registry = registry,
                                    .on.backend = backend };
    struct tsr_export_report  r;
    struct tsr_model         *m = NULL;
    (void)unlink(path);
    OK(tsr_model_load_streamed(&m, source, &e.err));
    OK(tsr_export(m, NULL, path, &o, &r, &e.err));
    tsr_model_destroy(m);
}

static void same_tokenizer(const char *source, const char *path)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_tokenizer *a = NULL, *b = NULL;
    if (!has_tokenizer(source) || tsr_checkpoint_tokenizer_load(&a, source, &e.err) != TSR_OK) {
        assert_false(has_tokenizer(path)); /* a kind that is not read is left out */
        return;
    }
    OK(tsr_checkpoint_tokenizer_load(&b, path, &e.err));
    assert_string_equal(tsr_tokenizer_hash(a), tsr_tokenizer_hash(b));
    tsr_tokenizer_destroy(a);
    tsr_tokenizer_destroy(b);
}

static void same_logits(const char *source, const struct tsr_model *a, const struct tsr_model *b,
                        const char *backend)
{
    for (uint32_t act = TSR_ACT_F32; act <= (a->packed ? TSR_ACT_A8 : TSR_ACT_F32); act++) {
        float *x = logits(a, "cpu", act), *y = logits(b, backend, act);
        if (memcmp(x, y, IDS * a->hp.vocab * sizeof *x) != 0)
            fail_msg("%s on %s, act %u: the prepacked file gives other bytes", source, backend,
                     act);
        free(x);
        free(y);
    }
}

static void same_facts(const struct tsr_model *a, const struct tsr_model *b)
{
    uint64_t weights[2], bytes[2];
    assert_string_equal(a->family, b->family);
    assert_int_equal(a->hp.n_eos, b->hp.n_eos);
    assert_memory_equal(a->hp.eos, b->hp.eos, sizeof a->hp.eos);
    assert_int_equal(a->hp.layers, b->hp.layers);
    assert_true((a->packed_as == NULL) == (b->packed_as == NULL));
    assert_string_equal(a->packed_as ? a->packed_as : "", b->packed_as ? b->packed_as : "");
    tsr_model_overlay_size(a, a->packed, &weights[0], &bytes[0]);
    tsr_model_overlay_size(b, b->packed, &weights[1], &bytes[1]);
    assert_int_equal(weights[0], weights[1]);
    assert_int_equal(bytes[0], bytes[1]);
}

static void check_source(const char *source)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *a = NULL, *b = NULL, *h = NULL;
    char              folder[] = "/tmp/tessera-prepacked-XXXXXX", path[64], other[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/m.tsr", folder);
    (void)snprintf(other, sizeof other, "%s/v.tsr", folder);
    write_file(source, path, "cpu");
    OK(tsr_model_load(&a, source, false, &e.err));
    OK(tsr_model_load(&b, path, false, &e.err));
    OK(tsr_prepacked_verify(b->prepacked, pool, NULL, &e.err));
    assert_string_equal(b->prepacked->source, a->hash);
    same_facts(a, b);
    same_logits(source, a, b, "cpu");
    same_tokenizer(source, path);
    OK(tsr_model_load(&h, path, true, &e.err));
    assert_int_equal(h->parameters, b->parameters);
    assert_int_equal(h->bytes, b->bytes);
    assert_string_equal(h->hash, b->hash);
    tsr_model_destroy(h);
    if (vault) { /* written from memory that only the device can read, and run from the map */
        char x[TSR_HASH_TEXT], y[TSR_HASH_TEXT];
        write_file(source, other, "vault");
        OK(tsr_hash_file(path, x, &e.err));
        OK(tsr_hash_file(other, y, &e.err));
        assert_string_equal(x, y);
        same_logits(source, a, b, "vault");
        (void)unlink(other);
    }
    tsr_model_destroy(a);
    tsr_model_destroy(b);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void models_give_the_same_bytes(void **state)
{
    char path[512];
    (void)state;
    for (size_t i = 0; golden_names[i]; i++) {
        (void)snprintf(path, sizeof path, GOLDEN "models/%s", golden_names[i]);
        check_source(path);
    }
}

static void checkpoints_give_the_same_bytes(void **state)
{
    static const char *const patterns[] = { GOLDEN "checkpoints/*/config.json",
                                            GOLDEN "checkpoints/*/model.gguf" };
    const char              *all = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    unsigned                 seed = s ? (unsigned)strtoul(s, NULL, 10) : (unsigned)time(NULL);
    glob_t                   g = { 0 };
    (void)state;
    print_message("TSR_TEST_SEED=%u\n", seed);
    assert_int_equal(glob(patterns[0], 0, NULL, &g), 0);
    assert_int_equal(glob(patterns[1], GLOB_APPEND, NULL, &g), 0);
    assert_true(g.gl_pathc >= 30);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        char *slash = strrchr(g.gl_pathv[i], '/');
        if ((!all || strcmp(all, "1") != 0) && (i + seed) % 4 != 0)
            continue;
        if (strcmp(slash, "/config.json") == 0)
            *slash = '\0';
        check_source(g.gl_pathv[i]);
    }
    globfree(&g);
}

/* ---- bad files ------------------------------------------------------------------------------- */

static unsigned char *good;
static uint64_t       good_bytes;
static char           folder[] = "/tmp/tessera-prepacked-XXXXXX", bad_path[64];

static void put_bad(const unsigned char *data, uint64_t bytes)
{
    FILE *f = fopen(bad_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* Loading fails with an error about this part of the file. */
static void refuses_part(const char *what, const char *part, const char *facts)
{
    char about[200];
    (void)snprintf(about, sizeof about, "%s%s", bad_path, part);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    tsr_status        st = tsr_model_load(&m, bad_path, false, &e.err);
    if (st != TSR_E_INPUT || !error_is(&e.err, about, facts))
        fail_msg("%s: status %d, %s", what, st, st == TSR_OK ? "" : e.text);
}

static void refuses(const char *what, const char *facts)
{
    refuses_part(what, "", facts);
}

static void cut_and_changed(void **state)
{
    unsigned char *copy = malloc(good_bytes + 1);
    uint64_t       index;
    assert_non_null(copy);
    (void)state;
    memcpy(&index, good + 24, 8);
    const struct {
        const char *what, *facts;
        uint64_t    at;
    } flips[] = {
        { "version", NULL, 8 },
        { "size", NULL, 16 },
        { "place of the index", "24", 24 },
        { "length of the index", "24", 32 },
        { "minor version", "version 2.1", 12 },
        { "hash", "hash", 70 },
        { "first byte of the index", "hash", index },
        { "last byte", "hash", good_bytes - 1 },
        { "middle of the index", "hash", index + (good_bytes - index) / 2 },
    };
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        memcpy(copy, good, good_bytes);
        copy[flips[i].at] ^= 1;
        put_bad(copy, good_bytes);
        refuses(flips[i].what, flips[i].facts);
    }
    const uint64_t cuts[] = { 8, 64, 127, 128, 4096, index, good_bytes / 2, good_bytes - 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        put_bad(good, cuts[i]);
        refuses("cut", NULL);
    }
    memcpy(copy, good, good_bytes);
    copy[good_bytes] = 'x';
    put_bad(copy, good_bytes + 1);
    refuses("longer", "appended");
    free(copy);
}

/* The good file with an index that edit() changed, its head right again. */
static void with_index(void (*edit)(json_t *index))
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_prepacked_head h;
    json_t                   *j = NULL;
    char                     *text;
    uint64_t                  len, at, bytes;
    memcpy(&at, good + 24, 8);
    memcpy(&bytes, good + 32, 8);
    OK(tsr_json_parse(&j, "index", (const char *)good + at, bytes, 8, &e.err));
    edit(j);
    OK(tsr_json_text(j, JSON_COMPACT, &text, &len, &e.err));
    json_decref(j);
    h = (struct tsr_prepacked_head){ .file_bytes = at + len, .index_at = at, .index_bytes = len };
    OK(tsr_prepacked_head_hash(&h, text, h.hash, &e.err));
    unsigned char *copy = malloc(at + len);
    assert_non_null(copy);
    memcpy(copy, good, at);
    memcpy(copy + at, text, len);
    tsr_prepacked_head_write(&h, copy);
    put_bad(copy, at + len);
    free(copy);
    free(text);
}

#define WEIGHT "model.layers.1.mlp.down_proj"
static json_t *weight_of(json_t *j)
{
    return json_object_get(json_object_get(j, "weights"), WEIGHT);
}
static void no_layout(json_t *j)
{
    (void)json_object_del(j, "layout");
}
static void other_format(json_t *j)
{
    (void)json_object_set_new(j, "format", json_string("tessera.prepacked/3"));
}
static void no_weight(json_t *j)
{
    (void)json_object_del(json_object_get(j, "weights"), WEIGHT);
}
static void more_weights(json_t *j)
{
    (void)json_object_set(json_object_get(j, "weights"), "spare", weight_of(j));
}
/* A number of the weight's entry: 0 its place, 1 its bytes, 2 its kind. */
static void set_number(json_t *j, size_t which, json_int_t n)
{
    (void)json_array_set_new(weight_of(j), which, json_integer(n));
}
/* A kind of its own. */
static void set_kind(json_t *j, json_t *kind)
{
    json_t *kinds = json_object_get(j, "kinds");
    set_number(j, 2, (json_int_t)json_array_size(kinds));
    (void)json_array_append_new(kinds, kind);
}
static void outside(json_t *j)
{
    set_number(j, 0, INT64_C(1) << 40);
}
static void in_the_head(json_t *j)
{
    set_number(j, 0, 0);
}
static void no_such_kind(json_t *j)
{
    set_number(j, 2, (json_int_t)json_array_size(json_object_get(j, "kinds")));
}
static void two_numbers(json_t *j)
{
    (void)json_array_remove(weight_of(j), 2);
}
static void place_in_words(json_t *j)
{
    (void)json_array_set_new(weight_of(j), 0, json_string("4096"));
}
static void kind_in_words(json_t *j)
{
    set_kind(j, json_string("F32"));
}
static void no_kinds(json_t *j)
{
    (void)json_object_set_new(j, "kinds", json_array());
}
static void no_details(json_t *j)
{
    (void)json_object_del(j, "details");
}
static void odd_place(json_t *j)
{
    set_number(j, 0, 4097);
}
static void too_long(json_t *j)
{
    set_number(j, 1, INT64_MAX);
}
static void negative(json_t *j)
{
    set_number(j, 1, -1);
}
static void no_dtype(json_t *j)
{
    set_kind(j, json_pack("{s:s}", "dtype", "F64"));
}
static void packed_wrong(json_t *j)
{
    set_kind(j, json_pack("{s:{s:s}}", "packed", "format", "tessera.int/1"));
}
static void no_config(json_t *j)
{
    (void)json_object_del(json_object_get(j, "texts"), "config.json");
}
static void config_moved(json_t *j)
{
    json_t *c = json_object_get(json_object_get(j, "texts"), "config.json");
    (void)json_object_set_new(c, "bytes",
                              json_integer(json_integer_value(json_object_get(c, "bytes")) - 1));
}
static void no_vector(json_t *j)
{
    (void)json_object_del(json_object_get(json_object_get(j, "vectors"), "names"),
                          "model.final_norm.gain");
}
static void vector_outside(json_t *j)
{
    (void)json_object_set_new(json_object_get(json_object_get(j, "vectors"), "names"),
                              "model.final_norm.gain", json_integer(INT64_MAX));
}
static void weights_list(json_t *j)
{
    (void)json_object_set_new(j, "weights", json_array());
}

static void wrong_index(void **state)
{
    static const struct {
        void (*edit)(json_t *);
        const char *facts;
        bool        weight; /* it is about the weight in the index */
    } all[] = {
        { no_layout, "layout", false },
        { other_format, "tessera.prepacked/3", false },
        { no_weight, WEIGHT, false },
        { more_weights, "weights", false },
        { outside, "at", true },
        { in_the_head, "at", true },
        { no_such_kind, "kind", true },
        { two_numbers, "three integers", true },
        { place_in_words, "three integers", true },
        { kind_in_words, "kind", true },
        { no_kinds, "kinds", false },
        { no_details, "details", false },
        { odd_place, "4096", true },
        { too_long, "bytes", true },
        { negative, "bytes", true },
        { no_dtype, "F64", true },
        { packed_wrong, NULL, true },
        { no_config, "config.json", false },
        { config_moved, "config.json", false },
        { no_vector, "model.final_norm.gain", false },
        { vector_outside, "model.final_norm.gain", false },
        { weights_list, "weights", false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        with_index(all[i].edit);
        char what[40];
        (void)snprintf(what, sizeof what, "index %zu", i);
        refuses_part(what, all[i].weight ? ": index: \"" WEIGHT "\"" : "", all[i].facts);
    }
}

static void foreign_layout(json_t *j)
{
    (void)json_object_set_new(json_object_get(j, "layout"), "id", json_string("org.example.tiles"));
}
static void later_revision(json_t *j)
{
    (void)json_object_set_new(json_object_get(j, "layout"), "revision", json_integer(4));
}
static void other_target(json_t *j)
{
    (void)json_object_set_new(json_object_get(j, "layout"), "target", json_string("sm_90"));
}
static void shorter_weight(json_t *j)
{
    json_t *w = weight_of(j);
    set_number(j, 1, json_integer_value(json_array_get(w, 1)) - 64);
}

/* What only the backend can tell: the file opens, the engine refuses it. */
static void wrong_for_the_backend(void **state)
{
    static const struct {
        void (*edit)(json_t *);
        const char *facts;
    } all[] = { { foreign_layout, "org.example.tiles 3 cpu" },
                { later_revision, "4" },
                { other_target, "sm_90" },
                { shorter_weight, WEIGHT } };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct tsr_errbuf         e = TSR_ERRBUF(e);
        struct tsr_model         *m = NULL;
        struct tsr_engine        *engine = NULL;
        struct tsr_engine_options opt = { .on.backend = "cpu", .slots = 1, .kv_dtype = TSR_F32 };
        with_index(all[i].edit);
        OK(tsr_model_load(&m, bad_path, false, &e.err));
        assert_int_equal(tsr_engine_create(&engine, registry, m, NULL, &opt, &e.err), TSR_E_INPUT);
        assert_true(error_is(&e.err, bad_path, all[i].facts));
        tsr_model_destroy(m);
    }
}

/* A weight that was changed loads, since it is not read then; verify names it. */
static void damage_is_found(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    unsigned char    *copy = malloc(good_bytes);
    assert_non_null(copy);
    (void)state;
    put_bad(good, good_bytes);
    OK(tsr_model_load(&m, bad_path, false, &e.err));
    uint64_t at = (uint64_t)(m->prepacked->lin[1][TSR_MODEL_DOWN].data - m->prepacked->data);
    struct tsr_prepacked_place v = tsr_prepacked_place(m->prepacked->vectors);
    struct tsr_prepacked_place d = tsr_prepacked_place(m->prepacked->details);
    tsr_model_destroy(m);
    memcpy(copy, good, good_bytes);
    copy[at + 100] ^= 4;
    put_bad(copy, good_bytes);
    OK(tsr_model_load(&m, bad_path, false, &e.err));
    assert_int_equal(tsr_prepacked_verify(m->prepacked, pool, NULL, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, bad_path, WEIGHT));
    tsr_model_destroy(m);
    /* the hashes of the weights, which a start does not read either */
    memcpy(copy, good, good_bytes);
    copy[d.at + d.bytes / 2] ^= 4;
    put_bad(copy, good_bytes);
    OK(tsr_model_load(&m, bad_path, false, &e.err));
    assert_int_equal(tsr_prepacked_verify(m->prepacked, pool, NULL, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, bad_path, "details"));
    tsr_model_destroy(m);
    memcpy(copy, good, good_bytes);
    copy[v.at + 3] ^= 4;
    put_bad(copy, good_bytes);
    refuses("a norm", "vectors");
    free(copy);
}

static int make_good(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *data = NULL;
    (void)state;
    registry = golden_registry(2, vault, &pool);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(bad_path, sizeof bad_path, "%s/bad.tsr", folder);
    write_file(GOLDEN "models/llama3", bad_path, "cpu");
    OK(tsr_file_slurp(bad_path, UINT64_C(1) << 30, &data, &good_bytes, &e.err));
    good = (unsigned char *)data;
    return 0;
}

static int drop_good(void **state)
{
    (void)state;
    free(good);
    (void)unlink(bad_path);
    assert_int_equal(rmdir(folder), 0);
    golden_registry_close(registry, pool);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_give_the_same_bytes),
        cmocka_unit_test(checkpoints_give_the_same_bytes),
        cmocka_unit_test(cut_and_changed),
        cmocka_unit_test(wrong_index),
        cmocka_unit_test(wrong_for_the_backend),
        cmocka_unit_test(damage_is_found),
    };
    vault = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, make_good, drop_good);
}
