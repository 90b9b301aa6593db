/* cli/inspect_probe.h - what only a component's own functions can tell, asked in a child process. */
#ifndef TSR_CLI_INSPECT_PROBE_H
#define TSR_CLI_INSPECT_PROBE_H

#include "cli/cli.h"

#include <jansson.h>

/* Finds the i-th component that is asked for, with the registry of c.  *have false: there is none. */
typedef tsr_status (*tsr_inspect_nth)(struct tsr_cli *c, const char *name, uint64_t i,
                                      struct tsr_found *f, bool *have, struct tsr_err *err);

/* Makes an instance with default options, asks it about a sample and ends it: a new object by
 * kind, or {error} with the plugin's sentence.  TSR_E_NOMEM also when the plugin says so. */
tsr_status tsr_inspect_ask(const struct tsr_found *f, json_t **out, struct tsr_err *err);

/* tsr_inspect_ask() of nth(name, i) in a child process, so that what goes wrong there stays there:
 * {error} then tells the signal or that it took too long.  *out NULL: there is no i-th one.
 * Called before this process has a registry or threads. */
tsr_status tsr_inspect_probe(struct tsr_cli *c, tsr_inspect_nth nth, const char *name, uint64_t i,
                             json_t **out, struct tsr_err *err);

#endif
