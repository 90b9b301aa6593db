/* tessera inspect: plugins, formats, model families, devices, and one of them in detail. */
#include "cli/cli.h"
#include "cli/inspect.h"

#include "base/file.h"
#include "base/mem.h"
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
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

static void print_plugins(const json_t *plugins, const json_t *refused)
{
    static const char *const keys[] = { "kind", "name", "version", "abi", "license", "path" };
    static const char *const heads[] = { "kind", "name", "version", "abi", "license", "path" };
    size_t                   i;
    const json_t            *row;
    print_table(plugins, keys, heads, 6);
    json_array_foreach (refused, i, row)
        (void)printf("refused: %s\n", text_of(row, "why"));
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

static void print_option(const json_t *o)
{
    size_t        i;
    const json_t *c;
    (void)printf("  %-12s %s%s\n", text_of(o, "name"), text_of(o, "text"),
                 json_is_true(json_object_get(o, "advanced")) ? " (advanced)" : "");
    (void)printf("  %-12s %s\n", "", text_of(o, "help"));
    if (*text_of(o, "replaced_by"))
        (void)printf("  %-12s deprecated: %s\n", "", text_of(o, "replaced_by"));
    json_array_foreach (json_object_get(o, "choices"), i, c)
        (void)printf("  %-12s   %-8s %s\n", "", text_of(c, "name"), text_of(c, "help"));
}

static void print_component(const json_t *p)
{
    size_t        i;
    const json_t *o;
    (void)printf("%s  %s  %s %s\n", text_of(p, "name"), text_of(p, "summary"), text_of(p, "id"),
                 text_of(p, "version"));
    (void)printf("  kind %s, ABI %s, %s, built with %s\n", text_of(p, "kind"), text_of(p, "abi"),
                 text_of(p, "license"), text_of(p, "build"));
    (void)printf("  %s\n  %s\n", text_of(p, "path"), text_of(p, "hash"));
    if (json_array_size(json_object_get(p, "options")))
        (void)printf("options:\n");
    json_array_foreach (json_object_get(p, "options"), i, o)
        print_option(o);
}

static void print_model(const json_t *m)
{
    size_t        i;
    const json_t *t;
    char          bytes[TSR_BYTES_TEXT];
    (void)printf("%s  %s, %lld layers, %lld parameters, %s\n", text_of(m, "path"),
                 text_of(m, "family"), int_of(m, "layers"), int_of(m, "parameters"),
                 tsr_format_bytes(bytes, sizeof bytes, (uint64_t)int_of(m, "bytes")));
    (void)
        printf("  hidden %lld, feed-forward %lld, heads %lld (%lld for keys and values) of %lld\n",
               int_of(m, "hidden"), int_of(m, "ffn"), int_of(m, "heads"), int_of(m, "kv_heads"),
               int_of(m, "head_dim"));
    (void)printf("  vocabulary %lld, at most %lld positions%s\n", int_of(m, "vocab"),
                 int_of(m, "max_positions"),
                 json_is_true(json_object_get(m, "tied")) ? ", head tied to the embedding" : "");
    const json_t *tok = json_object_get(m, "tokenizer");
    if (json_is_null(tok))
        (void)printf("  no tokenizer.json\n");
    else if (json_object_get(tok, "error"))
        (void)printf("  tokenizer: %s\n", text_of(tok, "error"));
    else
        (void)printf("  tokenizer of %lld ids\n", int_of(tok, "size"));
    if (*text_of(m, "packed"))
        (void)printf("  packed, %s\n", text_of(m, "packed"));
    (void)printf("  %s\ntensors (the first layer's):\n", text_of(m, "hash"));
    json_array_foreach (json_object_get(m, "tensors"), i, t) {
        const json_t *shape = json_object_get(t, "shape");
        (void)printf("  %-12s %-5s %lld x %lld%s%s\n", text_of(t, "name"), text_of(t, "dtype"),
                     (long long)json_integer_value(json_array_get(shape, 0)),
                     (long long)json_integer_value(json_array_get(shape, 1)),
                     *text_of(t, "format") ? " packed as " : "", text_of(t, "format"));
    }
}

/* ---- what is asked for -------------------------------------------------------- */

enum { PLUGINS = 1, FORMATS = 2, MODELS = 4, DEVICES = 8, EVERYTHING = 15 };

/* Takes v over. */
static tsr_status put(json_t *o, const char *key, tsr_status st, json_t *v, struct tsr_err *err)
{
    if (st != TSR_OK)
        json_decref(v);
    else if (json_object_set_new(o, key, v) != 0)
        st = tsr_fail_nomem(err, 0, key);
    return st;
}

static tsr_status list(struct tsr_cli *c, unsigned what, json_t *to, struct tsr_err *err)
{
    struct tsr_registry *r = NULL;
    json_t              *v = NULL;
    tsr_status           st;
    if (what & (PLUGINS | DEVICES)) {
        TSR_TRY(tsr_cli_registry(c, &r, err));
        TSR_TRY(tsr_registry_scan(r, err));
    }
    if (what & PLUGINS) {
        st = tsr_inspect_plugins(r, &v, err);
        TSR_TRY(put(to, "plugins", st, v, err));
        st = tsr_inspect_refused(r, &v, err);
        TSR_TRY(put(to, "refused", st, v, err));
    }
    if (what & FORMATS) {
        st = tsr_inspect_formats(&v, err);
        TSR_TRY(put(to, "formats", st, v, err));
    }
    if (what & MODELS) {
        st = tsr_inspect_models(&v, err);
        TSR_TRY(put(to, "models", st, v, err));
    }
    if (what & DEVICES) {
        st = tsr_inspect_devices(r, &v, err);
        TSR_TRY(put(to, "devices", st, v, err));
    }
    return TSR_OK;
}

/* Whether a component answers to X: its name, kind:name, id/name, its plugin's id, or, if real is
 * set, its file. */
static bool answers(const struct tsr_found *f, const char *x, const char *real)
{
    const char *name = f->component->name, *id = f->info->plugin->id, *kind = f->component->kind;
    if (real)
        return strcmp(real, f->info->path) == 0;
    if (strcmp(x, name) == 0 || strcmp(x, id) == 0)
        return true;
    const char *slash = strrchr(x, '/'), *colon = strchr(x, ':');
    if (slash && strcmp(slash + 1, name) == 0 && strlen(id) == (size_t)(slash - x) &&
        memcmp(id, x, strlen(id)) == 0)
        return true;
    const char *dot = strrchr(kind, '.'), *word = dot ? dot + 1 : kind;
    return colon && strcmp(colon + 1, name) == 0 && strcspn(word, "/") == (size_t)(colon - x) &&
           memcmp(word, x, (size_t)(colon - x)) == 0;
}

static tsr_status not_known(struct tsr_registry *r, const char *x, struct tsr_err *err)
{
    static const char *const words[] = { "plugins", "formats", "models", "devices" };
    const char              *names[256];
    uint64_t                 n = 0;
    struct tsr_found         f;
    for (size_t i = 0; i < 4; i++)
        names[n++] = words[i];
    for (uint64_t i = 0; n < 256 && tsr_registry_component(r, i, &f); i++)
        names[n++] = f.component->name;
    const char *near = tsr_nearest(x, names, n);
    return tsr_fail(
        err, TSR_E_INPUT,
        "%s: is no plugin, plugin file or model folder%s%s%s; `tessera inspect` lists what there "
        "is",
        x, near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* "components": all that answer to x. */
static tsr_status plugin(struct tsr_cli *c, const char *x, bool file, json_t *to,
                         struct tsr_err *err)
{
    struct tsr_registry *r = NULL;
    struct tsr_found     f;
    json_t              *all = json_array();
    char                *real = file ? realpath(x, NULL) : NULL;
    tsr_status           st = TSR_OK;
    if (!all || (file && !real && errno == ENOMEM))
        st = tsr_fail_nomem(err, 0, x);
    if (st == TSR_OK)
        st = tsr_cli_registry(c, &r, err);
    if (st == TSR_OK && file)
        st = tsr_registry_add_path(r, x, err);
    if (st == TSR_OK)
        st = tsr_registry_scan(r, err);
    for (uint64_t i = 0; st == TSR_OK && tsr_registry_component(r, i, &f); i++) {
        json_t *one = NULL;
        if (!answers(&f, x, real))
            continue;
        st = tsr_inspect_component(&f, &one, err);
        if (st != TSR_OK)
            json_decref(one);
        else if (json_array_append_new(all, one) != 0)
            st = tsr_fail_nomem(err, 0, x);
    }
    free(real);
    if (st == TSR_OK && json_array_size(all) == 0)
        st = file
                 ? tsr_fail(
                       err, TSR_E_INPUT,
                       "%s: holds nothing that this host knows, or only what another file with the "
                       "same bytes holds too",
                       x)
                 : not_known(r, x, err);
    return put(to, "components", st, all, err);
}

static unsigned word_of(const char *x)
{
    return strcmp(x, "plugins") == 0   ? PLUGINS
           : strcmp(x, "formats") == 0 ? FORMATS
           : strcmp(x, "models") == 0  ? MODELS
           : strcmp(x, "devices") == 0 ? DEVICES
                                       : 0;
}

/* Whether a bare word is what a plugin is called, also where a folder has that name. */
static tsr_status names_plugin(struct tsr_cli *c, const char *x, bool *yes, struct tsr_err *err)
{
    struct tsr_registry *r = NULL;
    struct tsr_found     f;
    *yes = false;
    if (x[0] == '@' || strchr(x, '/'))
        return TSR_OK;
    TSR_TRY(tsr_cli_registry(c, &r, err));
    TSR_TRY(tsr_registry_scan(r, err));
    for (uint64_t i = 0; !*yes && tsr_registry_component(r, i, &f); i++)
        *yes = answers(&f, x, NULL);
    return TSR_OK;
}

static tsr_status collect(struct tsr_cli *c, const char *x, json_t *to, struct tsr_err *err)
{
    bool plugin_name;
    if (!x)
        return list(c, EVERYTHING, to, err);
    if (word_of(x))
        return list(c, word_of(x), to, err);
    TSR_TRY(names_plugin(c, x, &plugin_name, err));
    if (plugin_name)
        return plugin(c, x, false, to, err);
    size_t n = strlen(x);
    if (x[0] == '@' || tsr_path_is_dir(x)) {
        json_t    *m = NULL;
        tsr_status st = tsr_inspect_model(x, &m, err);
        return put(to, "model", st, m, err);
    }
    return plugin(c, x, tsr_path_exists(x) || (n > 3 && strcmp(x + n - 3, ".so") == 0), to, err);
}

static void print_text(const json_t *j)
{
    const char   *gap = "";
    const json_t *v;
    size_t        i;
    if ((v = json_object_get(j, "plugins"))) {
        print_plugins(v, json_object_get(j, "refused"));
        gap = "\n";
    }
    if ((v = json_object_get(j, "formats"))) {
        (void)printf("%s", gap);
        print_formats(v);
    }
    if ((v = json_object_get(j, "models"))) {
        (void)printf("%s", gap);
        print_models(v);
    }
    if ((v = json_object_get(j, "devices"))) {
        (void)printf("%s", gap);
        print_devices(v);
    }
    json_array_foreach (json_object_get(j, "components"), i, v) {
        (void)printf("%s", i ? "\n" : "");
        print_component(v);
    }
    if ((v = json_object_get(j, "model")))
        print_model(v);
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    (void)opts;
    json_t *j = json_pack("{s:s}", "format", "tessera.inspect/1");
    if (!j)
        return tsr_fail_nomem(err, 0, "the answer");
    tsr_status st = collect(c, n_args ? args[0] : NULL, j, err);
    if (st == TSR_OK && c->json)
        return tsr_cli_print_json(j, err);
    if (st == TSR_OK)
        print_text(j);
    json_decref(j);
    return st;
}

const struct tsr_verb tsr_verb_inspect;
const struct tsr_verb tsr_verb_inspect = {
    .name = "inspect",
    .summary = "lists plugins, formats, model families and devices, or shows one in detail",
    .args = "[plugins|formats|models|devices|PLUGIN|FILE.so|MODEL]",
    .min_args = 0,
    .max_args = 1,
    .details = "Without an argument lists everything, with the files that were refused and why. A "
               "plugin is "
               "named by its name, by kind:name (quantizer:rtn), by id/name, or by its file; a "
               "model by its "
               "folder (write ./rtn for a folder with the name of a plugin). No weight is read and "
               "no function of a "
               "plugin is called, except that a device is asked what it is.",
    .run = run,
};
