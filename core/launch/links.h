/* launch/links.h - how the sums of a plan's stages travel: calibrations of their codecs, and the choices
 * of `auto` in the run that resumes.
 */
#ifndef TSR_LAUNCH_LINKS_H
#define TSR_LAUNCH_LINKS_H

#include "eval/codec_file.h"
#include "plan/file/plan_file.h"
#include "plugin/registry.h"
#include "runtime/group.h"

#include <jansson.h>

struct tsr_launch_states {
    struct tsr_eval_codec_file **file; /* [n]; owned */
    uint64_t                     n;
    json_t *hashes; /* list of the contents of these files; NULL: none was read */
};

/* Finds the calibration of a key for which the plan names no file; *path NULL: not found. */
typedef tsr_status (*tsr_launch_find_state)(void *ctx, const struct tsr_eval_codec_key *key,
                                            char **path, struct tsr_err *err);

/* Reads the calibration of every codec that needs one, and puts it into the layout.  packs: weights
 * are packed while ranks load them, so that no calibration can have seen them.  Another key, or a codec
 * without its calibration, is TSR_E_INPUT.  [setup] */
tsr_status tsr_launch_states_open(struct tsr_launch_states *s, struct tsr_registry *r,
                                  const struct tsr_plan_file *p, struct tsr_runtime_layout *l,
                                  const struct tsr_model *m, const struct tsr_model_overlay *o,
                                  uint32_t act, bool packs, tsr_launch_find_state find, void *ctx,
                                  struct tsr_err *err);
void       tsr_launch_states_close(struct tsr_launch_states *s); /* zeroed or filled */

/* Fixes the open choices of the layout from links (tsr_launch_links_json() of an earlier run). */
tsr_status tsr_launch_links_take(struct tsr_runtime_layout *l, const json_t *links,
                                 struct tsr_err *err);
/* The choices for open settings: [{"stage", "prefill": {"codec", "algorithm"}, "decode"}], new reference;
 * *links NULL if nothing was open. */
tsr_status tsr_launch_links_json(const struct tsr_runtime_layout *l,
                                 const struct tsr_runtime_group *c, json_t **links,
                                 struct tsr_err *err);

#endif
