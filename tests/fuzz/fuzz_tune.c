/* A profile of compensated linears from bytes; what is accepted can be tuned. */
#include "compensate/tune.h"

#include <math.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tsr_compensate_tune_table t;
    struct tsr_compensate_tune_result       r;
    struct tsr_errbuf                       e = TSR_ERRBUF(e);
    tsr_status st = tsr_compensate_tune_parse(&t, "input", (const char *)data, size, &e.err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e.text[0] != '\0');
    if (st != TSR_OK)
        return 0;
    for (int way = 0; way < 2; way++) {
        st = tsr_compensate_tune(&t, 0.05, 0, (enum tsr_freeze)way, &r, &e.err);
        must(st == TSR_OK || st == TSR_E_INPUT);
        must(st != TSR_OK || r.total <= r.limit || r.common == 0);
    }
    tsr_compensate_tune_free(&t);
    return 0;
}
