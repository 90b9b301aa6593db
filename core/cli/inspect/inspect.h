/* cli/inspect/inspect.h - the data of `tessera inspect` as JSON; the verb prints it. */
#ifndef TSR_CLI_INSPECT_INSPECT_H
#define TSR_CLI_INSPECT_INSPECT_H

#include "plugin/registry.h"

#include <jansson.h>
#include <stdbool.h>

/* Each gives a new reference, or TSR_E_NOMEM or another failure with its sentence. */

/* [{kind, name, summary, id, version, abi, license, path, hash, build}], one per component. */
tsr_status tsr_inspect_plugins(struct tsr_registry *r, json_t **out, struct tsr_err *err);
/* [{path, why}] */
tsr_status tsr_inspect_refused(struct tsr_registry *r, json_t **out, struct tsr_err *err);
/* [{kind, name, package, option}]: optional plugins missing from the searched folders, and the Debian
 * package that each requires; option: the meson option that builds the plugin. */
tsr_status tsr_inspect_absent(const struct tsr_registry *r, json_t **out, struct tsr_err *err);
/* [{id, summary, page}] packed weight formats */
tsr_status tsr_inspect_formats(json_t **out, struct tsr_err *err);
/* [{name, architecture, summary}] model families */
tsr_status tsr_inspect_models(json_t **out, struct tsr_err *err);
/* [{name, summary}] quantized checkpoints of other programs */
tsr_status tsr_inspect_checkpoints(json_t **out, struct tsr_err *err);
/* [{backend, device, memory_bytes, free_bytes, deterministic}, or {backend, error}] */
tsr_status tsr_inspect_devices(struct tsr_registry *r, json_t **out, struct tsr_err *err);

/* As in tsr_inspect_plugins(), with needs_abi, libraries, the facts of cli/inspect/facts.h, and options:
 * [{name, type, help, text, ...}]. */
tsr_status tsr_inspect_component(const struct tsr_plugin_found *f, json_t **out,
                                 struct tsr_err *err);
/* {name, type, help, unit, required, advanced, text, default, min, max, replaced_by, choices: [{name, help}]};
 * the last four where they are. */
json_t *tsr_inspect_option(const struct tsr_option *o);
/* A family by its name: {name, file, summary, architectures, model_types, prefixes, norm, norms, qk_norm,
 * feed_forward, positions, values: [{name, keys, default, form, help}], tensors}. */
tsr_status tsr_inspect_family(const char *name, json_t **out, struct tsr_err *err);
/* Sets "family_file", "config" {used, default, ignored: names of keys}, "layer_forms" [{first, last, window,
 * positions, theta, scaling, rotated}], "norms" and "qk_norm" of a model. */
struct tsr_model;
tsr_status tsr_inspect_model_family(const struct tsr_model *m, json_t *to, struct tsr_err *err);
/* The same of a configuration that was parsed from the text of `config`. */
struct tsr_model_config;
tsr_status tsr_inspect_config_family(const struct tsr_model_config *c, json_t *config, json_t *to,
                                     struct tsr_err *err);
/* A model without weights by the path of its config.json: {path, config_alone: true, family, sizes} and the above. */
tsr_status tsr_inspect_config(const char *path, json_t **out, struct tsr_err *err);

/* Sets "compensation" of a model with residuals: {bits, device, least_us, sites: [{first, last, site, bytes, us, used,
 * why}]}: runs of layers, the bytes of the packed linears of an input, and whether the device compensates them.
 * profile: a file tessera.device/1; "": no device, "used" is null.  TSR_E_INPUT: a profile for a model without. */
tsr_status tsr_inspect_compensation(const struct tsr_model *m, const char *profile, json_t *to,
                                    struct tsr_err *err);

/* A model, without reading a weight.  verify: of a prepacked file every byte is read and compared with
 * its hashes.  profile: as above. */
tsr_status tsr_inspect_model(const char *path, bool verify, const char *profile, json_t **out,
                             struct tsr_err *err);

/* Whether x names a YAML file, which may be a plan or a device profile. */
bool tsr_inspect_is_written(const char *x);
/* The keys of such a file as it has them, and its path; of a profile also `measured` (whose kernels) and `points` (layers
 * that were measured).  *key: "plan" or "device".  TSR_E_INPUT: it is another file, or has errors. */
tsr_status tsr_inspect_written(const char *path, const char **key, json_t **out,
                               struct tsr_err *err);
/* The same of a profile by its name, as clusters name it. */
tsr_status tsr_inspect_profile(const char *name, json_t **out, struct tsr_err *err);

/* Prints all of it as text on stdout: {plugins, refused, absent, formats, models, devices, components,
 * model, plan, device}, each if present. */
void tsr_inspect_print(const json_t *j);

#endif
