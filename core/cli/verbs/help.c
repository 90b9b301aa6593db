#include "cli/help.h"

#include "tessera/kv.h"

#include <jansson.h>
#include <string.h>

struct help_options {
    int32_t man, all;
    int64_t completions;
};

static const struct tsr_choice shells[] = {
    { "none", NULL, TSR_CLI_SHELL_NONE },
    { "bash", "source it, or put it into share/bash-completion/completions/tessera",
      TSR_CLI_SHELL_BASH },
    { "zsh", "put it into a folder of $fpath as _tessera", TSR_CLI_SHELL_ZSH },
    { "fish", "put it into share/fish/vendor_completions.d/tessera.fish", TSR_CLI_SHELL_FISH },
};

static const struct tsr_option options[] = {
    TSR_OPTION_BOOL(struct help_options, man, 0, "print the man page instead"),
    TSR_OPTION_BOOL(struct help_options, all, 0, "with rarely used options"),
    TSR_OPTION_ENUM(struct help_options, completions, TSR_CLI_SHELL_NONE, shells,
                    "print what completes command lines in this shell"),
};

/* " kivi int8": KV-cache codecs that there are, which is what other texts of choices name. */
static tsr_status codecs(struct tsr_cli *c, char *buf, size_t cap, struct tsr_err *err)
{
    struct tsr_registry    *r;
    struct tsr_plugin_found f;
    size_t                  at = 0;
    *buf = '\0';
    TSR_TRY(tsr_cli_registry(c, &r, err));
    TSR_TRY(tsr_plugin_registry_scan(r, err));
    for (uint64_t i = 0; tsr_plugin_registry_component(r, i, &f); i++) {
        size_t n = strlen(f.component->name);
        if (strcmp(f.component->kind, TSR_KIND_KV) != 0 || at + n + 2 > cap)
            continue;
        (void)snprintf(buf + at, cap - at, " %s", f.component->name);
        at += n + 1;
    }
    return TSR_OK;
}

static tsr_status print_json(struct tsr_cli *c, struct tsr_err *err)
{
    struct tsr_registry *r;
    json_t              *j;
    TSR_TRY(tsr_cli_registry(c, &r, err));
    TSR_TRY(tsr_cli_help_json(r, &j, err));
    return tsr_cli_print_json(j, err);
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct help_options *o = opts;
    const struct tsr_verb     *v = NULL;
    const char                *near = NULL;
    static char                names[4096];
    if (o->completions != TSR_CLI_SHELL_NONE && (n_args || o->man || o->all || c->json))
        return tsr_fail(err, TSR_E_INPUT, "--completions is about every verb; leave out the rest");
    if (n_args > 0 && !(v = tsr_verb_find(args[0], &near)))
        return tsr_fail(err, TSR_E_INPUT, "unknown verb '%s'%s%s%s", args[0],
                        near ? "; did you mean '" : "; 'tessera help' lists them", near ? near : "",
                        near ? "'?" : "");
    if (c->json && (v || o->man || o->all))
        return tsr_fail(err, TSR_E_INPUT,
                        "--json prints the tables of every verb; leave out the rest");
    if (c->json)
        return print_json(c, err);
    if (o->completions != TSR_CLI_SHELL_NONE)
        TSR_TRY(codecs(c, names, sizeof names, err));
    tsr_cli_completion_other(names);
    if (o->completions == TSR_CLI_SHELL_BASH)
        tsr_cli_completions_bash(stdout);
    else if (o->completions == TSR_CLI_SHELL_ZSH)
        tsr_cli_completions_zsh(stdout);
    else if (o->completions == TSR_CLI_SHELL_FISH)
        tsr_cli_completions_fish(stdout);
    else if (o->man)
        tsr_cli_man_page(v, stdout);
    else if (v)
        tsr_cli_help_verb(v, o->all != 0, stdout);
    else
        tsr_cli_help_program(stdout);
    return tsr_cli_flush(err);
}

const struct tsr_verb tsr_verb_help = {
    .name = "help",
    .summary = "explains the program or a verb",
    .args = "[VERB]",
    .min_args = 0,
    .max_args = 1,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct help_options),
    .run = run,
};
