/* cli/inspect.h - what `tessera inspect` knows, as JSON; the verb prints it. */
#ifndef TSR_CLI_INSPECT_H
#define TSR_CLI_INSPECT_H

#include "plugin/registry.h"

#include <jansson.h>

/* Each gives a new reference, or TSR_E_NOMEM or another failure with its sentence. */

/* [{kind, name, summary, id, version, abi, license, path, hash, build}], one per component. */
tsr_status tsr_inspect_plugins(struct tsr_registry *r, json_t **out, struct tsr_err *err);
/* [{path, why}] */
tsr_status tsr_inspect_refused(struct tsr_registry *r, json_t **out, struct tsr_err *err);
/* [{id, summary, page}] packed weight formats */
tsr_status tsr_inspect_formats(json_t **out, struct tsr_err *err);
/* [{name, architecture, summary}] model families */
tsr_status tsr_inspect_models(json_t **out, struct tsr_err *err);
/* [{name, summary}] quantized checkpoints of other programs */
tsr_status tsr_inspect_checkpoints(json_t **out, struct tsr_err *err);
/* [{backend, device, memory_bytes, free_bytes, deterministic}, or {backend, error}] */
tsr_status tsr_inspect_devices(struct tsr_registry *r, json_t **out, struct tsr_err *err);

/* As in tsr_inspect_plugins(), with needs_abi, libraries, what cli/inspect_facts.h says, and
 * options: [{name, type, help, text, ...}]. */
tsr_status tsr_inspect_component(const struct tsr_found *f, json_t **out, struct tsr_err *err);
/* A model, without reading a weight.  verify: of a prepacked file every byte is read and compared with
 * its hashes. */
tsr_status tsr_inspect_model(const char *path, bool verify, json_t **out, struct tsr_err *err);

/* All of it as text on stdout: {plugins, refused, formats, models, devices, components, model},
 * each if it is there. */
void tsr_inspect_print(const json_t *j);

#endif
