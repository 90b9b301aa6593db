/* cli/inspect/facts.h - the static facts in a component's plugin tables, for every kind. */
#ifndef TSR_CLI_INSPECT_FACTS_H
#define TSR_CLI_INSPECT_FACTS_H

#include "plugin/registry.h"

#include <jansson.h>

/* TSR_NEED_* of tsr_quant_plan, without those of TSR_NEED_IF_THERE; a new reference, NULL when out of memory. */
json_t *tsr_inspect_needs(uint64_t need);

/* "quantizer" of "tessera.quantizer/1" */
void tsr_inspect_kind(const char *kind, char buf[64]);

/* Sets "promises" and "functions" (the optional ones that it has), and "dtypes" for a quantizer or
 * "supports" for a solver or "states" for a transport. Runs no code of the plugin. False when out of
 * memory. */
bool tsr_inspect_facts(const struct tsr_plugin_found *f, json_t *to);

#endif
