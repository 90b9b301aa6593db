/* A YAML file to a tree, a filled option table and back to YAML; and an override. */
#include "config/config.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

struct opts {
    int64_t                       version, seed, rounding;
    double                        ratio;
    int32_t                       flag;
    const char                   *model;
    const struct tsr_config_node *pipeline;
};
static const struct tsr_choice roundings[] = { { "even", NULL, 0 }, { "zero", NULL, 1 } };
static const struct tsr_option table[] = {
    TSR_OPTION_INT(struct opts, version, 1, 1, 9, NULL, "version"),
    TSR_OPTION_INT(struct opts, seed, 0, 0, INT64_MAX, "MiB", "seed"),
    TSR_OPTION_ENUM(struct opts, rounding, 1, roundings, "rounding"),
    TSR_OPTION_REAL(struct opts, ratio, 0.5, 0.0, 1.0, NULL, "ratio"),
    TSR_OPTION_BOOL(struct opts, flag, 1, "flag"),
    TSR_OPTION_STRING(struct opts, model, "", "model"),
    TSR_OPTION_NODE(struct opts, pipeline, "steps"),
};

static void fill(const struct tsr_config_node *root, struct tsr_diag *d)
{
    struct opts              o = { 0 };
    struct tsr_config_optset set = { table, sizeof table / sizeof *table, sizeof *table, &o };
    tsr_config_options_fill(&set, 1, NULL, root, "the file", d);
    must(o.version >= 1 && o.version <= 9 && o.seed >= 0);
    must(o.rounding == 0 || o.rounding == 1);
    must(o.ratio >= 0.0 && o.ratio <= 1.0);
    must(o.flag == 0 || o.flag == 1);
    must(o.model != NULL);
}

/* Every error has a place inside the text and can be printed. */
static void show(struct tsr_diag *d)
{
    struct tsr_config_diag_item v;
    char                       *text = NULL;
    size_t                      len = 0;
    for (uint64_t i = 0; tsr_config_diag_at(d, i, &v); i++)
        must(*v.text && (!v.line_text || (v.line >= 1 && v.column >= 1 && v.length >= 1)));
    FILE *m = open_memstream(&text, &len);
    if (!m)
        return;
    tsr_config_diag_print(d, m, true);
    (void)fclose(m);
    free(text);
}

/* What is printed reads back as the same tree. */
static void round_trip(const struct tsr_config_node *root)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_diag       *d = NULL;
    struct tsr_config_doc *doc = NULL;
    char                  *text = NULL;
    size_t                 len = 0;
    FILE                  *m = open_memstream(&text, &len);
    if (!m)
        return;
    tsr_config_node_print(root, m, true);
    (void)fclose(m);
    if (len <= 1u << 20 && tsr_config_diag_create(&d, &e.err) == TSR_OK) {
        must(tsr_config_doc_parse(&doc, "printed", text, len, d, &e.err) == TSR_OK);
        json_t *a = tsr_config_node_json(root), *b = tsr_config_node_json(tsr_config_doc_root(doc));
        must(a && b && json_equal(a, b));
        json_decref(a);
        json_decref(b);
        tsr_config_doc_destroy(doc);
    }
    tsr_config_diag_destroy(d);
    free(text);
}

static void override(struct tsr_diag *d, const uint8_t *data, size_t size)
{
    static const char base[] =
        "version: 1\npipeline: [a, {b: {c: [1, {d: 2}]}}, {b: {}}, {e: ~}]\n";
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_config_doc *doc = NULL;
    char                  *text = malloc(size + 1);
    if (text && size)
        memcpy(text, data, size);
    if (text)
        text[size] = '\0';
    if (text && tsr_config_doc_parse(&doc, "base", base, sizeof base - 1, d, &e.err) == TSR_OK &&
        tsr_config_doc_set(doc, text, d, &e.err) == TSR_OK)
        round_trip(tsr_config_doc_root(doc));
    tsr_config_doc_destroy(doc);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_diag       *d = NULL, *d2 = NULL;
    struct tsr_config_doc *doc = NULL;
    const char            *text = size ? (const char *)data : "";
    if (size > 1u << 16 || tsr_config_diag_create(&d, &e.err) != TSR_OK)
        return 0;
    tsr_status st = tsr_config_doc_parse(&doc, "fuzz.yaml", text, size, d, &e.err);
    must((st == TSR_OK) == (doc != NULL));
    must(st == TSR_OK || tsr_config_diag_errors(d) > 0);
    if (doc) {
        fill(tsr_config_doc_root(doc), d);
        round_trip(tsr_config_doc_root(doc));
    }
    tsr_config_doc_destroy(doc);
    show(d); /* the doc is gone: diagnostics own what they need */
    tsr_config_diag_destroy(d);
    if (tsr_config_diag_create(&d2, &e.err) == TSR_OK) {
        override(d2, data, size);
        show(d2);
    }
    tsr_config_diag_destroy(d2);
    return 0;
}
