/* engine/hooks.h - hooks of a forward pass.  forward.c and block.c run the model alone and call these
 * hooks, which may observe or replace a part; the file that sets a hook is next to it.
 *
 *   chunk     before a chunk of tokens                compensate.c: which of them are compensated
 *   input     a site's input is available             taps.c: calibration observes it
 *   run       a site's linears: input to outputs      linears.c: on this device alone;
 *                                                     ranks.c: o and down, summed over ranks
 *   outputs   the outputs are available               compensate_ranks.c: adds the error compensation
 *   hidden    rows for the logits are available       taps.c
 *
 * A hook that is NULL does nothing; `run` is never NULL.
 */
#ifndef TSR_ENGINE_HOOKS_H
#define TSR_ENGINE_HOOKS_H

#include "engine/engine.h"

/* Outputs of a site at most: of q, k, v, z, b and a. */
#define TSR_ENGINE_SITE_LINEARS 6u

/* outs: of the site's linears, in the order of enum tsr_linear_id; NULL if a linear is absent.  Those of attention have
 * room for all six. */
typedef tsr_status (*tsr_engine_site_hook)(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                           const struct tsr_tensor        *in,
                                           const struct tsr_tensor *const *outs,
                                           struct tsr_err                 *err);

struct tsr_engine_hooks {
    tsr_status (*chunk)(struct tsr_engine *e, const struct tsr_engine_token *tokens, uint64_t n,
                        struct tsr_err *err);
    tsr_status (*input)(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                        const struct tsr_tensor *in, struct tsr_err *err);
    tsr_engine_site_hook run[TSR_MODEL_SITES];
    tsr_engine_site_hook outputs;
    tsr_status (*hidden)(struct tsr_engine *e, const struct tsr_tensor *rows, struct tsr_err *err);
};

/* linears.c: the linears of a site on the engine's own device, each with its compensation. */
tsr_status tsr_engine_run_site(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                               const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                               struct tsr_err *err);
/* ranks.c: o or down split over several ranks, real or simulated: the sum over them, followed by bias and
 * compensation. */
tsr_status tsr_engine_run_site_over_ranks(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                          const struct tsr_tensor        *in,
                                          const struct tsr_tensor *const *outs,
                                          struct tsr_err                 *err);
/* compensate.c: selects tokens of a chunk; compensate_ranks.c: adds compensation to the outputs of a site. */
tsr_status tsr_engine_compensate_chunk(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                       uint64_t n, struct tsr_err *err);
tsr_status tsr_engine_compensate_site(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                      const struct tsr_tensor        *in,
                                      const struct tsr_tensor *const *outs, struct tsr_err *err);

/* For layers with experts.  After the router, tokens: of the experts' rows, one expert's after the other's, up to
 * end[expert]; then before an expert runs over its n rows; tokens NULL: the inputs are again those of all tokens. */
tsr_status tsr_engine_compensate_routes(struct tsr_engine *e, uint64_t layer,
                                        const uint32_t *tokens, const uint64_t *end,
                                        struct tsr_err *err);
void       tsr_engine_compensate_expert(struct tsr_engine *e, uint64_t layer, uint32_t expert,
                                        const uint32_t *tokens, uint64_t n);

#endif
