/* cli/plugin/check.h - `tessera plugin check`. */
#ifndef TSR_CLI_PLUGIN_CHECK_H
#define TSR_CLI_PLUGIN_CHECK_H

#include "cli/cli.h"

struct tsr_plugin_check {
    const char *only, *skip, *component; /* "": all */
    const char *report;                  /* FILE.json or FILE.html; "": none */
    const char *on;                      /* a backend's plugin; "": none */
    int64_t     seed, limit;
    int32_t     in_process, list, model;
};

/* One FILE, or none with list. Prints a line per rule as it ends, or one JSON object; for a quantizer that
 * keeps all rules, also its results on the bundled model. A plugin that breaks a rule is TSR_E_CHECK. */
tsr_status tsr_cli_plugin_check(struct tsr_cli *c, const struct tsr_plugin_check *o, char **args,
                                int n_args, struct tsr_err *err);

#endif
