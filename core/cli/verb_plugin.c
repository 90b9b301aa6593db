/* tessera plugin: what the author of a plugin needs. */
#include "cli/cli.h"
#include "cli/plugin_check.h"

#include <string.h>

#define S struct tsr_plugin_check
static const struct tsr_option options[] = {
    TSR_OPTION_STRING(S, only, "", "check: run the rules of this name; * and ? stand for others"),
    TSR_OPTION_STRING(S, skip, "", "check: leave out the rules of this name; * and ? as in only"),
    TSR_OPTION_STRING(S, component, "", "check: one component of the file"),
    TSR_OPTION_INT(S, seed, 0, 0, INT64_MAX, NULL,
                   "check: of the weights and shapes that are made up"),
    TSR_OPTION_INT(S, limit, 0, 0, 86400, "s", "check: time of one rule; 0: each has its own"),
    TSR_OPTION_BOOL(S, in_process, 0,
                    "check: no process of its own for the one rule, for a debugger"),
    TSR_OPTION_BOOL(S, list, 0, "check: print the rules and what they want"),
};
#undef S

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    static const char *const what[] = { "check" };
    if (strcmp(args[0], "check") == 0)
        return tsr_cli_plugin_check(c, opts, args + 1, n_args - 1, err);
    const char *near = tsr_nearest(args[0], what, sizeof what / sizeof *what);
    return tsr_fail(err, TSR_E_INPUT, "plugin does check, not '%s'%s%s%s", args[0],
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

const struct tsr_verb tsr_verb_plugin = {
    .name = "plugin",
    .summary = "checks a plugin",
    .args = "check FILE.so",
    .min_args = 1,
    .max_args = -1,
    .details =
        "check   runs every rule of docs/abi.md that applies, each in a process of its own, and\n"
        "        says of each whether the plugin keeps it; --set KEY=VALUE sets its options",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct tsr_plugin_check),
    .run = run,
    .jobs = true,
};
