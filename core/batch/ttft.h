/* batch/ttft.h - seconds from the moment that a record was taken to its first token. */
#ifndef TSR_BATCH_TTFT_H
#define TSR_BATCH_TTFT_H

#include "base/err.h"

struct tsr_batch_ttft {
    uint64_t records, n; /* n: of this run, with a first token */
    double  *s;          /* [records]; below 0: none in this run */
};

/* TSR_E_NOMEM leaves it empty. */
tsr_status tsr_batch_ttft_open(struct tsr_batch_ttft *t, uint64_t records, struct tsr_err *err);
void       tsr_batch_ttft_free(struct tsr_batch_ttft *t); /* a zeroed one is valid */
void       tsr_batch_ttft_note(struct tsr_batch_ttft *t, uint64_t record, double seconds);

#endif
