/* tessera.plan/1: what is accepted has every layer once, with a rule, and micro-batches in order. */
#include "plan/file/plan_file.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void layers(const struct tsr_plan_file *p)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          next = 0;
    char              text[100];
    for (uint64_t i = 0; i < p->n_stages; i++) {
        must(p->stages[i].first == next && p->stages[i].count > 0);
        must(!p->placed || (*p->stages[i].node && *p->stages[i].device && p->stages[i].tp > 0));
        next += p->stages[i].count;
    }
    must(next == p->layers);
    for (uint64_t l = 0; l < p->layers; l += p->layers / 4 + 1) {
        bool any = false;
        for (uint64_t i = 0; i < p->n_entries && !any; i++)
            must(tsr_plan_file_covers(p, p->entries[i], l, &any, &e.err) == TSR_OK);
        must(any);
        must(tsr_plan_file_layer(p, l, text, sizeof text, &e.err) == TSR_OK);
        must(strlen(text) < sizeof text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_plan_file p;
    struct tsr_diag     *d;
    if (tsr_config_diag_create(&d, &e.err) != TSR_OK)
        return 0;
    tsr_status st = tsr_plan_file_parse(&p, "input", (const char *)data, size, d, &e.err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e.text[0] != '\0');
    if (st == TSR_OK && !tsr_config_diag_errors(d)) {
        layers(&p);
        if (p.placed)
            must(p.prefill_mb >= 1 && p.prefill_mb <= p.decode_mb && p.decode_mb <= p.load.batch &&
                 p.load.concurrency <= p.load.batch);
    }
    tsr_plan_file_free(&p);
    tsr_config_diag_destroy(d);
    return 0;
}
