/* tessera plugin: tools for plugin authors. */
#include "cli/cli.h"

#include "base/json.h"
#include "cli/plugin/check.h"
#include "cli/plugin/installed.h"
#include "cli/plugin/new.h"
#include "pipeline/step.h"

#include <string.h>

/* check comes first, so that its options have the offsets of their table. */
struct plugin_options {
    struct tsr_plugin_check check;
    const char             *dir, *id, *license, *table;
    int32_t                 cxx, rules;
};

static const struct tsr_option options[] = {
#define S struct plugin_options
    TSR_OPTION_BOOL(S, cxx, 0, "new: in C++, with the descriptor in C"),
    TSR_OPTION_PATH(S, dir, "", "FOLDER", "new: folder to write; NAME unless given"),
    TSR_OPTION_STRING(S, id, "", "new: reverse DNS; org.example.NAME unless given"),
    TSR_OPTION_STRING(S, license, "MIT", "new: SPDX expression"),
    TSR_OPTION_STRING(
        S, table, "",
        "new: with an optional table: stream of a codec; kernel, device, block, tune or report of "
        "a quantizer"),
    TSR_OPTION_BOOL(S, rules, 1, "install: without the rules of plugin check"),
#undef S
#define S struct tsr_plugin_check
    TSR_OPTION_STRING(S, only, "", "check: run the rules of this name; * and ? stand for others"),
    TSR_OPTION_STRING(S, skip, "", "check: leave out the rules of this name; * and ? as in only"),
    TSR_OPTION_STRING(S, component, "", "check: one component of the file"),
    TSR_OPTION_PATH(S, report, "", "FILE", "check: write every verdict to FILE.json or FILE.html"),
    TSR_OPTION_PATH(S, on, "", "FILE",
                    "check: a backend's plugin, on whose device the rules device-* run"),
    TSR_OPTION_INT(S, seed, 0, 0, INT64_MAX, NULL,
                   "check: of the weights and shapes that are made up"),
    TSR_OPTION_INT(S, limit, 0, 0, 86400, "s", "check: time of one rule; 0: each has its own"),
    TSR_OPTION_BOOL(S, in_process, 0, "check: run the one rule in this process, for a debugger"),
    TSR_OPTION_BOOL(S, model, 1, "check: do not measure a quantizer on the bundled model"),
    TSR_OPTION_BOOL(S, list, 0, "check: print the rules and what they want"),
#undef S
};

/* ---- new ------------------------------------------------------------------------- */

static tsr_status print_new(struct tsr_cli *c, const struct tsr_cli_new_files *f, const char *kind,
                            const char *name, struct tsr_err *err)
{
    bool yaml = strcmp(kind, "family") == 0 || strcmp(kind, "task") == 0;
    if (c->json) {
        json_t *j = json_object(), *list = json_array();
        bool    ok = tsr_pipeline_json_put_text(j, "folder", f->folder);
        for (size_t i = 0; i < f->n; i++)
            ok = json_array_append_new(list, json_string(f->names[i])) == 0 && ok;
        ok = tsr_pipeline_json_put(j, "files", list) && ok;
        if (!ok) {
            json_decref(j);
            j = NULL;
        }
        return tsr_cli_print_json(j, err);
    }
    for (size_t i = 0; i < f->n; i++)
        (void)printf("%s/%s\n", f->folder, f->names[i]);
    if (!c->quiet && yaml)
        (void)fprintf(stderr, "next: cd %s && tessera plugin check %s.yaml\n", f->folder, name);
    else if (!c->quiet)
        (void)fprintf(stderr, "next: cd %s && make check\n", f->folder);
    return tsr_cli_flush(err);
}

static tsr_status run_new(struct tsr_cli *c, const struct plugin_options *o, char **args,
                          int n_args, struct tsr_err *err)
{
    struct tsr_cli_new_files made;
    if (n_args != 2)
        return tsr_fail(err, TSR_E_INPUT,
                        "plugin new needs a kind (quantizer, codec, transport, solver, backend, "
                        "sampler, step, kv, family or task) and a name");
    struct tsr_cli_new_plugin p = { .kind = args[0],
                                    .name = args[1],
                                    .folder = o->dir,
                                    .id = o->id,
                                    .license = o->license,
                                    .table = o->table,
                                    .cxx = o->cxx != 0 };
    tsr_status                st = tsr_plugin_new(&p, &made, err);
    if (st == TSR_OK)
        st = print_new(c, &made, args[0], args[1], err);
    tsr_cli_new_files_free(&made);
    return st;
}

/* The one argument of a word, or NULL where there is none or more. */
static const char *only_one(char **args, int n_args)
{
    return n_args == 2 ? args[1] : NULL;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    static const char *const     what[] = { "new", "check", "install", "list", "remove" };
    const struct plugin_options *o = opts;
    const char                  *one = only_one(args, n_args);
    if (strcmp(args[0], "new") == 0)
        return run_new(c, o, args + 1, n_args - 1, err);
    if (strcmp(args[0], "check") == 0)
        return tsr_cli_plugin_check(c, &o->check, args + 1, n_args - 1, err);
    if (strcmp(args[0], "install") == 0)
        return one ? tsr_cli_plugin_install(c, one, o->rules != 0, err)
                   : tsr_fail(err, TSR_E_INPUT,
                              "plugin install needs one FILE.so or FILE.yaml, or one FOLDER that "
                              "holds some");
    if (strcmp(args[0], "list") == 0)
        return n_args == 1 ? tsr_cli_plugin_list(c, err)
                           : tsr_fail(err, TSR_E_INPUT, "plugin list takes no name");
    if (strcmp(args[0], "remove") == 0)
        return one ? tsr_cli_plugin_remove(c, one, err)
                   : tsr_fail(err, TSR_E_INPUT,
                              "plugin remove needs one NAME: an id, a file or a component");
    const char *near = tsr_config_nearest(args[0], what, sizeof what / sizeof *what);
    return tsr_fail(err, TSR_E_INPUT,
                    "plugin does new, check, install, list and remove, not '%s'%s%s%s", args[0],
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

const struct tsr_verb tsr_verb_plugin = {
    .name = "plugin",
    .summary = "creates, checks, installs, lists and removes plugins",
    .args = "new quantizer|codec|transport|solver|backend|sampler|step|kv|family|task NAME | "
            "check FILE.so|FILE.yaml | install FILE.so|FILE.yaml|FOLDER | list | remove NAME",
    .min_args = 1,
    .max_args = -1,
    .details =
        "new    writes a folder with a small working plugin of that kind, a Makefile and a "
        "meson.build. It builds against the installed headers. A family or a task is a YAML file, "
        "with a golden and the script that computes it.\n"
        "check  runs every rule of docs/abi.md that applies, each in a separate process. For "
        "each rule it says whether the plugin passes. --set KEY=VALUE sets the plugin's "
        "options. FILE.yaml is a family or a task; NAME.golden.json next to it has what another "
        "program computes.\n"
        "install  copies a plugin, a family or a task, or all of a folder, to the plugins of the "
        "user. Jobs "
        "find it there by its name. It must keep the rules of check; --no-rules leaves them out. "
        "An "
        "older version is replaced.\n"
        "list   prints every plugin that jobs find, with version, licence and components, and the "
        "user's "
        "families and tasks. "
        "`installed`: its file is the one that was installed; `changed`: it is not; `found`: it "
        "is in another folder.\n"
        "remove  deletes an installed plugin by its id, its file's name or a component's.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct plugin_options),
    .run = run,
    .jobs = true,
};
