/* cli/inspect/probe.h - facts that only a component's own functions give; a child process calls them. */
#ifndef TSR_CLI_INSPECT_PROBE_H
#define TSR_CLI_INSPECT_PROBE_H

#include "cli/cli.h"

#include <jansson.h>

/* Finds the i-th requested component in the registry of c. *have false: past the end. */
typedef tsr_status (*tsr_inspect_nth)(struct tsr_cli *c, const char *name, uint64_t i,
                                      struct tsr_plugin_found *f, bool *have, struct tsr_err *err);

/* Makes an instance with default options, queries it about a sample and ends it: a new object by kind, or
 * {error} with the plugin's message. TSR_E_NOMEM also when the plugin returns it. */
tsr_status tsr_inspect_ask(const struct tsr_plugin_found *f, json_t **out, struct tsr_err *err);

/* Runs tsr_inspect_ask() of nth(name, i) in a child process, which isolates crashes: {error} then gives
 * the signal or a timeout. *out NULL: past the end. Call before this process has a registry or threads. */
tsr_status tsr_inspect_probe(struct tsr_cli *c, tsr_inspect_nth nth, const char *name, uint64_t i,
                             json_t **out, struct tsr_err *err);

#endif
