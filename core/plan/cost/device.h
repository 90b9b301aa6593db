/* plan/cost/device.h - device profiles: tessera.device/1 (docs/formats/device.md).
 *
 * What a device can hold and run, and how fast: datasheet numbers with stated efficiencies, and
 * latencies of single decoder layers that were measured, each with its source.  latency.h turns
 * them into times.
 */
#ifndef TSR_PLAN_COST_DEVICE_H
#define TSR_PLAN_COST_DEVICE_H

#include "plan/cost/profile.h"

/* Reads a profile and makes its regressions.  What is wrong with the file goes to d; TSR_OK with
 * *p NULL then.  [setup] */
tsr_status tsr_plan_profile_load(struct tsr_plan_profile **p, const char *path, struct tsr_diag *d,
                                 struct tsr_err *err);
tsr_status tsr_plan_profile_parse(struct tsr_plan_profile **p, const char *name, const char *text,
                                  uint64_t len, struct tsr_diag *d, struct tsr_err *err);
void       tsr_plan_profile_destroy(struct tsr_plan_profile *p); /* NULL is fine */

/* The file of a profile: NAME.yaml (NAME in lower case as a second try) in devices/ next to the cluster
 * file, whose folder is `beside`, in ../devices, then in the installed configs. A name with a '/' or that
 * ends in .yaml is a path relative to `beside`. Fresh memory; TSR_E_INPUT names the searched folders and
 * the nearest profile. [setup] */
tsr_status tsr_plan_profile_find(char **path, const char *name, const char *beside,
                                 struct tsr_err *err);

/* True where the device runs the kernel: it has a roofline or a point for it. */
bool tsr_plan_profile_runs(const struct tsr_plan_profile *p, const char *kernel);
/* A layout's kernel as a scheme runs it on the device: "gptq/int8" where the profile has such an entry or points, else the
 * kernel itself; "f32" for a plugin's own layout that the profile does not have.  scheme: the quantizer's name, or NULL.
 * [any] */
void tsr_plan_profile_scheme_kernel(const struct tsr_plan_profile *p, const char *scheme,
                                    char kernel[TSR_PLAN_KERNEL_TEXT]);
/* The kernel of the profile that is most like one that it does not have: of the same sort (floats, integers, tables, MX
 * elements), then of the nearest bit width, the wider of two. NULL where it has none. Valid as long as the profile. */
const char *tsr_plan_profile_closest(const struct tsr_plan_profile *p, const char *kernel);

/* How fast a codec is on the device for messages of that many bytes of F32 rows: of the entries with these options, else of
 * those of the codec's name, the one with the largest `above` below the message, else the smallest.  NULL: not known.  Valid as long as the
 * profile. */
const struct tsr_plan_codec_speed *tsr_plan_profile_codec_of(const struct tsr_plan_profile *p,
                                                             const char *text, double bytes);

const char *tsr_plan_basis_name(enum tsr_basis b);

/* On whose kernels the profile's times were measured: what the file says (`measured_on`), else by the source of its first
 * point "Tessera's own" or "others': LLM-PQ repository"; "not measured" for a roofline. */
#define TSR_PLAN_KERNELS_TEXT 80
void tsr_plan_profile_kernels(const struct tsr_plan_profile *p, char text[TSR_PLAN_KERNELS_TEXT]);

#endif
