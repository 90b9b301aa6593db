#include "batch/ttft.h"

#include "base/mem.h"

#include <stdlib.h>

tsr_status tsr_batch_ttft_open(struct tsr_batch_ttft *t, uint64_t records, struct tsr_err *err)
{
    *t = (struct tsr_batch_ttft){ .s = tsr_new(records, sizeof *t->s) };
    if (!t->s)
        return tsr_fail_nomem(err, records * sizeof *t->s, "the times of first tokens");
    t->records = records;
    for (uint64_t i = 0; i < records; i++)
        t->s[i] = -1;
    return TSR_OK;
}

void tsr_batch_ttft_free(struct tsr_batch_ttft *t)
{
    free(t->s);
    *t = (struct tsr_batch_ttft){ 0 };
}

void tsr_batch_ttft_note(struct tsr_batch_ttft *t, uint64_t record, double seconds)
{
    if (record >= t->records || !(seconds >= 0))
        return;
    t->n += t->s[record] < 0;
    t->s[record] = seconds;
}
