/* eval/link.h - what a link between stages does to hidden rows: encoded and decoded by its codec, in one process. */
#ifndef TSR_EVAL_LINK_H
#define TSR_EVAL_LINK_H

#include "plugin/spec.h"
#include "tessera/codec.h"

struct tsr_eval_link {
    struct tsr_plugin_spec     spec;
    const struct tsr_codec_v1 *iface;
    void                      *self;
};

/* codec: "plain:dtype=bf16".  TSR_E_INPUT: there is no such codec, or it must be calibrated, which links are not.  The
 * link is closed after an error.  [setup] */
tsr_status tsr_eval_link_open(struct tsr_eval_link *l, struct tsr_registry *r, const char *codec,
                              struct tsr_err *err);
void       tsr_eval_link_close(struct tsr_eval_link *l); /* zeroed or filled */
/* x [rows, cols] dense F32 as it arrives, in place.  site: 2 * layer + 1 of the last layer before the link.  [worker] */
tsr_status tsr_eval_link_send(const struct tsr_eval_link *l, uint32_t site, uint64_t rows,
                              uint64_t cols, float *x, struct tsr_err *err);

#endif
