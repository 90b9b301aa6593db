/* quant/remarks.h - log messages of quantizers about their options at creation: stored until something is
 * packed with them, then logged once per step, for any number of instances. */
#ifndef TSR_QUANT_REMARKS_H
#define TSR_QUANT_REMARKS_H

#include "quant/isolate.h"

#include <stdbool.h>

struct tsr_quant_remark {
    int32_t level; /* TSR_LOG_* */
    bool    said;
    char   *text; /* owned */
};
struct tsr_quant_remarks {
    struct tsr_quant_remark *v; /* owned; zeroed: none */
    uint64_t                 n;
};

/* tsr_quantizer_open(), its log lines into r; NULL: dropped, for instances that only check options or sizes.  One
 * thread at a time has r. */
tsr_status tsr_quant_remarks_open(struct tsr_quant_remarks *r, struct tsr_quantizer *q,
                                  struct tsr_registry           *registry,
                                  const struct tsr_plugin_found *found, const struct tsr_host *host,
                                  const void *options, struct tsr_err *err);
/* Logs the messages that were not logged yet. */
void tsr_quant_remarks_say(struct tsr_quant_remarks *r);
void tsr_quant_remarks_free(struct tsr_quant_remarks *r); /* zeroed or filled */

#endif
