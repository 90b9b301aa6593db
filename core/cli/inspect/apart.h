/* cli/inspect/apart.h - inspects a plugin's file in a child process; only the child loads it. */
#ifndef TSR_CLI_INSPECT_APART_H
#define TSR_CLI_INSPECT_APART_H

#include "cli/cli.h"

#include <jansson.h>

/* What collects facts about x into an object. */
typedef tsr_status (*tsr_inspect_collect)(struct tsr_cli *c, const char *x, bool ask, bool verify,
                                          json_t *to, struct tsr_err *err);

/* Whether x is a file that only a plugin can be. */
bool tsr_inspect_is_plugin_file(const char *x);

/* collect() in a child process: its facts into *to, its log lines, its status and its sentence.  A file
 * that ends the process while it is loaded, or takes too long, is TSR_E_INPUT.  Called before this
 * process has a registry or threads. */
tsr_status tsr_inspect_apart(struct tsr_cli *c, tsr_inspect_collect collect, const char *x,
                             bool ask, bool verify, json_t *to, struct tsr_err *err);

#endif
