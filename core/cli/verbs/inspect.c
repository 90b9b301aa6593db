/* tessera inspect: plugins, formats, model families, devices, and one of them in detail. */
#include "cli/inspect/inspect.h"
#include "cli/cli.h"
#include "cli/inspect/apart.h"
#include "cli/inspect/probe.h"
#include "cli/inspect/target.h"

#include "base/log.h"
#include "checkpoint/contents.h"
#include "model/model.h"
#include "plugin/semver.h"

#include <stdlib.h>
#include <string.h>

/* ---- queries ------------------------------------------------------------------- */

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
        TSR_TRY(tsr_plugin_registry_scan(r, err));
    }
    if (what & PLUGINS) {
        st = tsr_inspect_plugins(r, &v, err);
        TSR_TRY(put(to, "plugins", st, v, err));
        st = tsr_inspect_refused(r, &v, err);
        TSR_TRY(put(to, "refused", st, v, err));
        st = tsr_inspect_absent(r, &v, err);
        TSR_TRY(put(to, "absent", st, v, err));
    }
    if (what & FORMATS) {
        st = tsr_inspect_formats(&v, err);
        TSR_TRY(put(to, "formats", st, v, err));
    }
    if (what & MODELS) {
        st = tsr_inspect_models(&v, err);
        TSR_TRY(put(to, "models", st, v, err));
        st = tsr_inspect_checkpoints(&v, err);
        TSR_TRY(put(to, "checkpoints", st, v, err));
    }
    if (what & DEVICES) {
        st = tsr_inspect_devices(r, &v, err);
        TSR_TRY(put(to, "devices", st, v, err));
    }
    return TSR_OK;
}

static unsigned word_of(const char *x)
{
    return strcmp(x, "plugins") == 0   ? PLUGINS
           : strcmp(x, "formats") == 0 ? FORMATS
           : strcmp(x, "models") == 0  ? MODELS
           : strcmp(x, "devices") == 0 ? DEVICES
                                       : 0;
}

/* For a child process: tsr_inspect_nth. */
static tsr_status nth(struct tsr_cli *c, const char *x, uint64_t i, struct tsr_plugin_found *f,
                      bool *have, struct tsr_err *err)
{
    struct tsr_inspect_target t;
    tsr_status                st = tsr_inspect_target_open(c, x, &t, err);
    *have = st == TSR_OK && !t.model && tsr_inspect_target_nth(&t, x, i, f);
    tsr_inspect_target_close(&t);
    return st;
}

/* Queries the code of each, in order: before this process has a registry. */
static tsr_status probe(struct tsr_cli *c, const char *x, json_t *to, struct tsr_err *err)
{
    for (uint64_t i = 0;; i++) {
        json_t *one = NULL;
        TSR_TRY(tsr_inspect_probe(c, nth, x, i, &one, err));
        if (!one)
            return TSR_OK;
        if (json_array_append_new(to, one) != 0)
            return tsr_fail_nomem(err, 0, x);
    }
}

/* "components": all that match x, with the results of their probes (probes may be NULL). */
static tsr_status components(const struct tsr_inspect_target *t, const char *x,
                             const json_t *probes, json_t *to, struct tsr_err *err)
{
    struct tsr_plugin_found f;
    json_t                 *all = json_array();
    tsr_status              st = all ? TSR_OK : tsr_fail_nomem(err, 0, x);
    for (uint64_t i = 0; st == TSR_OK && tsr_inspect_target_nth(t, x, i, &f); i++) {
        json_t *one = NULL, *said = json_array_get(probes, i);
        st = tsr_inspect_component(&f, &one, err);
        if (st == TSR_OK && said && json_object_set(one, "probe", said) != 0)
            st = tsr_fail_nomem(err, 0, x);
        if (st != TSR_OK)
            json_decref(one);
        else if (json_array_append_new(all, one) != 0)
            st = tsr_fail_nomem(err, 0, x);
    }
    if (st == TSR_OK && json_array_size(all) == 0)
        st = t->real
                 ? tsr_fail(
                       err, TSR_E_INPUT,
                       "%s: holds nothing that this host knows, or only what another file with the "
                       "same bytes holds too",
                       x)
                 : tsr_inspect_not_known(t->r, x, err);
    return put(to, "components", st, all, err);
}

/* What scripts ask of a model, on top as well: its sizes and its family. */
static tsr_status on_top(json_t *to, struct tsr_err *err)
{
    static const struct {
        const char *key, *of;
    } keys[] = { { "family", "family" },
                 { "family_file", "family_file" },
                 { "stored_bytes", "stored_bytes" },
                 { "resident_bytes", "resident_bytes" } };
    const json_t *m = json_object_get(to, "model");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(m, keys[i].of);
        if (v)
            TSR_TRY(put(to, keys[i].key, TSR_OK, json_incref(v), err));
    }
    return TSR_OK;
}

static tsr_status one(struct tsr_cli *c, const char *x, const json_t *probes, bool verify,
                      const char *profile, json_t *to, struct tsr_err *err)
{
    struct tsr_inspect_target t;
    struct tsr_plugin_found   f;
    json_t                   *m = NULL;
    tsr_status                st = tsr_inspect_target_open(c, x, &t, err);
    if (st == TSR_OK && t.model) {
        char *in_it = tsr_checkpoint_contents_only_model(x);
        st = tsr_inspect_model(in_it ? in_it : x, verify, profile, &m, err);
        free(in_it);
        st = put(to, "model", st, m, err);
        if (st == TSR_OK)
            st = on_top(to, err);
    } else if (st == TSR_OK && (verify || *profile)) {
        st = tsr_inspect_target_nth(&t, x, 0, &f)
                 ? tsr_fail(err, TSR_E_INPUT,
                            verify ? "%s: is a plugin; --verify reads a prepacked file"
                                   : "%s: is a plugin; --profile is for a packed model",
                            x)
                 : tsr_inspect_not_known(t.r, x, err);
    } else if (st == TSR_OK) {
        st = components(&t, x, probes, to, err);
    }
    tsr_inspect_target_close(&t);
    return st;
}

/* Of a file that may be damaged: in the child process that loads it. */
static tsr_status collect_here(struct tsr_cli *c, const char *x, bool ask, bool verify,
                               const char *profile, json_t *to, struct tsr_err *err)
{
    unsigned what = x ? word_of(x) : EVERYTHING;
    if (what && *profile)
        return tsr_fail(err, TSR_E_INPUT, "--profile is for one packed model; name it");
    if (what && ask)
        return tsr_fail(err, TSR_E_INPUT, "--probe asks one plugin; name it");
    if (what && verify)
        return tsr_fail(err, TSR_E_INPUT, "--verify reads one prepacked file; name it");
    if (what)
        return list(c, what, to, err);
    json_t    *probes = ask ? json_array() : NULL;
    tsr_status st = ask && !probes ? tsr_fail_nomem(err, 0, x) : TSR_OK;
    if (st == TSR_OK && ask)
        st = probe(c, x, probes, err);
    if (st == TSR_OK)
        st = one(c, x, probes, verify, profile, to, err);
    if (st == TSR_OK && ask && json_object_get(to, "model"))
        st = tsr_fail(err, TSR_E_INPUT, "%s: is a model; --probe asks a plugin", x);
    json_decref(probes);
    return st;
}

/* As tsr_inspect_apart() calls it. */
static tsr_status collect_plugin(struct tsr_cli *c, const char *x, bool ask, bool verify,
                                 json_t *to, struct tsr_err *err)
{
    return collect_here(c, x, ask, verify, "", to, err);
}

static tsr_status collect(struct tsr_cli *c, const char *x, bool ask, bool verify,
                          const char *profile, json_t *to, struct tsr_err *err)
{
    bool        file = x && tsr_inspect_is_plugin_file(x);
    const char *key = NULL;
    json_t     *v = NULL;
    if (x && tsr_inspect_is_written(x)) {
        if (ask || verify || *profile)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: is a YAML file; --probe asks a plugin, --verify and --profile are "
                            "for a model",
                            x);
        tsr_status st = tsr_inspect_written(x, &key, &v, err);
        return put(to, key, st, v, err);
    }
    if (file && *profile)
        return tsr_fail(err, TSR_E_INPUT, "%s: is a plugin; --profile is for a packed model", x);
    return file ? tsr_inspect_apart(c, collect_plugin, x, ask, verify, to, err)
                : collect_here(c, x, ask, verify, profile, to, err);
}

/* ---- yes or no ---------------------------------------------------------------- */

/* Whether a found component has that version; why gets the available versions instead. */
static tsr_status recent(const json_t *found, const char *version, bool *yes, struct tsr_err *why,
                         struct tsr_err *err)
{
    size_t        i;
    const json_t *p, *all = json_object_get(found, "components");
    *yes = false;
    if (!all)
        return tsr_fail(err, TSR_E_INPUT, "--atleast-version compares plugins; name one");
    json_array_foreach (all, i, p) {
        const char *v = json_string_value(json_object_get(p, "version"));
        if (!tsr_plugin_semver_valid(v))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: its version '%s' is not of the form 1.2.3 and compares with none",
                            json_string_value(json_object_get(p, "path")), v);
        *yes = *yes || tsr_plugin_semver_compare(v, version) >= 0;
        (void)tsr_fail(why, 0, "%s is of version %s", json_string_value(json_object_get(p, "path")),
                       v);
    }
    return TSR_OK;
}

/* --exists and --atleast-version: the exit code is the answer. */
static tsr_status answer(struct tsr_cli *c, const char *x, const char *version, json_t *j,
                         struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    bool              yes = true;
    tsr_status        st = collect(c, x, false, false, "", j, &why.err);
    if (st != TSR_OK && st != TSR_E_INPUT)
        return tsr_err_copy(err, st, &why.err);
    if (st == TSR_E_INPUT)
        yes = false;
    else if (*version)
        TSR_TRY(recent(j, version, &yes, &why.err, err));
    c->no = !yes;
    if (c->json)
        return tsr_cli_print_json(json_pack("{s:s, s:s, s:b, s:s*}", "format", "tessera.inspect/1",
                                            "name", x, "exists", yes, "reason",
                                            yes ? NULL : why.text),
                                  err);
    if (!yes)
        tsr_logf(TSR_LOG_INFO, "%s", why.text);
    return TSR_OK;
}

/* ---- the verb ------------------------------------------------------------------- */

struct inspect_options {
    int32_t     exists, probe, verify;
    const char *atleast_version, *profile;
};

static const struct tsr_option options[] = {
    TSR_OPTION_BOOL(
        struct inspect_options, probe, 0,
        "make an instance of the plugin with default options in a child process and ask "
        "it what it needs"),
    TSR_OPTION_BOOL(struct inspect_options, verify, 0,
                    "read a prepacked file whole and compare every part with its hash"),
    TSR_OPTION_BOOL(struct inspect_options, exists, 0,
                    "print nothing; exit code 0 if it exists, 1 if not"),
    TSR_OPTION_STRING(struct inspect_options, atleast_version, "",
                      "the same for a plugin of this version or a newer one, such as 1.2"),
    TSR_OPTION_PATH(
        struct inspect_options, profile, "", "FILE",
        "a device profile (tessera.device/1): for each input of a model with residuals, "
        "whether that device compensates it"),
};

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct inspect_options *o = opts;
    const char                   *x = n_args ? args[0] : NULL;
    bool                          ask = o->exists || *o->atleast_version;
    if (ask && !x)
        return tsr_fail(err, TSR_E_INPUT, "--exists and --atleast-version ask about one name");
    if (*o->atleast_version && !tsr_plugin_semver_valid_short(o->atleast_version))
        return tsr_fail(err, TSR_E_INPUT,
                        "--atleast-version: '%s' is not a version; 1, 1.2 or 1.2.3 is wanted",
                        o->atleast_version);
    if (ask && o->probe)
        return tsr_fail(err, TSR_E_INPUT, "--probe prints and --exists does not; leave one out");
    json_t *j = json_pack("{s:s}", "format", "tessera.inspect/1");
    if (!j)
        return tsr_fail_nomem(err, 0, "the answer");
    if (n_args == 2) {
        json_t    *f = NULL;
        tsr_status st =
            strcmp(x, "family") == 0 ? tsr_inspect_family(args[1], &f, err)
            : strcmp(x, "device") == 0
                ? tsr_inspect_profile(args[1], &f, err)
                : tsr_fail(err, TSR_E_INPUT, "%s: one name is inspected at a time", args[1]);
        st = put(j, strcmp(x, "device") == 0 ? "device" : "family", st, f, err);
        if (st == TSR_OK && c->json)
            return tsr_cli_print_json(j, err);
        if (st == TSR_OK)
            tsr_inspect_print(j);
        json_decref(j);
        return st;
    }
    tsr_status st = ask ? answer(c, x, o->atleast_version, j, err)
                        : collect(c, x, o->probe != 0, o->verify != 0, o->profile, j, err);
    if (st == TSR_OK && !ask && c->json)
        return tsr_cli_print_json(j, err);
    if (st == TSR_OK && !ask)
        tsr_inspect_print(j);
    json_decref(j);
    return st;
}

const struct tsr_verb tsr_verb_inspect;
const struct tsr_verb tsr_verb_inspect = {
    .name = "inspect",
    .summary = "lists plugins, formats, model families and devices, or shows one in detail",
    .args =
        "[plugins|formats|models|devices|family NAME|device NAME|PLUGIN|FILE.so|MODEL|FILE.yaml]",
    .min_args = 0,
    .max_args = 2,
    .details =
        "Without an argument, lists everything, and the files that were refused with the "
        "reason. Name a plugin by its name, by kind:name (quantizer:rtn), by id/name, or by "
        "its file. Name a model by its folder (write ./rtn for a folder with the name of a "
        "plugin); config.json alone is a model too. `family NAME` shows what the file of a model "
        "family says, `device NAME` what a device profile says, and FILE.yaml is a plan or a "
        "device profile.\n"
        "\n"
        "A plugin's file is loaded in a child process, so a damaged file does no harm. No "
        "weight is read, except for --verify and to tell an LM head from a copy of the "
        "embedding. No function of a plugin is called, except that a device describes itself. "
        "Which statistics a quantizer needs depends on shape and "
        "options, so only its code knows. --probe runs that code in a child process and also "
        "reports how it ended if it gave no answer.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct inspect_options),
    .run = run,
};
