/* The answers of `tessera inspect` as text. */
#include "base/mem.h"
#include "cli/inspect/family_print.h"
#include "cli/inspect/inspect.h"
#include "cli/inspect/written_print.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static long long int_of(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

/* ---- lists ----------------------------------------------------------------- */

/* Columns as wide as their longest text; the last one is not padded. */
static void print_table(const json_t *rows, const char *const *keys, const char *const *heads,
                        unsigned n)
{
    size_t        width[8] = { 0 }, i;
    const json_t *row;
    for (unsigned k = 0; k < n; k++) {
        width[k] = strlen(heads[k]);
        json_array_foreach (rows, i, row)
            if (strlen(text_of(row, keys[k])) > width[k])
                width[k] = strlen(text_of(row, keys[k]));
    }
    for (unsigned k = 0; k < n; k++)
        (void)printf("%-*s%s", k + 1 < n ? (int)width[k] : 0, heads[k], k + 1 < n ? "  " : "\n");
    json_array_foreach (rows, i, row)
        for (unsigned k = 0; k < n; k++)
            (void)printf("%-*s%s", k + 1 < n ? (int)width[k] : 0, text_of(row, keys[k]),
                         k + 1 < n ? "  " : "\n");
}

static void print_plugins(const json_t *plugins, const json_t *refused, const json_t *absent)
{
    static const char *const keys[] = { "kind", "name", "version", "abi", "license", "path" };
    static const char *const heads[] = { "kind", "name", "version", "abi", "license", "path" };
    size_t                   i;
    const json_t            *row;
    print_table(plugins, keys, heads, 6);
    json_array_foreach (refused, i, row)
        (void)printf("refused: %s\n", text_of(row, "why"));
    json_array_foreach (absent, i, row) {
        const char *option = text_of(row, "option");
        (void)printf("not %s: %s %s; install the Debian package %s%s%s%s\n",
                     *option ? "built" : "installed", text_of(row, "kind"), text_of(row, "name"),
                     text_of(row, "package"), *option ? " and build with -D" : "", option,
                     *option ? "=enabled" : "");
    }
}

static void print_formats(const json_t *formats)
{
    static const char *const keys[] = { "id", "summary" }, *const heads[] = { "format",
                                                                              "what it holds" };
    print_table(formats, keys, heads, 2);
}

static void print_models(const json_t *models)
{
    static const char *const keys[] = { "name", "architecture", "summary" };
    static const char *const heads[] = { "family", "architecture", "what it is" };
    print_table(models, keys, heads, 3);
}

static void print_checkpoints(const json_t *checkpoints)
{
    static const char *const keys[] = { "name", "summary" };
    static const char *const heads[] = { "quantized by", "what is read" };
    (void)printf("\n");
    print_table(checkpoints, keys, heads, 2);
}

static void print_devices(const json_t *devices)
{
    size_t        i;
    const json_t *d;
    char          total[TSR_BYTES_TEXT], room[TSR_BYTES_TEXT];
    (void)printf("backend  device\n");
    json_array_foreach (devices, i, d) {
        if (json_object_get(d, "error"))
            (void)printf("%-7s  not usable: %s\n", text_of(d, "backend"), text_of(d, "error"));
        else
            (void)printf("%-7s  %s, %s, %s free%s\n", text_of(d, "backend"), text_of(d, "device"),
                         tsr_format_bytes(total, sizeof total, (uint64_t)int_of(d, "memory_bytes")),
                         tsr_format_bytes(room, sizeof room, (uint64_t)int_of(d, "free_bytes")),
                         json_is_true(json_object_get(d, "deterministic")) ? ", reproducible" : "");
    }
}

/* ---- details ---------------------------------------------------------------- */

/* "  name         a, b, c" */
static void print_list(const char *name, const json_t *list, const char *none)
{
    size_t        i;
    const json_t *v;
    (void)printf("  %-12s %s", name, json_array_size(list) ? "" : none);
    json_array_foreach (list, i, v)
        (void)printf("%s%s", i ? ", " : "", json_string_value(v));
    (void)printf("\n");
}

static void print_option(const json_t *o)
{
    size_t        i;
    const json_t *c;
    (void)printf("    %-12s %s%s\n", text_of(o, "name"), text_of(o, "text"),
                 json_is_true(json_object_get(o, "advanced")) ? " (advanced)" : "");
    (void)printf("    %-12s %s\n", "", text_of(o, "help"));
    if (*text_of(o, "replaced_by"))
        (void)printf("    %-12s deprecated: %s\n", "", text_of(o, "replaced_by"));
    json_array_foreach (json_object_get(o, "choices"), i, c)
        (void)printf("    %-12s   %-8s %s\n", "", text_of(c, "name"), text_of(c, "help"));
}

static void print_plugin(const json_t *p)
{
    (void)printf("Plugin %s\n", text_of(p, "id"));
    (void)printf("  %-12s %s\n", "version", text_of(p, "version"));
    (void)printf("  %-12s %s\n", "license", text_of(p, "license"));
    (void)printf("  %-12s %s, runs on hosts of %s and newer\n", "ABI", text_of(p, "abi"),
                 text_of(p, "needs_abi"));
    (void)printf("  %-12s %s\n", "built with", text_of(p, "build"));
    (void)printf("  %-12s %s\n", "file", text_of(p, "path"));
    (void)printf("  %-12s %s\n", "hash", text_of(p, "hash"));
    print_list("libraries", json_object_get(p, "libraries"), "none");
}

/* The result of the component's code on a sample, or why it failed. */
static void print_probe(const json_t *a)
{
    const json_t *v = json_object_get(a, "sample"), *bytes = json_object_get(a, "shared_bytes");
    char          text[TSR_BYTES_TEXT];
    if (json_object_get(a, "error")) {
        (void)printf("  %-12s no answer: %s\n", "asked", text_of(a, "error"));
        return;
    }
    if (v)
        (void)printf("  %-12s with default options about %lld x %lld values:\n", "asked",
                     (long long)json_integer_value(json_array_get(v, 0)),
                     (long long)json_integer_value(json_array_get(v, 1)));
    if (json_object_get(a, "needs"))
        print_list("needs", json_object_get(a, "needs"), "nothing but the weights");
    if (json_array_size(json_object_get(a, "needs_if_there")))
        print_list("uses if there", json_object_get(a, "needs_if_there"), "");
    if ((v = json_object_get(a, "needs_of_block")))
        print_list("of the block", v, "nothing but the weights");
    if (*text_of(a, "packs_as")) {
        (void)printf("  %-12s %s, %.4g bits a weight%s\n", "packs as", text_of(a, "packs_as"),
                     json_real_value(json_object_get(a, "bits_per_weight")),
                     json_is_true(json_object_get(a, "whole_tensor")) ? ", whole tensors only"
                                                                      : "");
    }
    if ((v = json_object_get(a, "max_error_steps")) && json_real_value(v) > 0)
        (void)printf("  %-12s at most %.4g steps\n", "error", json_real_value(v));
    if ((v = json_object_get(a, "columns_alone")) && json_integer_value(v) > 0)
        (void)printf("  %-12s packed alone in multiples of %lld\n", "columns",
                     (long long)json_integer_value(v));
    if ((v = json_object_get(a, "exact")))
        (void)printf("  %-12s %s, %.4g bits a value\n", "carries",
                     json_is_true(v) ? "exactly" : "with a loss",
                     json_real_value(json_object_get(a, "bits_per_value")));
    for (int i = 0; i < 2; i++)
        if ((v = json_object_get(a, i ? "values" : "keys")))
            (void)printf("  %-12s %lld bytes for %lld position%s of 128 elements, %.4g bits an "
                         "element\n",
                         i ? "values" : "keys", int_of(v, "bytes"), int_of(v, "positions"),
                         int_of(v, "positions") == 1 ? "" : "s",
                         json_real_value(json_object_get(v, "bits")));
    if (bytes)
        (void)printf("  %-12s %lld bytes for 2 ranks, %lld for 8\n", "shares", int_of(bytes, "2"),
                     int_of(bytes, "8"));
    if (json_object_get(a, "device"))
        (void)printf("  %-12s %s, %s%s\n", "device", text_of(a, "device"),
                     tsr_format_bytes(text, sizeof text, (uint64_t)int_of(a, "memory_bytes")),
                     json_is_true(json_object_get(a, "deterministic")) ? ", reproducible" : "");
}

static void print_component(const json_t *p)
{
    size_t        i;
    const json_t *o, *probe = json_object_get(p, "probe");
    bool          quantizer = json_object_get(p, "dtypes") != NULL;
    (void)printf("\n%s %s\n  %s\n", text_of(p, "kind"), text_of(p, "name"), text_of(p, "summary"));
    if (quantizer) {
        print_list("takes", json_object_get(p, "dtypes"), "nothing");
        print_list("promises", json_object_get(p, "promises"), "nothing");
    }
    if (json_object_get(p, "supports"))
        print_list("supports", json_object_get(p, "supports"), "no optional part of a problem");
    if (json_object_get(p, "products")) {
        print_list("needs", json_object_get(p, "needs"), "no model");
        print_list("inputs", json_object_get(p, "inputs"), "no result of an earlier step");
        print_list("products", json_object_get(p, "products"), "nothing");
    }
    if (json_array_size(json_object_get(p, "states")))
        print_list("states", json_object_get(p, "states"), "");
    if (json_array_size(json_object_get(p, "functions")))
        print_list("also has", json_object_get(p, "functions"), "");
    if (probe)
        print_probe(probe);
    else if (quantizer)
        (void)printf("  %-12s not stated in the file; --probe asks the plugin\n", "needs");
    (void)printf("  options%s\n",
                 json_array_size(json_object_get(p, "options")) ? "" : "      none");
    json_array_foreach (json_object_get(p, "options"), i, o)
        print_option(o);
}

/* Components of one file follow each other. */
static void print_components(const json_t *all)
{
    size_t        i;
    const json_t *p;
    const char   *file = "";
    json_array_foreach (all, i, p) {
        if (strcmp(text_of(p, "path"), file) != 0) {
            (void)printf("%s", i ? "\n" : "");
            print_plugin(p);
        }
        file = text_of(p, "path");
        print_component(p);
    }
}

/* What its folder or file holds: tokenizer, chat templates, weights. */
static void print_held(const json_t *m)
{
    size_t        i;
    const json_t *t;
    const json_t *tok = json_object_get(m, "tokenizer");
    if (json_is_null(tok))
        (void)printf("  no tokenizer.json\n");
    else if (json_object_get(tok, "error"))
        (void)printf("  tokenizer: %s\n", text_of(tok, "error"));
    else
        (void)printf("  tokenizer of %lld ids\n", int_of(tok, "size"));
    if (json_array_size(json_object_get(m, "chat_templates")))
        (void)printf("  chat templates:");
    json_array_foreach (json_object_get(m, "chat_templates"), i, t)
        (void)printf("%s %s", i ? "," : "", json_string_value(t));
    if (json_array_size(json_object_get(m, "chat_templates")))
        (void)printf("\n");
    const json_t *run;
    const char   *site;
    json_object_foreach ((json_t *)(uintptr_t)json_object_get(m, "online"), site, run)
        if (json_integer_value(run))
            (void)printf("  Hadamard transforms of %s at run time, runs of %lld columns\n", site,
                         (long long)json_integer_value(run));
    if (*text_of(m, "packed"))
        (void)printf("  packed, %s\n", text_of(m, "packed"));
    const json_t *p = json_object_get(m, "prepacked");
    if (p)
        (void)printf("  prepacked as %s revision %lld%s%s, from %s%s\n", text_of(p, "layout"),
                     (long long)json_integer_value(json_object_get(p, "revision")),
                     *text_of(p, "target") ? " for " : "", text_of(p, "target"),
                     text_of(p, "source"),
                     json_is_true(json_object_get(p, "verified")) ? "; every byte as written" : "");
    (void)printf("  %s\ntensors (the first layer's):\n", text_of(m, "hash"));
    json_array_foreach (json_object_get(m, "tensors"), i, t) {
        const json_t *shape = json_object_get(t, "shape");
        (void)printf("  %-12s %-5s %lld x %lld%s%s\n", text_of(t, "name"), text_of(t, "dtype"),
                     (long long)json_integer_value(json_array_get(shape, 0)),
                     (long long)json_integer_value(json_array_get(shape, 1)),
                     *text_of(t, "format") ? " packed as " : "", text_of(t, "format"));
    }
}

/* Inputs of a model with residuals, and what a device does with them. */
static void print_compensation(const json_t *c)
{
    size_t        i;
    const json_t *s;
    if (!c)
        return;
    (void)printf("  error compensation by residuals of %lld bits%s%s:\n", int_of(c, "bits"),
                 *text_of(c, "device") ? ", on " : "", text_of(c, "device"));
    json_array_foreach (json_object_get(c, "sites"), i, s) {
        const json_t *used = json_object_get(s, "used");
        (void)printf("    layers %lld to %lld, %-12s %s%s\n", int_of(s, "first"), int_of(s, "last"),
                     text_of(s, "site"),
                     json_is_null(used)   ? ""
                     : json_is_true(used) ? "used: "
                                          : "skipped: ",
                     text_of(s, "why"));
    }
}

static void print_model(const json_t *m)
{
    char bytes[TSR_BYTES_TEXT];
    bool alone = json_is_true(json_object_get(m, "config_alone"));
    if (alone)
        (void)printf("%s  %s, %lld layers, a configuration without weights\n", text_of(m, "path"),
                     text_of(m, "family"), int_of(m, "layers"));
    else
        (void)printf("%s  %s, %lld layers, %lld parameters, %s\n", text_of(m, "path"),
                     text_of(m, "family"), int_of(m, "layers"), int_of(m, "parameters"),
                     tsr_format_bytes(bytes, sizeof bytes, (uint64_t)int_of(m, "bytes")));
    (void)
        printf("  hidden %lld, feed-forward %lld, heads %lld (%lld for keys and values) of %lld\n",
               int_of(m, "hidden"), int_of(m, "ffn"), int_of(m, "heads"), int_of(m, "kv_heads"),
               int_of(m, "head_dim"));
    const json_t *latent = json_object_get(m, "latent"), *e = json_object_get(m, "experts");
    if (latent) {
        char queries[48] = "whole";
        if (int_of(latent, "q_rank"))
            (void)snprintf(queries, sizeof queries, "of rank %lld", int_of(latent, "q_rank"));
        (void)
            printf("  latent attention: keys and values of rank %lld, queries %s; a head has %lld "
                   "columns and %lld that rotate, a value %lld\n",
                   int_of(latent, "rank"), queries, int_of(latent, "nope"), int_of(latent, "rope"),
                   int_of(latent, "v"));
    }
    if (e)
        (void)printf("  %lld experts of %lld in %lld of %lld layers, %lld for each token\n",
                     int_of(e, "count"), int_of(e, "ffn"), int_of(e, "layers"), int_of(m, "layers"),
                     int_of(e, "used"));
    if (e && int_of(e, "shared"))
        (void)printf("  and one of %lld that every token takes\n", int_of(e, "shared"));
    (void)printf("  vocabulary %lld, trained for %lld positions%s\n", int_of(m, "vocab"),
                 int_of(m, "max_positions"),
                 json_is_true(json_object_get(m, "tied")) ? ", head tied to the embedding" : "");
    if (!alone)
        print_held(m);
    print_compensation(json_object_get(m, "compensation"));
    tsr_inspect_print_model_family(m);
}

void tsr_inspect_print(const json_t *j)
{
    const char   *gap = "";
    const json_t *v;
    if ((v = json_object_get(j, "plugins"))) {
        print_plugins(v, json_object_get(j, "refused"), json_object_get(j, "absent"));
        gap = "\n";
    }
    if ((v = json_object_get(j, "formats"))) {
        (void)printf("%s", gap);
        print_formats(v);
    }
    if ((v = json_object_get(j, "models"))) {
        (void)printf("%s", gap);
        print_models(v);
        print_checkpoints(json_object_get(j, "checkpoints"));
    }
    if ((v = json_object_get(j, "devices"))) {
        (void)printf("%s", gap);
        print_devices(v);
    }
    if ((v = json_object_get(j, "plan")))
        tsr_inspect_print_plan(v);
    if ((v = json_object_get(j, "device")))
        tsr_inspect_print_profile(v);
    print_components(json_object_get(j, "components"));
    if ((v = json_object_get(j, "model")))
        print_model(v);
    if (json_is_object(v = json_object_get(j, "family"))) /* a model's is its name */
        tsr_inspect_print_family(v);
}
