/* cli/inspect/facts.h - the static facts in a component's plugin tables, for every kind. */
#ifndef TSR_CLI_INSPECT_FACTS_H
#define TSR_CLI_INSPECT_FACTS_H

#include "plugin/registry.h"

#include <jansson.h>

/* A set of flags as a list of names; a bit without one is "bit N". */
struct tsr_cli_flag_name {
    uint64_t    bit;
    const char *name;
};
/* New reference, NULL when out of memory. */
json_t *tsr_inspect_flags(uint64_t flags, const struct tsr_cli_flag_name *names, uint64_t n);
/* TSR_NEED_* of tsr_quant_plan, without those of TSR_NEED_IF_THERE. */
json_t *tsr_inspect_needs(uint64_t need);

/* "quantizer" of "tessera.quantizer/1" */
void tsr_inspect_kind(const char *kind, char buf[64]);

/* Sets "promises" and "functions" (the optional ones that it has), and "dtypes" for a quantizer or
 * "supports" for a solver or "states" for a transport. Runs no code of the plugin. False when out of
 * memory. */
bool tsr_inspect_facts(const struct tsr_plugin_found *f, json_t *to);

#endif
