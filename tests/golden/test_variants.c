/* Recorded models under other configurations (variants/README.md): logits are those of the reference, from the folder, from a
 * prepacked file and from an exported folder. */
#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "checkpoint/export/export.h"
#include "checkpoint/safetensors/safetensors.h"
#include "golden.h"
#include "place.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOLERANCE 5e-5 /* of the range, as in test_models.c */
#define GOLDEN    "%s/tests/golden/"

static struct tsr_registry *registry;
static struct tsr_pool     *pool;

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

static void put(const char *folder, const char *name, const char *data, uint64_t n)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_writer w = { 0 };
    char              path[600];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    must(tsr_writer_open(&w, path, &e.err), &e);
    tsr_writer_put(&w, data, n);
    must(tsr_writer_commit(&w, &e.err), &e);
}

/* The files of the base, with the changes of a case. */
static void make_folder(const json_t *c, const char *folder)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              base[512], path[800], *data;
    uint64_t          n;
    json_t           *config, *key;
    size_t            i;
    (void)snprintf(base, sizeof base, GOLDEN "models/%s", TEST_ROOT,
                   json_string_value(json_object_get(c, "base")));
    DIR *d = opendir(base);
    assert_non_null(d);
    for (const struct dirent *f = readdir(d); f; f = readdir(d)) {
        if (*f->d_name == '.' || strcmp(f->d_name, "expected.safetensors") == 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", base, f->d_name);
        must(tsr_file_slurp(path, 1 << 24, &data, &n, &e.err), &e);
        put(folder, f->d_name, data, n);
        free(data);
    }
    closedir(d);
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    must(tsr_json_load(&config, path, 1 << 20, 8, &e.err), &e);
    json_array_foreach (json_object_get(c, "drop"), i, key)
        (void)json_object_del(config, json_string_value(key));
    assert_int_equal(json_object_update(config, json_object_get(c, "set")), 0);
    data = json_dumps(config, 0);
    assert_non_null(data);
    put(folder, "config.json", data, strlen(data));
    free(data);
    json_decref(config);
}

static void remove_folder(const char *folder)
{
    char path[600];
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *f = readdir(d); f; f = readdir(d)) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        (void)unlink(path); /* "." and ".." stay */
    }
    closedir(d);
    assert_int_equal(rmdir(folder), 0);
}

static void read_case(const json_t *o, const struct tsr_safetensors *st, struct golden_case *c)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const json_t     *prompt = json_object_get(o, "prompt");
    char              key[80];
    *c = (struct golden_case){
        .name = strdup(json_string_value(json_object_get(o, "name"))),
        .n_prompt = json_array_size(prompt),
        .whole_prompt_only = json_is_true(json_object_get(o, "whole_prompt_only")),
    };
    assert_true(c->name && c->n_prompt > 0);
    c->prompt = calloc(c->n_prompt, sizeof *c->prompt);
    assert_non_null(c->prompt);
    for (uint64_t i = 0; i < c->n_prompt; i++)
        c->prompt[i] = (uint32_t)json_integer_value(json_array_get(prompt, i));
    (void)snprintf(key, sizeof key, "%s.logits", c->name);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, key);
    assert_non_null(t);
    c->logits = malloc(t->end - t->begin);
    assert_non_null(c->logits);
    must(tsr_safetensors_read(st, t, c->logits, &e.err), &e);
    float lo = c->logits[0], hi = lo;
    for (uint64_t i = 0; i < (t->end - t->begin) / sizeof(float); i++) {
        lo = fminf(lo, c->logits[i]);
        hi = fmaxf(hi, c->logits[i]);
    }
    c->range = (double)hi - (double)lo;
    assert_true(c->range > 0 && isfinite(c->range));
}

static void compare(const char *how, const char *path, const struct golden_case *c)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_engine_options opt = { .on.backend = "cpu", .context = c->n_prompt };
    struct tsr_model         *m = NULL, *headers = NULL;
    must(tsr_model_load(&m, path, false, &e.err), &e);
    must(tsr_model_load(&headers, path, true, &e.err), &e);
    assert_int_equal(m->parameters, headers->parameters);
    assert_int_equal(m->hp.tied, headers->hp.tied);
    tsr_model_destroy(headers);
    struct tsr_engine *engine = golden_engine(registry, m, NULL, opt);
    for (int step = 0; step < (c->whole_prompt_only ? 1 : 2); step++) {
        float *logits = golden_forward(engine, c->prompt, c->n_prompt, step);
        golden_compare(how, c, logits, m->hp.vocab, TOLERANCE);
        free(logits);
    }
    tsr_engine_destroy(engine);
    tsr_model_destroy(m);
}

/* A prepacked file and an exported folder have the same configuration, and a head where the folder has one.  The exported
 * flag says so, too. */
static void compare_written(const char *folder, const struct golden_case *c, bool prepacked)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_export_options opt = { .format = prepacked ? TSR_EXPORT_PREPACKED : TSR_EXPORT_HF,
                                      .registry = registry,
                                      .on.backend = "cpu" };
    struct tsr_export_report  report;
    struct tsr_model         *m = NULL;
    json_t                   *config;
    char                      path[600], name[620];
    (void)snprintf(path, sizeof path, "%s/%s", folder, prepacked ? "m.tsr" : "hf");
    must(tsr_model_load_streamed(&m, folder, &e.err), &e);
    must(tsr_export(m, NULL, path, &opt, &report, &e.err), &e);
    compare(prepacked ? "prepacked" : "exported", path, c);
    if (!prepacked) {
        (void)snprintf(name, sizeof name, "%s/config.json", path);
        must(tsr_json_load(&config, name, 1 << 20, 8, &e.err), &e);
        assert_true(m->hp.tied || !json_is_true(json_object_get(config, "tie_word_embeddings")));
        json_decref(config);
        remove_folder(path);
    }
    tsr_model_destroy(m);
}

static void variants_as_recorded(void **state)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    char                   path[600];
    json_t                *root, *o;
    size_t                 i;
    (void)state;
    (void)snprintf(path, sizeof path, GOLDEN "variants/cases.json", TEST_ROOT);
    must(tsr_json_load(&root, path, 1 << 20, 8, &e.err), &e);
    (void)snprintf(path, sizeof path, GOLDEN "variants/expected.safetensors", TEST_ROOT);
    must(tsr_safetensors_open(&st, path, &e.err), &e);
    assert_true(json_array_size(json_object_get(root, "cases")) > 0);
    json_array_foreach (json_object_get(root, "cases"), i, o) {
        struct golden_case c;
        char               folder[] = "/tmp/tessera-variant-XXXXXX";
        assert_non_null(mkdtemp(folder));
        read_case(o, &st, &c);
        make_folder(o, folder);
        compare("folder", folder, &c);
        compare_written(folder, &c, true);
        compare_written(folder, &c, false);
        remove_folder(folder);
        free(c.name);
        free(c.prompt);
        free(c.logits);
    }
    tsr_safetensors_close(&st);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(variants_as_recorded) };
    registry = golden_registry(2, NULL, &pool);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    golden_registry_close(registry, pool);
    return failed;
}
