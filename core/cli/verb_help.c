#include "cli/help.h"

struct help_options {
    int32_t man, all;
};

static const struct tsr_option options[] = {
    TSR_OPTION_BOOL(struct help_options, man, 0, "print the man page instead"),
    TSR_OPTION_BOOL(struct help_options, all, 0, "with rarely used options"),
};

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct help_options *o = opts;
    const struct tsr_verb     *v = NULL;
    const char                *near = NULL;
    (void)c;
    if (n_args > 0 && !(v = tsr_verb_find(args[0], &near)))
        return tsr_fail(err, TSR_E_INPUT, "unknown verb '%s'%s%s%s", args[0],
                        near ? "; did you mean '" : "; 'tessera help' lists them", near ? near : "",
                        near ? "'?" : "");
    if (o->man)
        tsr_man_page(v, stdout);
    else if (v)
        tsr_help_verb(v, o->all != 0, stdout);
    else
        tsr_help_program(stdout);
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
