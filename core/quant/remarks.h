/* quant/remarks.h - what quantizers say of their options when they are made: kept until something is packed with them,
 * then said, each sentence once a step, however many instances say it. */
#ifndef TSR_QUANT_REMARKS_H
#define TSR_QUANT_REMARKS_H

#include "quant/isolate.h"

#include <stdbool.h>

struct tsr_remark {
    int32_t level; /* TSR_LOG_* */
    bool    said;
    char   *text; /* owned */
};
struct tsr_remarks {
    struct tsr_remark *v; /* owned; zeroed: none */
    uint64_t           n;
};

/* tsr_quantizer_open(), its log lines into r; NULL: dropped, for instances that only check options or sizes.  One
 * thread at a time has r. */
tsr_status tsr_remarks_open(struct tsr_remarks *r, struct tsr_quantizer *q,
                            struct tsr_registry *registry, const struct tsr_found *found,
                            const struct tsr_host *host, const void *options, struct tsr_err *err);
/* Says those that were not said yet. */
void tsr_remarks_say(struct tsr_remarks *r);
void tsr_remarks_free(struct tsr_remarks *r); /* zeroed or filled */

#endif
